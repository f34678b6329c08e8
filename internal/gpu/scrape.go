package gpu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// Bounds of a scrape.
const (
	MaxScrapeBytes       = 64 << 20
	DefaultScrapeTimeout = 5 * time.Second
)

// ErrTooLarge: the exporter's answer is longer than [MaxScrapeBytes].
var ErrTooLarge = errors.New("answer longer than the bound")

// ScrapeOptions says what to scrape and what to assume where the exporter is
// silent.
type ScrapeOptions struct {
	URL     string        // of the metrics page; http or https
	Client  *http.Client  // nil = a client of its own
	Timeout time.Duration // of one scrape; 0 = DefaultScrapeTimeout

	// Node is used for readings without a host name label; empty = the host of
	// the URL.
	Node string
	// Instance and Project are who holds the units that have no owner label.
	// Empty = nobody: they count as free capacity.
	Instance string
	Project  string
	// Labels are put on every reading.
	Labels schema.Labels
}

func (o *ScrapeOptions) validate() (*url.URL, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("gpu: scrape URL cannot be parsed")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("gpu: scrape URL %q is not http://host/path", u.Redacted())
	case o.Timeout < 0:
		return nil, fmt.Errorf("gpu: scrape timeout %s is negative", o.Timeout)
	}
	return u, nil
}

// Scrape reads an exporter's metrics page. It understands dcgm-exporter in the
// spellings before and since DCGM 4.6, and nvidia_gpu_exporter.
//
// Safe for concurrent use.
type Scrape struct {
	url      string
	shown    string // without the password
	client   *http.Client
	timeout  time.Duration
	maxBytes int64
	defaults Defaults

	mu            sync.Mutex
	rejected      map[string]uint64
	disagreements uint64
}

// NewScrape checks the options; it does not connect.
func NewScrape(o ScrapeOptions) (*Scrape, error) {
	u, err := o.validate()
	if err != nil {
		return nil, err
	}
	labels := slices.Clone(o.Labels)
	labels.Sort()
	return &Scrape{
		url:     o.URL,
		shown:   u.Redacted(),
		client:  cmp.Or(o.Client, &http.Client{}),
		timeout: cmp.Or(o.Timeout, DefaultScrapeTimeout), maxBytes: MaxScrapeBytes,
		defaults: Defaults{
			Node: cmp.Or(o.Node, u.Hostname()), Instance: o.Instance, Project: o.Project, Labels: labels,
		},
		rejected: map[string]uint64{},
	}, nil
}

// Read scrapes once. An error means that nothing is known about any unit at this
// instant; a unit that is merely unreadable is a reading with a reason. Lines
// that cannot be used are skipped and counted in [Scrape.Rejected].
func (s *Scrape) Read(ctx context.Context) ([]schema.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	body, err := s.fetch(ctx)
	if err != nil {
		return nil, fmt.Errorf("gpu: scrape %s: %w", s.shown, err)
	}
	rejected := map[string]uint64{}
	readings, disagree, err := read(body, &s.defaults, func(reason string) { rejected[reason]++ })
	s.mu.Lock()
	for reason, n := range rejected {
		s.rejected[reason] += n
	}
	s.disagreements += disagree
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("gpu: scrape %s: %w", s.shown, err)
	}
	return readings, nil
}

func (s *Scrape) fetch(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4;q=1,*/*;q=0.1")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %s", resp.Status)
	}
	var body bytes.Buffer
	if _, err := io.Copy(&body, io.LimitReader(resp.Body, s.maxBytes+1)); err != nil {
		return nil, err
	}
	if int64(body.Len()) > s.maxBytes {
		return nil, fmt.Errorf("%w of %d bytes", ErrTooLarge, s.maxBytes)
	}
	return body.Bytes(), nil
}

// Rejected counts the lines skipped since the start, by reason.
func (s *Scrape) Rejected() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.rejected)
}

// Disagreements counts the readings in which one compute signal was about zero
// and another above 20%. The higher one was taken; the lower one's source needs
// a look.
func (s *Scrape) Disagreements() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disagreements
}
