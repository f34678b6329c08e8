package soak_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestSoak storms and compares, again and again: in a storm several producers
// publish a round of the load while faults happen; then everybody is started, all
// that was published settles, and every figure has to be what the model says.
func TestSoak(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the run after its checks, the second one gets what it
	// is used to.
	context.AfterFunc(ctx, stop)
	defer stop()
	seeds := shortSeeds
	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SEED=%s: %v", text, err)
		}
		seeds = []uint64{seed}
	}
	text := os.Getenv("SOAK")
	if text == "" {
		for _, seed := range seeds {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				(&soak{T: t, seed: seed, weather: short, repeat: fmt.Sprintf("SEED=%d go test ./test/soak", seed)}).run(ctx)
			})
		}
		return
	}
	length, err := time.ParseDuration(text)
	if err != nil || length <= 0 {
		t.Fatalf("SOAK=%s is not a duration such as 10m", text)
	}
	if os.Getenv("SEED") == "" {
		seeds = []uint64{rand.Uint64N(1_000_000)}
	}
	s := &soak{T: t, seed: seeds[0], length: length, weather: long, repeat: fmt.Sprintf("make soak SEED=%d SOAK=%s", seeds[0], text)}
	s.run(ctx)
}

// weather is how rough a round is.
type weather struct {
	storm  time.Duration
	rate   int // distinct events a second, about
	faults int // at most so many a storm
}

var (
	long  = weather{storm: 20 * time.Second, rate: 250, faults: 16}
	short = weather{storm: 4 * time.Second, rate: 100, faults: 6}
	// shortSeeds are those of the run without SOAK. Between them broker, engine,
	// consumer and aggregator die, hang and halt, a disk is full and the clock steps.
	shortSeeds = []uint64{2, 12}
)

// soak is one run.
type soak struct {
	*testing.T
	seed   uint64
	length time.Duration // 0: one storm
	weather
	repeat string // command that does the same again

	p     *pipeline
	check *checker
	count sent
	begin time.Time

	mu      sync.Mutex
	round   int
	counts  map[string]int // of faults
	history []string
}

func (s *soak) run(ctx context.Context) {
	s.begin, s.counts = time.Now(), map[string]int{}
	s.Logf("seed %d; again with: %s", s.seed, s.repeat)
	dir, err := os.MkdirTemp("", "gpumeter-soak-")
	if err != nil {
		s.Fatal(err)
	}
	exporter := httptest.NewServer(http.HandlerFunc(exportMetrics))
	defer exporter.Close()
	s.p, err = newPipeline(dir, exporter.URL)
	if err == nil {
		s.check = &checker{p: s.p, model: newModel(), rnd: draw(s.seed, drawChecks, 0), counts: map[string]int{}}
		stop := s.progress()
		err = s.rounds(ctx)
		stop()
	}
	if err != nil {
		s.Errorf("seed %d, round %d, after %v: %v\n\nagain with: %s\nfaults so far:\n%s\ndata and logs: %s", s.seed, s.round,
			time.Since(s.begin).Round(time.Second), err, s.repeat, strings.Join(s.history, "\n"), dir)
	}
	if err := s.p.close(s.Failed()); err != nil {
		s.Error(err)
	}
	if s.check != nil {
		s.summary()
	}
}

// rounds storms until the time is over, or somebody asks to end.
func (s *soak) rounds(ctx context.Context) error {
	g := &generator{seed: s.seed, sequences: map[string]uint64{}}
	for round := 0; ; round++ {
		s.mu.Lock()
		s.round = round
		s.mu.Unlock()
		if err := s.oneRound(g, round); err != nil {
			return err
		}
		if ctx.Err() != nil || time.Since(s.begin) >= s.length {
			return s.check.final(context.Background(), round)
		}
	}
}

// oneRound storms, waits for the calm, and checks. Once it has begun it goes to its
// end, because half a storm can be compared with nothing.
func (s *soak) oneRound(g *generator, number int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := s.p.startAll(agents...); err != nil {
		return err
	}
	r := g.next(number, s.weather)
	s.check.model.publish(r)
	s.check.round = number
	plan := planFaults(s.seed, number, s.weather)
	s.Logf("round %d: %d events, %d of them contradicted, %d corrections, %d lease events, %d shipments, %d faults",
		number, len(r.events), r.conflicts, len(r.corrections), len(r.leases), len(r.shipments), len(plan))

	errs := make([]error, 4)
	var storm, watch sync.WaitGroup
	storm.Go(func() { errs[0] = s.p.send(ctx, r, &s.count) })
	storm.Go(func() { errs[1] = s.p.storm(plan, s.happened, s.check.clockSteps) })
	storm.Go(func() { errs[3] = s.p.sendFuture(ctx, number, &s.count) })
	watching, calm := context.WithCancel(ctx)
	watch.Go(func() { errs[2] = s.watch(watching, cancel) })
	storm.Wait()
	calm()
	watch.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("during the storm: %w", err)
	}
	if err := s.calm(ctx); err != nil {
		return err
	}
	if err := s.check.settled(ctx, number); err != nil {
		return fmt.Errorf("after the storm: %w", err)
	}
	return nil
}

// watch checks every few seconds what must hold at any time. It ends the storm at
// once when something does not.
func (s *soak) watch(ctx context.Context, end func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
		if err := s.check.during(ctx); err != nil {
			end()
			return err
		}
	}
}

// calm waits until all is stored and computed. Everybody has to be there: who was
// killed was started again, and nobody ends by himself. Agents stop for that long,
// because they never run out of something to send.
func (s *soak) calm(ctx context.Context) error {
	for _, name := range sortedKeys(s.p.parts) {
		if part := s.p.parts[name]; !part.Alive() {
			return fmt.Errorf("%s ended, and nobody killed it:\n%s", name, part.Said())
		}
	}
	for _, name := range agents {
		if err := s.p.parts[name].Stop(); err != nil {
			return err
		}
	}
	if err := s.p.panicked(); err != nil {
		return err
	}
	return s.p.settled(ctx)
}

func (s *soak) happened(f fault, note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := f.kind
	if note != "" {
		kind += ", " + note
		note = ": " + note
	}
	s.counts[kind]++
	line := fmt.Sprintf("round %d %v%s, over at %.1fs of the run", s.round, f, note, time.Since(s.begin).Seconds())
	s.history = append(s.history, line)
	if len(s.history) > maxHistory {
		s.history = s.history[len(s.history)-maxHistory:]
	}
	s.Log(line)
}

// maxHistory bounds the faults that are told of a failed run.
const maxHistory = 200

// progress prints a line every ten seconds until it is stopped.
func (s *soak) progress() (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-time.After(10 * time.Second):
			}
			behind := "unknown"
			if l, err := s.p.lag(context.Background()); err == nil {
				behind = fmt.Sprintf("%d+%d messages, %d minutes, %d hours, %d held", l.Waiting, l.Unsettled, l.Minutes, l.Hours, l.Held)
			}
			s.Logf("%v: %s; behind: %s", time.Since(s.begin).Round(time.Second), s.load(), behind)
		}
	}()
	return func() { close(end); <-done }
}

func (s *soak) load() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d events in %d messages, %d offered again; faults: %s", s.count.events.Load(), s.count.messages.Load(), s.count.retries.Load(), countsText(s.counts))
}

func (s *soak) summary() {
	c := s.check
	s.Logf("seed %d, %v, %d rounds: %d distinct usage events, %d conflicts, %d corrections, %d lease events, %d held; published as %s; checks: %s", s.seed, time.Since(s.begin).Round(time.Second),
		s.round+1, c.model.events, c.model.conflicts, c.model.corrections, c.model.leaseEvents, (s.round+1)*futureEvents, s.load(), countsText(c.counts))
}

func countsText(m map[string]int) string {
	keys := slices.Sorted(maps.Keys(m))
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%d %s", m[k], k)
	}
	return strings.Join(keys, ", ")
}

// exportMetrics shows what dcgm-exporter shows of three units whose utilization
// and energy change all the time.
func exportMetrics(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	for i := range int64(3) {
		labels := fmt.Sprintf(`{gpu="%d",UUID="GPU-00000000-0000-0000-0000-00000000000%d",device="nvidia%d",modelName="H100",Hostname="node-1"}`, i, i, i)
		fmt.Fprintf(w, "DCGM_FI_DEV_GPU_UTIL%s %d\n", labels, now.Unix()*(i+1)*7%101)
		fmt.Fprintf(w, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION%s %d\n", labels, now.UnixMilli()*(300+i))
	}
}
