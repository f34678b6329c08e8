package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/gpumeter/gpumeter/schema"
	"github.com/gpumeter/gpumeter/web"
	"github.com/spf13/cobra"
)

const (
	batchEvents = 1000
	// flushAfter bounds how long an event of a slow pipe waits for others.
	flushAfter = time.Second
	// afterInterrupt is what a request on its way gets to be answered.
	afterInterrupt = 10 * time.Second
	firstPause     = 200 * time.Millisecond
	longestPause   = 5 * time.Second
)

func ingestCommand() *cobra.Command {
	var f serverFlags
	var retryFor time.Duration
	cmd := &cobra.Command{
		Use:   "ingest FILE|-",
		Short: "Publish events from a file of JSON Lines",
		Long: "Publishes CloudEvents, one JSON object a line, and waits until the stream has each of them on disk.\n" +
			"Prints {\"accepted\":n,\"duplicate\":n,\"rejected\":n}, and for every rejected line its number and the reason.\n" +
			"To run it again is harmless: an event counts once. Exits with 1 when a line was rejected or not sent.",
		Example: "  gpumeter ingest events.jsonl\n  zcat events.jsonl.gz | gpumeter ingest -",
		Args:    args(cobra.ExactArgs(1)),
	}
	f.add(cmd)
	cmd.Flags().DurationVar(&retryFor, "retry-for", 2*time.Minute, "how long to offer events again that the server does not take")
	cmd.RunE = func(c *cobra.Command, files []string) error {
		in, size, err := openInput(c.InOrStdin(), files[0])
		if err != nil {
			return err
		}
		defer in.Close()
		server, err := f.client(c.Context())
		if err != nil {
			return err
		}
		ing := &ingester{
			client: server, progress: newProgress(c.ErrOrStderr(), size, time.Now), retryFor: retryFor,
			now: time.Now, pause: pause,
		}
		err = ing.run(c.Context(), in)
		ing.progress.clear()
		if writeErr := json.NewEncoder(c.OutOrStdout()).Encode(ing.counts); err == nil {
			err = writeErr
		}
		if err == nil && ing.counts.Rejected > 0 {
			return errReported
		}
		return err
	}
	return cmd
}

// openInput opens the input and returns its size, 0 when it has no known end.
func openInput(stdin io.Reader, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(stdin), 0, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	if !info.Mode().IsRegular() {
		return f, 0, nil
	}
	return f, info.Size(), nil
}

// pause waits, or returns early when the context ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ingester sends the lines of an input in order, one batch at a time: of two
// lines that contradict each other, the one that stands first is to count.
type ingester struct {
	client   *client
	progress *progress
	retryFor time.Duration
	now      func() time.Time
	pause    func(context.Context, time.Duration) error

	batch      []inputLine
	batchBytes int
	sent       int // number of the last line that was settled
	counts     struct {
		Accepted  int `json:"accepted"`
		Duplicate int `json:"duplicate"`
		Rejected  int `json:"rejected"`
	}
}

// run sends everything that can be sent. It returns an error when lines were
// left unsent; what was acknowledged until then is counted.
func (i *ingester) run(ctx context.Context, in io.Reader) error {
	readCtx, stop := context.WithCancel(ctx)
	defer stop()
	lines := readLines(readCtx, in)
	flush := time.NewTimer(flushAfter)
	defer flush.Stop()
	for {
		select {
		case <-ctx.Done():
			return i.stopped(ctx.Err())
		case <-flush.C:
			if err := i.flush(ctx); err != nil {
				return i.stopped(err)
			}
		case line, ok := <-lines:
			if !ok {
				if err := i.flush(ctx); err != nil {
					return i.stopped(err)
				}
				return nil
			}
			if line.err != nil {
				return i.stopped(errors.Join(i.flush(ctx), line.err))
			}
			if err := i.take(ctx, line); err != nil {
				return i.stopped(err)
			}
		}
		if len(i.batch) <= 1 {
			flush.Reset(flushAfter)
		}
	}
}

func (i *ingester) stopped(err error) error {
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	return fmt.Errorf("stopped: %w; lines after %d were not acknowledged; to run it again is harmless", err, i.sent)
}

// take checks a line here, where its number is known and the answer is quick,
// and puts it into the batch.
func (i *ingester) take(ctx context.Context, line inputLine) error {
	i.progress.add(line.bytes)
	if line.tooLong {
		i.reject(line.number, fmt.Sprintf("%s: longer than %d bytes", schema.KindTooLarge, schema.MaxMessageBytes))
		return nil
	}
	if _, err := schema.DecodeEvent(line.raw); err != nil {
		i.reject(line.number, err.Error())
		return nil
	}
	// Brackets and commas around the lines count too.
	if i.batchBytes+len(line.raw)+len(i.batch)+2 > schema.MaxMessageBytes {
		if err := i.flush(ctx); err != nil {
			return err
		}
	}
	i.batch = append(i.batch, line)
	i.batchBytes += len(line.raw)
	if len(i.batch) >= batchEvents {
		return i.flush(ctx)
	}
	return nil
}

func (i *ingester) reject(number int, reason string) {
	i.counts.Rejected++
	i.progress.say("line %d: %s", number, oneLine(reason))
}

// flush offers the batch until every line of it is settled. What the stream did
// not take is offered again as it is, so that it counts once whatever happened.
func (i *ingester) flush(ctx context.Context) error {
	deadline := i.now().Add(i.retryFor)
	for wait := firstPause; len(i.batch) > 0; wait = min(2*wait, longestPause) {
		err := i.offer(ctx)
		switch {
		case ctx.Err() != nil && len(i.batch) > 0:
			return ctx.Err()
		case err == nil:
			continue
		case !errors.Is(err, errTryAgain):
			return err
		case !i.now().Add(wait).Before(deadline):
			return fmt.Errorf("the server did not take the events for %s: %w", i.retryFor, err)
		}
		if wait == firstPause {
			i.progress.say("waiting: %v", err)
		}
		if err := i.pause(ctx, wait); err != nil {
			return err
		}
	}
	i.batchBytes = 0
	return nil
}

// errTryAgain marks an error after which the same events are offered again.
var errTryAgain = errors.New("trying again")

// offer sends the batch once and keeps in it what has to be offered again.
func (i *ingester) offer(ctx context.Context) error {
	// An interrupt does not tear a request off: the server would finish it and
	// nobody would hear what became of its events.
	reqCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	release := context.AfterFunc(ctx, func() { time.AfterFunc(afterInterrupt, cancel) })
	defer release()
	contentType, body := i.body()
	res, err := i.client.send(reqCtx, http.MethodPost, "/api/v1/events", nil, contentType, body)
	if err != nil {
		return fmt.Errorf("%w: %w", errTryAgain, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("%w: %w", errTryAgain, err)
	}
	var answer web.EventsProblem
	if json.Unmarshal(data, &answer) == nil && len(answer.Results) == len(i.batch) {
		return i.settle(&answer.EventsResult)
	}
	res.Body = io.NopCloser(bytes.NewReader(data))
	problem := problemOf(res)
	if res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500 {
		return fmt.Errorf("%w: %w", errTryAgain, problem)
	}
	return fmt.Errorf("%s: %s: %s", i.client.base, res.Status, problem.Error())
}

// body writes the batch as the server reads it. One event goes alone, because
// in brackets the longest allowed one would be too long.
func (i *ingester) body() (contentType string, body []byte) {
	if len(i.batch) == 1 {
		return schema.ContentTypeEvent, i.batch[0].raw
	}
	body = append(make([]byte, 0, i.batchBytes+len(i.batch)+2), '[')
	for n := range i.batch {
		if n > 0 {
			body = append(body, ',')
		}
		body = append(body, i.batch[n].raw...)
	}
	return schema.ContentTypeBatch, append(body, ']')
}

// settle enters the outcome of every line and keeps those that the stream did
// not take.
func (i *ingester) settle(result *web.EventsResult) error {
	var again []inputLine
	reason := ""
	for n, r := range result.Results {
		line := i.batch[n]
		switch r.Status {
		case web.Accepted:
			i.counts.Accepted++
		case web.Duplicate:
			i.counts.Duplicate++
		case web.Rejected:
			i.reject(line.number, r.Reason)
		default:
			again, reason = append(again, line), r.Reason
			continue
		}
		if len(again) == 0 {
			i.sent = line.number
		}
	}
	i.batch = again
	if len(again) > 0 {
		return fmt.Errorf("%w: %s", errTryAgain, oneLine(reason))
	}
	return nil
}
