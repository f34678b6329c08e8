package producer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpumeter/gpumeter/schema"
)

// runFor runs the producer for a while and stops it.
func runFor(t testing.TB, p *Producer, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func covered(events []schema.Usage) (sum time.Duration) {
	for i := range events {
		sum += time.Duration(events[i].LengthMs()) * time.Millisecond
	}
	return sum
}

// A stream that is away for minutes or for more than a day gets everything
// afterwards, in order; whether attempts failed outright or only their answers
// were lost.
func TestOutages(t *testing.T) {
	for _, outage := range []time.Duration{10 * time.Minute, 26 * time.Hour} {
		for _, stored := range []bool{false, true} {
			if stored && outage > time.Hour {
				continue // the same as the short one, ten seconds of computing later
			}
			t.Run(fmt.Sprint(outage, " stored=", stored), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begin := time.Now()
					stream := &fakeStream{}
					stream.fault = func([]schema.Message) (error, bool) {
						if since := time.Since(begin); since > 5*time.Minute && since < 5*time.Minute+outage {
							return errors.New("no responders"), stored
						}
						return nil, false
					}
					const units = 1
					p := newProducer(t, Options{Source: boards{n: units}, Stream: stream})
					total := outage + 20*time.Minute
					time.AfterFunc(outage, func() {
						if err := p.Ready(); err == nil || !strings.Contains(err.Error(), "no responders") {
							t.Errorf("during the outage: %v", err)
						}
					})
					time.AfterFunc(outage+15*time.Minute, func() {
						if err := p.Ready(); err != nil {
							t.Errorf("after the outage: %v", err)
						}
					})
					runFor(t, p, total+5*time.Second)
					events := stream.check(t)
					if got, want := covered(events), units*(total-10*time.Second); got != want {
						t.Errorf("%s of unit time arrived, want %s", got, want)
					}
					if left := p.o.Spool.Stats(); left.Events != 0 || left.Bytes != 0 {
						t.Errorf("left in the spool: %+v", left)
					}
					if stored != (stream.repeats > 0) {
						t.Errorf("%d repeats", stream.repeats)
					}
					t.Logf("%d events, %d attempts, %d repeats", len(events), stream.attempts, stream.repeats)
				})
			})
		}
	}
}

// A stop ends the open minute, sends what it can and leaves the rest for the next
// start, which goes on where this one ended.
func TestStopAndStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "spool")
		stream, down := &fakeStream{}, new(atomic.Bool)
		down.Store(true)
		stream.fault = func([]schema.Message) (error, bool) {
			if down.Load() {
				return errors.New("down"), false
			}
			return nil, false
		}
		spool := openSpool(t, SpoolOptions{Path: path})
		p := newProducer(t, Options{Source: present{boards{n: 1}}, Stream: stream, Spool: spool})
		begin := time.Now()
		runFor(t, p, 95*time.Second)
		if took := time.Since(begin); took != 95*time.Second+DefaultFlushWithin {
			t.Errorf("the stop took until %s", took)
		}
		equal(t, "left", fmt.Sprint(spool.Stats().Events), "2")
		must(t, spool.Close())

		down.Store(false)
		spool = openSpool(t, SpoolOptions{Path: path})
		p = newProducer(t, Options{Source: present{boards{n: 1}}, Stream: stream, Spool: spool})
		runFor(t, p, 45*time.Second) // 100 s to 145 s
		// A second run of the same producer must not go on with the ended event.
		runFor(t, p, 40*time.Second)
		events := stream.check(t)
		if got := covered(events); got != 170*time.Second {
			t.Errorf("covered %s", got)
		}
		end := events[0].StartMs
		for i := range events {
			if events[i].StartMs != end {
				t.Errorf("event %d begins at %s, the one before ended at %s", i, schema.FormatTime(events[i].StartMs), schema.FormatTime(end))
			}
			end = events[i].EndMs
		}
	})
}

// A full spool stops the sampling and says so. Nothing that was measured is
// dropped, and the time that passed is in no event.
func TestFullSpoolBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, down := &fakeStream{}, new(atomic.Bool)
		down.Store(true)
		stream.fault = func([]schema.Message) (error, bool) {
			if down.Load() {
				return errors.New("down"), false
			}
			return nil, false
		}
		spool := openSpool(t, SpoolOptions{MaxEvents: 4})
		p := newProducer(t, Options{Source: present{boards{n: 1}}, Stream: stream, Spool: spool})
		time.AfterFunc(10*time.Minute, func() {
			if err := p.Ready(); !errors.Is(err, ErrSpoolFull) {
				t.Errorf("blocked: %v", err)
			}
			if events := spool.Stats().Events; events != 4 {
				t.Errorf("%d events in the spool", events)
			}
			down.Store(false)
		})
		time.AfterFunc(12*time.Minute, func() {
			if err := p.Ready(); err != nil {
				t.Errorf("recovered: %v", err)
			}
		})
		runFor(t, p, 15*time.Minute)
		events := stream.check(t)
		var holes []int64
		for i := 1; i < len(events); i++ {
			if hole := events[i].StartMs - events[i-1].EndMs; hole != 0 {
				holes = append(holes, hole)
			}
		}
		// From 4:10, the first tick that did not fit, to the first after 10:00.
		if fmt.Sprint(holes) != "[360000]" {
			t.Errorf("holes of %v ms", holes)
		}
		if got := covered(events); got < 8*time.Minute+40*time.Second || got > 9*time.Minute {
			t.Errorf("covered %s", got)
		}
	})
}

// What the stream refuses for good is found by halving and set aside; everything
// else gets through.
func TestRefusedForGood(t *testing.T) {
	for name, refusal := range map[string]error{
		"schema error": &schema.Error{Kind: schema.KindTooLarge, Msg: "message above the server's limit"},
		"permanent":    permanentError{},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stream := &fakeStream{}
				stream.refuse = func(events []schema.Usage) error {
					if len(events) > 8 {
						return refusal // a limit on size
					}
					for i := range events {
						if events[i].Unit == "x" && events[i].StartMs == testDay+7*60_000 {
							return fmt.Errorf("wrapped: %w", refusal) // one event that can never pass
						}
					}
					return nil
				}
				spool := openSpool(t, SpoolOptions{})
				var events []schema.Usage
				for i := range 100 {
					events = append(events, usage("agent/test", "x", i))
				}
				must(t, spool.Append(events))
				p := newProducer(t, Options{Source: present{boards{n: 0}}, Stream: stream, Spool: spool})
				runFor(t, p, time.Minute)
				asides, err := spool.Asides()
				must(t, err)
				if len(asides) != 1 || asides[0].Event.Sequence != 8 || len(stream.events) != 99 || spool.Stats().Events != 0 {
					t.Errorf("%d set aside, %d arrived, %+v left", len(asides), len(stream.events), spool.Stats())
				}
			})
		})
	}
}

type permanentError struct{}

func (permanentError) Error() string   { return "never" }
func (permanentError) Permanent() bool { return true }

// Some receipts good and some not: what lies behind the first bad one is sent
// again, nothing is lost.
func TestPartialReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, tries := &fakeStream{}, 0
		stream.refuse = func(events []schema.Usage) error {
			if tries++; events[0].Source == "old" && tries < 6 {
				return errors.New("timeout")
			}
			return nil
		}
		spool := openSpool(t, SpoolOptions{})
		must(t, spool.Append([]schema.Usage{usage("agent/test", "x", 1), usage("old", "x", 1), usage("agent/test", "x", 2)}))
		p := newProducer(t, Options{Source: present{boards{n: 0}}, Stream: stream, Spool: spool})
		runFor(t, p, time.Minute)
		if len(stream.events) != 3 || spool.Stats().Events != 0 || len(stream.faults) != 0 {
			t.Errorf("%d arrived, %+v left, %v", len(stream.events), spool.Stats(), stream.faults)
		}
	})
}

// A refusal for good of one source's message beside a good one of another.
func TestPartialRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := &fakeStream{refuse: func(events []schema.Usage) error {
			if events[0].Source == "old" {
				return permanentError{}
			}
			return nil
		}}
		spool := openSpool(t, SpoolOptions{})
		must(t, spool.Append([]schema.Usage{usage("agent/test", "x", 1), usage("old", "x", 1), usage("old", "x", 2), usage("agent/test", "x", 2)}))
		p := newProducer(t, Options{Source: present{boards{n: 0}}, Stream: stream, Spool: spool})
		runFor(t, p, time.Minute)
		if stats := spool.Stats(); len(stream.events) != 2 || stats.Events != 0 || stats.SetAside != 2 {
			t.Errorf("%d arrived, %+v left", len(stream.events), stats)
		}
	})
}

// The same batch offered again has the same message id, so that the stream can
// tell.
func TestARetryHasTheSameMessageID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		stream := &fakeStream{fault: func(m []schema.Message) (error, bool) {
			ids = append(ids, m[0].ID)
			if len(ids) < 4 {
				return errors.New("timeout"), true
			}
			return nil, false
		}}
		spool := openSpool(t, SpoolOptions{})
		must(t, spool.Append([]schema.Usage{usage("agent/test", "x", 1)}))
		p := newProducer(t, Options{Source: present{boards{n: 0}}, Stream: stream, Spool: spool})
		// An event that arrives meanwhile waits for the next batch.
		time.AfterFunc(150*time.Millisecond, func() { must(t, spool.Append([]schema.Usage{usage("agent/test", "x", 2)})) })
		runFor(t, p, 10*time.Second)
		if len(ids) != 5 || ids[0] != ids[1] || ids[0] != ids[3] || ids[0] == ids[4] || len(stream.events) != 2 {
			t.Errorf("%v", ids)
		}
	})
}

// A source that fails makes unknown time and is reported; one that is slower
// than its period is cut off.
func TestFailingSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		stream := &fakeStream{}
		registry := prometheus.NewPedanticRegistry()
		p := newProducer(t, Options{Stream: stream, Registerer: registry, Source: present{boards{n: 1, fail: func() error {
			if since := time.Since(begin); since >= 65*time.Second && since < 125*time.Second {
				return errors.New("connection refused")
			}
			return nil
		}}}})
		time.AfterFunc(75*time.Second, func() {
			if err := p.Ready(); err != nil {
				t.Errorf("after one failure: %v", err)
			}
		})
		time.AfterFunc(115*time.Second, func() {
			if err := p.Ready(); err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("after many failures: %v", err)
			}
		})
		runFor(t, p, 185*time.Second)
		events := stream.check(t)
		var unknown int64
		for i := range events {
			_, _, u := events[i].Split(DefaultThreshold)
			unknown += u
		}
		if unknown != 60_000 || covered(events) != 170*time.Second {
			t.Errorf("%d ms unknown of %s", unknown, covered(events))
		}
		want := `
# HELP gpumeter_producer_events_sent_total Usage events that the stream confirmed.
# TYPE gpumeter_producer_events_sent_total counter
gpumeter_producer_events_sent_total 3
# HELP gpumeter_producer_samples_failed_total Ticks at which the source could not be read; their time is unknown.
# TYPE gpumeter_producer_samples_failed_total counter
gpumeter_producer_samples_failed_total 6
# HELP gpumeter_producer_spool_events Usage events in the spool.
# TYPE gpumeter_producer_spool_events gauge
gpumeter_producer_spool_events 0
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "gpumeter_producer_events_sent_total",
			"gpumeter_producer_samples_failed_total", "gpumeter_producer_spool_events"); err != nil {
			t.Error(err)
		}
	})
}

type hangingSource struct{}

func (hangingSource) Read(ctx context.Context) ([]schema.Reading, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hangingSource) Rejected() map[string]uint64 { return map[string]uint64{"unreadable": 7} }

func TestHangingSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		p := newProducer(t, Options{Source: hangingSource{}, Stream: &fakeStream{}, Registerer: registry})
		runFor(t, p, 95*time.Second)
		if got := testutil.ToFloat64(p.metrics.samplesFailed); got < 4 {
			t.Errorf("%v ticks failed", got)
		}
		if err := p.Ready(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if n, err := testutil.GatherAndCount(registry, "gpumeter_producer_lines_rejected_total"); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// The clock is set back: nothing is metered twice, and the producer says why it
// waits.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spool := openSpool(t, SpoolOptions{})
		ahead := time.Now().Add(time.Minute).Truncate(10 * time.Second)
		must(t, spool.Advance("agent/test", ahead.UnixMilli(), nil, nil))
		stream := &fakeStream{}
		p := newProducer(t, Options{Source: present{boards{n: 1}}, Stream: stream, Spool: spool})
		time.AfterFunc(45*time.Second, func() {
			if err := p.Ready(); !errors.Is(err, ErrClockBack) {
				t.Errorf("%v", err)
			}
		})
		runFor(t, p, 125*time.Second)
		events := stream.check(t)
		if len(events) == 0 || events[0].StartMs != ahead.UnixMilli() || p.Ready() != nil {
			t.Errorf("%+v, %v", events, p.Ready())
		}
	})
}

// Over a real connection: an HTTP source that comes and goes.
func TestRealSourceOverHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer server.Close()
	stream := &fakeStream{}
	p := newProducer(t, Options{Source: httpSource(server.URL), Stream: stream, SampleEvery: 10 * time.Millisecond, EmitEvery: 50 * time.Millisecond})
	runFor(t, p, 400*time.Millisecond)
	events := stream.check(t)
	if got := covered(events); got < 150*time.Millisecond {
		t.Errorf("only %s arrived", got)
	}
}

type httpSource string

func (u httpSource) Read(ctx context.Context) ([]schema.Reading, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(u), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	return boards{n: 1}.ReadAt(time.Now()), resp.Body.Close()
}

func TestOptionsAreChecked(t *testing.T) {
	spool := openSpool(t, SpoolOptions{})
	good := Options{SourceName: "s", Source: boards{}, Stream: &fakeStream{}, Spool: spool}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"source": func(o *Options) { o.Source = nil }, "stream": func(o *Options) { o.Stream = nil }, "spool": func(o *Options) { o.Spool = nil },
		"name": func(o *Options) { o.SourceName = "" }, "period": func(o *Options) { o.EmitEvery = 7 * time.Second },
		"flush": func(o *Options) { o.FlushWithin = -1 },
	} {
		o := good
		spoil(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
