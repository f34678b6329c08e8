package clickhouse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/chpool"
	"github.com/ClickHouse/ch-go/proto"
	chgo "github.com/ClickHouse/clickhouse-go/v2"
)

// wire moves blocks of columns to and from the server without going through
// rows. It exists beside clickhouse-go because the two hot paths, storing raw
// events and reading them back to recompute, are bound by exactly this: see
// docs/benchmarks.md.
type wire interface {
	// insert sends one block. It returns nil only when the server has it.
	insert(ctx context.Context, query string, input proto.Input) error
	// query calls onBlock after each block has been read into results.
	query(ctx context.Context, query string, results proto.Results, onBlock func(rows int) error) error
	close()
}

// settings are sent with every statement. An asynchronous insert would be
// acknowledged before it is durable; since 26.3 it is the server's default.
var settings = map[string]string{
	"async_insert":          "0",
	"insert_deduplicate":    "0",
	"optimize_on_insert":    "0", // reads settle duplicates anyway
	"max_insert_block_size": "1048576",
	"max_query_size":        "16777216",
}

func openWire(ctx context.Context, o *chgo.Options, settings map[string]string) (wire, error) {
	if o.Protocol == chgo.HTTP {
		return openHTTP(o, settings)
	}
	return openTCP(ctx, o, settings)
}

type httpWire struct {
	client   *http.Client
	base     *url.URL
	database string
	user     string
	pass     string
	settings map[string]string
	buffers  *spare[*proto.Buffer] // encoded blocks, large and much used
}

func openHTTP(o *chgo.Options, settings map[string]string) (*httpWire, error) {
	scheme := "http"
	transport := &http.Transport{
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
		WriteBufferSize:     1 << 18,
		ReadBufferSize:      1 << 18,
	}
	if o.TLS != nil {
		scheme, transport.TLSClientConfig = "https", o.TLS
	}
	return &httpWire{
		client:   &http.Client{Transport: transport},
		base:     &url.URL{Scheme: scheme, Host: o.Addr[0], Path: "/" + strings.TrimPrefix(o.HttpUrlPath, "/")},
		database: o.Auth.Database, user: o.Auth.Username, pass: o.Auth.Password,
		settings: settings,
		buffers:  newSpare(2, func() *proto.Buffer { return &proto.Buffer{} }),
	}, nil
}

func (w *httpWire) do(ctx context.Context, query string, body io.Reader, more url.Values) (*http.Response, error) {
	u := *w.base
	v := url.Values{"database": {w.database}}
	for k, s := range w.settings {
		v.Set(k, s)
	}
	for k := range more {
		v.Set(k, more.Get(k))
	}
	if query != "" {
		v.Set("query", query)
	}
	u.RawQuery = v.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return nil, err
	}
	if w.user != "" {
		req.Header.Set("X-ClickHouse-User", w.user)
		req.Header.Set("X-ClickHouse-Key", w.pass)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		var inURL *url.Error
		if errors.As(err, &inURL) {
			err = inURL.Err // the URL holds the whole statement
		}
		return nil, fmt.Errorf("clickhouse at %s: %w", w.base.Host, err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		resp.Body.Close()
		return nil, &serverError{code: resp.Header.Get("X-ClickHouse-Exception-Code"), text: strings.TrimSpace(string(text))}
	}
	return resp, nil
}

func (w *httpWire) insert(ctx context.Context, query string, input proto.Input) error {
	buf := w.buffers.take()
	buf.Reset()
	block := proto.Block{Columns: len(input), Rows: input[0].Data.Rows()}
	if err := block.EncodeRawBlock(buf, 0, input); err != nil {
		return fmt.Errorf("encode block: %w", err)
	}
	resp, err := w.do(ctx, strings.TrimSuffix(query, "VALUES")+"FORMAT Native", bodyOf(ctx, buf.Buf), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	// Only now: after a failure the transport may still be reading from it.
	w.buffers.put(buf)
	return nil
}

type halfwayKey struct{}

func withHalfway(ctx context.Context, f func()) context.Context {
	if f == nil {
		return ctx
	}
	return context.WithValue(ctx, halfwayKey{}, f)
}

// bodyOf is the block as a request body; with a halfway function in the context
// it is read in two parts, the function being called in between.
func bodyOf(ctx context.Context, block []byte) io.Reader {
	f, ok := ctx.Value(halfwayKey{}).(func())
	if !ok {
		return bytes.NewReader(block)
	}
	half := len(block) / 2
	return io.MultiReader(bytes.NewReader(block[:half]), readerFunc(func([]byte) (int, error) {
		f()
		return 0, io.EOF
	}), bytes.NewReader(block[half:]))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (w *httpWire) query(ctx context.Context, query string, results proto.Results, onBlock func(rows int) error) error {
	more := url.Values{"default_format": {"Native"}}
	resp, err := w.do(ctx, "", strings.NewReader(query), more)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// A failure after the first block ends the stream in the middle of a block
	// or with text in place of one, so it can only show as a decoding error.
	r := proto.NewReader(resp.Body)
	for {
		var block proto.Block
		err := block.DecodeRawBlock(r, 0, results)
		if errors.Is(err, io.EOF) && block.Columns == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read block: %w", err)
		}
		if block.Rows > 0 {
			if err := onBlock(block.Rows); err != nil {
				return err
			}
		}
	}
}

func (w *httpWire) close() { w.client.CloseIdleConnections() }

// serverError is the server's own refusal of a statement.
type serverError struct{ code, text string }

func (e *serverError) Error() string { return "clickhouse: code " + e.code + ": " + e.text }

type tcpWire struct{ pool *chpool.Pool }

func openTCP(ctx context.Context, o *chgo.Options, settings map[string]string) (*tcpWire, error) {
	var list []ch.Setting
	for k, v := range settings {
		list = append(list, ch.Setting{Key: k, Value: v, Important: true})
	}
	compression := ch.CompressionDisabled
	if o.Compression != nil && o.Compression.Method != chgo.CompressionNone {
		compression = ch.CompressionLZ4
	}
	pool, err := chpool.New(ctx, chpool.Options{
		MaxConns: 8,
		ClientOptions: ch.Options{
			Address: o.Addr[0], Database: o.Auth.Database, User: o.Auth.Username, Password: o.Auth.Password,
			Compression: compression, Settings: list, TLS: o.TLS, ReadTimeout: 10 * time.Minute, DialTimeout: 5 * time.Second,
		},
	})
	if err != nil {
		return nil, err
	}
	return &tcpWire{pool: pool}, nil
}

func (w *tcpWire) insert(ctx context.Context, query string, input proto.Input) error {
	return w.pool.Do(ctx, ch.Query{Body: query, Input: input})
}

func (w *tcpWire) query(ctx context.Context, query string, results proto.Results, onBlock func(rows int) error) error {
	return w.pool.Do(ctx, ch.Query{Body: query, Result: results, OnResult: func(_ context.Context, b proto.Block) error {
		if b.Rows == 0 {
			return nil
		}
		return onBlock(b.Rows)
	}})
}

func (w *tcpWire) close() { w.pool.Close() }
