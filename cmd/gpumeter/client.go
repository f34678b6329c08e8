package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/gpumeter/gpumeter/web"
	"github.com/spf13/cobra"
)

const (
	defaultData    = "./data"
	envData        = "GPUMETER_DATA"
	envURL         = "GPUMETER_URL"
	requestTimeout = web.ReportTimeout + 30*time.Second // longer than the server gives itself, as the next
	closeTimeout   = web.CloseTimeout + 30*time.Second
	maxAnswerBytes = 64 << 20 // of an answer that is read into memory
)

// serverFlags say which running gpumeter to talk to.
type serverFlags struct{ url, data, tokenFile string }

func (f *serverFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "url", "", "server to ask, such as http://127.0.0.1:8080 (default: the one that \"gpumeter up\" wrote to DIR/endpoints.json, else $"+envURL+")")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "`FILE` with the token to sign in with (default: $"+envToken+")")
	cmd.Flags().StringVar(&f.data, "data", "", "data directory `DIR` of the running gpumeter (default: $"+envData+", else "+defaultData+")")
}

// client talks to one server.
type client struct {
	base  string
	token string // empty = none is sent
	http  *http.Client
}

func newClient(base string) (*client, error) {
	base = strings.TrimRight(base, "/")
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("%q is not the URL of a server, such as http://127.0.0.1:8080", base)
	}
	return &client{base: base, http: &http.Client{Timeout: requestTimeout}}, nil
}

// client finds the server and the token.
func (f *serverFlags) client(ctx context.Context) (*client, error) {
	c, err := f.server(ctx)
	if err == nil {
		c.token, err = f.token()
	}
	return c, err
}

// server finds the server: --url, then the endpoints file of the data
// directory, then the environment. An endpoints file that nobody answers for is
// left over from a process that was killed, so the environment still counts.
func (f *serverFlags) server(ctx context.Context) (*client, error) {
	if f.url != "" {
		return newClient(f.url)
	}
	dir := f.data
	if dir == "" {
		dir = os.Getenv(envData)
	}
	if dir == "" {
		dir = defaultData
	}
	path := filepath.Join(dir, "endpoints.json")
	base, err := readEndpoint(path)
	fromEnv := os.Getenv(envURL)
	switch {
	case errors.Is(err, fs.ErrNotExist) && fromEnv != "":
		return newClient(fromEnv)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no running gpumeter found: there is no %s and $%s is not set; start \"gpumeter up --data %s\" or give --url", path, envURL, dir)
	case err != nil:
		return nil, err
	}
	c, err := newClient(base)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Unwrap(err))
	}
	if err := c.probe(ctx); err != nil {
		if fromEnv != "" {
			return newClient(fromEnv)
		}
		return nil, fmt.Errorf("nothing answers at %s, which %s names: %w; is \"gpumeter up\" still running?", c.base, path, err)
	}
	return c, nil
}

func readEndpoint(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var endpoints struct {
		HTTP string `json:"http"`
	}
	if err := json.Unmarshal(data, &endpoints); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if endpoints.HTTP == "" {
		return "", fmt.Errorf("%s names no \"http\" endpoint", path)
	}
	return endpoints.HTTP, nil
}

func (c *client) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	res, err := c.send(ctx, http.MethodGet, "/healthz", nil, "", nil)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

func (c *client) send(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (*http.Response, error) {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(req)
}

// copyTo writes the answer to a question to out as it comes.
func (c *client) copyTo(ctx context.Context, out io.Writer, path string, query url.Values) error {
	res, err := c.send(ctx, http.MethodGet, path, query, "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return problemOf(res)
	}
	_, err = io.Copy(out, res.Body)
	return err
}

// exchange sends a request and reads the JSON answer into answer.
func (c *client) exchange(ctx context.Context, method, path string, query url.Values, request, answer any) error {
	var body []byte
	contentType := ""
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
		contentType = "application/json"
	}
	res, err := c.send(ctx, method, path, query, contentType, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return problemOf(res)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswerBytes)).Decode(answer); err != nil {
		return fmt.Errorf("answer of %s: %w", path, err)
	}
	return nil
}

// problemOf turns a problem document into an error; what the server says of the
// question is a usage error here.
func problemOf(res *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	var p struct {
		Detail string
		Errors []struct{ Message, Location string }
	}
	text := res.Status
	if json.Unmarshal(data, &p) == nil && p.Detail != "" {
		text = p.Detail
		for _, e := range p.Errors {
			if !strings.Contains(text, e.Message) {
				text += "; " + e.Location + ": " + e.Message
			}
		}
	}
	err := fmt.Errorf("%s", oneLine(text))
	if res.StatusCode == http.StatusUnauthorized {
		err = fmt.Errorf("%w; this command takes the token from $%s or --token-file", err, envToken)
	}
	if res.StatusCode == http.StatusBadRequest || res.StatusCode == http.StatusUnprocessableEntity {
		return &usageError{err}
	}
	return err
}

// oneLine keeps text from elsewhere from breaking out of its line or steering
// the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}
