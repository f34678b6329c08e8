package app

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/audit"
	"github.com/gpumeter/gpumeter/consumer"
	"github.com/gpumeter/gpumeter/internal/engine"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// shifted is the machine's clock, put forward by a test. What was stored before
// keeps its time.
type shifted struct {
	mu    sync.Mutex
	steps []step
}

type step struct {
	real time.Time
	by   time.Duration
}

func (c *shifted) Now() time.Time { return c.At(time.Now()) }

func (c *shifted) At(real time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.steps) - 1; i >= 0; i-- {
		if s := c.steps[i]; !real.Before(s.real) {
			return real.Add(s.by)
		}
	}
	return real
}

func (c *shifted) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.steps); n > 0 {
		d += c.steps[n-1].by
	}
	c.steps = append(c.steps, step{time.Now(), d})
}

// rig is a stream, a consumer, an aggregator and an auditor of one test. Nothing
// of it runs by itself but the consumer.
type rig struct {
	t       testing.TB
	dir     string
	addr    string
	server  *jetstream.Server
	nc      *nats.Conn
	app     *app
	clock   *shifted
	auditor *audit.Auditor
	reader  *jetstream.Reader
	driver  *aggregator.Driver
}

var rigs atomic.Int64

func newRig(t testing.TB, e *engine.Engine) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), clock: &shifted{}}
	r.startBroker()
	r.nc = testkit.Connect(t, r.server)
	if err := jetstream.EnsureStream(t.Context(), r.nc, jetstream.StreamOptions{}); err != nil {
		t.Fatal(err)
	}
	publisher, err := jetstream.NewPublisher(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	db := testkit.DB(t, e, "audit_"+strconv.FormatInt(rigs.Add(1), 10))
	r.app = &app{o: Options{Clock: r.clock, Logger: testkit.Logger(t), Threshold: aggregator.DefaultThreshold}, db: db, nc: r.nc, publisher: publisher}
	if r.auditor, err = r.app.newAuditor(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if r.reader, err = jetstream.NewReader(r.nc, "", r.clock); err != nil {
		t.Fatal(err)
	}
	if r.driver, err = aggregator.NewDriver(aggregator.Options{Store: db, HourEvery: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) startBroker() {
	r.t.Helper()
	s, err := jetstream.StartServer(jetstream.ServerOptions{Dir: r.dir, Listen: r.addr})
	if err != nil {
		r.t.Fatal(err)
	}
	r.server = s
	u, err := url.Parse(s.URL())
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = u.Host
	r.t.Cleanup(s.Stop)
}

// consume runs a consumer until the test or the returned function ends it.
func (r *rig) consume() (stop func()) {
	r.t.Helper()
	sub, err := jetstream.NewSubscription(r.nc, jetstream.SubscribeOptions{
		Clock: r.clock, AckWait: 2 * time.Second, History: &history{db: r.app.db, now: r.clock.Now}, Logger: testkit.Logger(r.t),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := consumer.New(consumer.Options{
		Deliveries: sub.Deliveries(), Marks: r.app.db, MaxAge: 20 * time.Millisecond, NewBatch: func() consumer.Batch { return r.app.db.NewBatch() },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = sub.Run(ctx) })
	running.Go(func() { _ = c.Run(ctx) })
	running.Go(func() { _ = sub.Watch(ctx, 50*time.Millisecond) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	r.t.Cleanup(stop)
	return stop
}

// minute is the n-th event of a source; its number is n + 1.
func minute(source string, n int) schema.Usage {
	from := testkit.At("2026-03-01T10:00:00Z") + int64(n)*schema.MinuteMs
	return minuteAt(source, n, from)
}

func minuteAt(source string, n int, from int64) schema.Usage {
	u := testkit.Usage("GPU-"+source, "i-"+source, schema.FormatTime(from), schema.FormatTime(from+schema.MinuteMs))
	u.Source, u.Sequence = source, uint64(n+1)
	return u
}

func messageOf(u schema.Usage) schema.Message {
	return schema.MessageOf("default", &schema.Event{Usage: &u})
}

func (r *rig) publish(list ...schema.Message) (sequences []uint64) {
	r.t.Helper()
	receipts, err := r.app.publisher.Publish(r.t.Context(), list)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, x := range receipts {
		if x.Err != nil {
			r.t.Fatal(x.Err)
		}
		sequences = append(sequences, x.Sequence)
	}
	return sequences
}

func (r *rig) minutes(source string, numbers ...int) {
	r.t.Helper()
	var list []schema.Message
	for _, n := range numbers {
		list = append(list, messageOf(minute(source, n)))
	}
	r.publish(list...)
}

// settled waits until everything is stored and acknowledged.
func (r *rig) settled() {
	r.t.Helper()
	r.await("everything to be settled", func() error {
		s, err := r.reader.State(r.t.Context())
		if err == nil && s.Floor != s.Last {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
}

func (r *rig) await(what string, f func() error) {
	r.t.Helper()
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("waited for %s: %v", what, err)
		}
	}
}

func (r *rig) pass() {
	r.t.Helper()
	if err := r.auditor.Pass(r.t.Context(), false); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) exec(sql string) {
	r.t.Helper()
	if err := r.app.db.Exec(r.t.Context(), sql); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) drain() {
	r.t.Helper()
	time.Sleep(2 * time.Millisecond) // an hour's mark has to be older than nothing
	if err := r.driver.Drain(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// wantOpen checks which incidents are open, as "kind key".
func (r *rig) wantOpen(want ...string) []schema.Incident {
	r.t.Helper()
	list, err := r.app.db.OpenIncidents(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var got []string
	for _, n := range list {
		got = append(got, n.Kind+" "+n.Key)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		r.t.Fatalf("open incidents:\n%s\nwant:\n%s\n%+v", strings.Join(got, "\n"), strings.Join(want, "\n"), list)
	}
	return list
}

// wantEnded checks that an incident of a kind has ended, and how.
func (r *rig) wantEnded(kind, detail string) {
	r.t.Helper()
	list, err := r.app.db.PastIncidents(r.t.Context(), 0)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range list {
		if n.Kind == kind && strings.Contains(n.Detail, detail) && n.OpenedAtMs > 0 && n.ClosedAtMs >= n.OpenedAtMs {
			return
		}
	}
	r.t.Errorf("no %s has ended with %q: %+v", kind, detail, list)
}

func (r *rig) epoch() uint64 {
	r.t.Helper()
	s, err := r.reader.State(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Epoch
}

// distinct counts the identities that are stored.
func (r *rig) distinct() int64 {
	r.t.Helper()
	events, _, err := r.app.db.Events(r.t.Context(), schema.EventQuery{Tenant: "default", FromMs: schema.MinTimeMs, ToMs: schema.MaxTimeMs, Limit: 10_000})
	if err != nil {
		r.t.Fatal(err)
	}
	var n int64
	for _, e := range events {
		if e.Counted {
			n++
		}
	}
	return n
}

func TestAuditor(t *testing.T) {
	e := testkit.Engine(t)
	for name, f := range map[string]func(*testing.T, *rig){
		"complete": auditComplete, "held": auditHeld, "stream hole": auditStreamHole, "stream hole after the proof": auditLateHole, "part of a message": auditPart,
		"source gap": auditSourceGap, "silent": auditSilent, "conflict": auditConflict, "derived": auditDerived,
		"part of a gap": auditPartOfGap, "lost to age": auditLost, "hole of an old epoch": auditOldHole, "storage": auditStorage, "meanwhile": auditMeanwhile,
		"tail lost, floor above": auditTailFloorAbove, "tail lost, sequences used again": auditTailReused,
		"tail lost while nobody ran": auditTailUnseen, "tail lost, not all is read": auditTailUnread, "closed by hand": auditClosedByHand, "two auditors": auditTwo,
	} {
		t.Run(name, func(t *testing.T) { f(t, newRig(t, e)) })
	}
}

// Whatever comes, nothing is an incident as long as all of it is stored or
// quarantined: duplicates whose rows were merged away, garbage, an empty batch.
func auditComplete(t *testing.T, r *rig) {
	r.consume()
	r.minutes("agent/a", 0, 1, 2)
	again := messageOf(minute("agent/a", 1))
	again.ID = "another"
	bad := messageOf(minute("agent/a", 3))
	bad.Payload = []byte(strings.Replace(string(bad.Payload), `"unit":"GPU-agent/a"`, `"unit":""`, 1))
	empty := schema.Message{Subject: bad.Subject, ID: "empty", ContentType: schema.ContentTypeBatch, Payload: []byte("[]")}
	garbage := schema.Message{Subject: "gpumeter.v1.x", ID: "garbage", Payload: []byte("{")}
	r.publish(again, bad, empty, garbage)
	r.minutes("agent/a", 4)
	r.settled()
	r.exec("OPTIMIZE TABLE raw_usage FINAL") // the copy leaves no row
	r.clock.forward(time.Hour)
	for range 2 {
		r.pass()
		r.wantOpen()
	}
	if v := r.auditor.Status().Verified; v != 8 {
		t.Errorf("verified up to %d, want 8", v)
	}
	// The proof is a cache.
	r.exec("TRUNCATE TABLE audit_stream")
	r.exec("TRUNCATE TABLE audit_source")
	r.pass()
	r.wantOpen()
	if v := r.auditor.Status().Verified; v != 8 {
		t.Errorf("verified up to %d without a proof, want 8", v)
	}
}

// An event that waits for its time is in quarantine and nowhere else, and that is
// where it has to be, however the auditor comes to look at its message.
func auditHeld(t *testing.T, r *rig) {
	r.consume()
	ahead := minuteAt("agent/ahead", 1, r.clock.Now().UnixMilli()+schema.HourMs)
	r.publish(messageOf(ahead))
	r.settled()
	for range 3 {
		r.pass() // samples read every message back
		r.wantOpen()
	}
	r.exec("TRUNCATE TABLE quarantine")
	r.pass()
	r.wantOpen(r.holeKey("1"))
}

// holeKey is the key of a hole of the rig's stream.
func (r *rig) holeKey(text string) string {
	return fmt.Sprintf("%s %s@%d/%s", schema.IncidentStreamHole, jetstream.StreamName, r.epoch(), text)
}

func auditStreamHole(t *testing.T, r *rig) {
	r.consume()
	r.minutes("agent/a", 0, 1, 2, 3, 4)
	r.settled()
	r.exec("DELETE FROM raw_usage WHERE stream_sequence IN (2, 3) SETTINGS lightweight_deletes_sync = 2")
	r.pass()
	open := r.wantOpen(r.holeKey("2-3"))
	if open[0].Count != 2 {
		t.Errorf("%+v, want 2 messages", open[0])
	}
	if c := r.component(); c.Ready || !strings.Contains(c.Detail, "stream_hole") {
		t.Errorf("readiness with a hole: %+v", c)
	}
	r.pass() // offers them again
	r.settled()
	r.pass()
	r.wantOpen()
	r.wantEnded(schema.IncidentStreamHole, "healed by sequence 6")
	if n := r.distinct(); n != 5 {
		t.Errorf("%d events after healing, want 5", n)
	}
	if c := r.component(); !c.Ready {
		t.Errorf("readiness after healing: %+v", c)
	}
}

// Rows that get lost after their message was proved are found by chance, and
// for sure by a full pass.
func auditLateHole(_ *testing.T, r *rig) {
	r.consume()
	r.minutes("agent/a", 0, 1, 2)
	r.settled()
	r.pass()
	r.exec("DELETE FROM raw_usage WHERE stream_sequence = 2 SETTINGS lightweight_deletes_sync = 2")
	if err := r.auditor.Pass(r.t.Context(), true); err != nil {
		r.t.Fatal(err)
	}
	r.wantOpen(r.holeKey("2"))
}

// What the stream has lost to its age before it was compared, and storage does not
// show, is open until a person has looked: no pass can tell any more.
func auditLost(t *testing.T, r *rig) {
	stop := r.consume()
	r.minutes("agent/a", 0)
	r.settled()
	r.pass()
	r.minutes("agent/a", 1, 2)
	r.settled()
	r.exec("DELETE FROM raw_usage WHERE stream_sequence = 2 SETTINGS lightweight_deletes_sync = 2")
	r.expire()
	for _, full := range []bool{false, false, true} {
		if err := r.auditor.Pass(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		if n := r.wantOpen(r.holeKey("2"))[0]; !strings.Contains(n.Detail, "lost to the stream's age limit") {
			t.Errorf("%+v", n)
		}
	}
	if c := r.component(); c.Ready {
		t.Errorf("readiness with a lost message: %+v", c)
	}
	// Reading all that the stream has once more does not bring it back.
	lost, before := r.holeKey("2"), r.epoch()
	stop()
	r.ahead(10)
	r.consume()
	r.newEpoch(before)
	r.minutes("agent/a", 3)
	r.settled()
	for range 2 {
		r.pass()
		r.wantOpen(lost)
	}
	r.wantEnded(schema.IncidentTailLost, "was read and checked again")
}

// A hole whose message the stream still has is closed by reading everything again.
func auditOldHole(_ *testing.T, r *rig) {
	stop := r.consume()
	r.minutes("agent/a", 0, 1, 2)
	r.settled()
	r.exec("DELETE FROM raw_usage WHERE stream_sequence = 2 SETTINGS lightweight_deletes_sync = 2")
	r.pass()
	hole, before := r.holeKey("2"), r.epoch()
	r.wantOpen(hole)
	stop()
	r.ahead(10)
	r.consume()
	r.newEpoch(before)
	r.minutes("agent/a", 3)
	r.settled()
	r.pass()
	r.wantOpen()
	r.wantEnded(schema.IncidentStreamHole, "read again from its oldest message")
	if n := r.distinct(); n != 4 {
		r.t.Errorf("%d events, want 4", n)
	}
}

// newEpoch waits until the stream has another epoch.
func (r *rig) newEpoch(before uint64) {
	r.t.Helper()
	r.await("a new epoch", func() error {
		if r.epoch() == before {
			return fmt.Errorf("still %d", before)
		}
		return nil
	})
}

// expire makes all messages of the stream older than its age limit for a moment.
func (r *rig) expire() {
	r.t.Helper()
	js, err := natsjs.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	stream, err := js.Stream(r.t.Context(), jetstream.StreamName)
	if err != nil {
		r.t.Fatal(err)
	}
	kept := stream.CachedInfo().Config
	short := kept
	short.MaxAge, short.Duplicates = 100*time.Millisecond, 100*time.Millisecond
	if _, err = js.UpdateStream(r.t.Context(), short); err != nil {
		r.t.Fatal(err)
	}
	r.await("messages to be too old", func() error {
		info, err := stream.Info(r.t.Context())
		if err == nil && info.State.Msgs > 0 {
			err = fmt.Errorf("%d are left", info.State.Msgs)
		}
		return err
	})
	if _, err = js.UpdateStream(r.t.Context(), kept); err != nil {
		r.t.Fatal(err)
	}
}

func auditPart(_ *testing.T, r *rig) {
	r.consume()
	a, b, c := messageOf(minute("agent/a", 0)), messageOf(minute("agent/a", 1)), messageOf(minute("agent/a", 2))
	batch := a
	batch.ContentType = schema.ContentTypeBatch
	batch.Payload = fmt.Appendf(nil, "[%s,%s,%s]", a.Payload, b.Payload, c.Payload)
	r.publish(batch)
	r.settled()
	r.exec("DELETE FROM raw_usage WHERE place = 1 SETTINGS lightweight_deletes_sync = 2")
	r.pass()
	r.wantOpen(r.holeKey("1"))
	r.pass()
	r.settled()
	r.pass()
	r.wantOpen()
	if n := r.distinct(); n != 3 {
		r.t.Errorf("%d events after healing, want 3", n)
	}
}

func auditSourceGap(t *testing.T, r *rig) {
	r.consume()
	r.minutes("agent/a", 10, 11, 15) // 11, 12 and 16: what was before 11 is not missing
	r.minutes("agent/b", 0, 1, 2)
	r.settled()
	r.pass()
	r.wantOpen() // not yet older than the grace
	r.clock.forward(11 * time.Minute)
	r.pass()
	n := r.wantOpen("source_gap agent/a#13")[0]
	if n.Count != 3 || n.Tenant != "default" || n.FromMs != minute("agent/a", 11).StartMs || n.ToMs != minute("agent/a", 15).EndMs {
		t.Errorf("gap %+v", n)
	}
	asOf := r.clock.Now().UnixMilli()
	r.wantGaps(n.FromMs, n.ToMs, 0, 3)
	r.wantGaps(n.ToMs, n.ToMs+schema.HourMs, 0, 0) // another span
	r.wantGaps(n.FromMs, n.ToMs, n.OpenedAtMs-1, 0)
	if c := r.component(); !c.Ready || !strings.Contains(c.Detail, "source_gap") {
		t.Errorf("readiness with a gap: %+v", c)
	}
	time.Sleep(2 * time.Millisecond)
	again, err := r.app.newAuditor(time.Time{}) // a restart
	if err != nil {
		t.Fatal(err)
	}
	r.auditor = again
	r.minutes("agent/a", 12)
	lease := schema.Event{Lease: &schema.Lease{Header: schema.Header{Source: "agent/a", ID: "l1", Sequence: 14}, Instance: "i1", AtMs: minute("agent/a", 13).StartMs, State: "running"}}
	r.publish(schema.MessageOf("default", &lease))
	r.settled()
	r.pass()
	r.wantOpen("source_gap agent/a#15")
	bad := messageOf(minute("agent/a", 14))
	bad.Payload = []byte(strings.Replace(string(bad.Payload), `"unit":"GPU-agent/a"`, `"unit":""`, 1))
	r.publish(bad) // quarantined, so not lost
	r.settled()
	r.pass()
	r.wantOpen()
	r.wantEnded(schema.IncidentSourceGap, "the numbers arrived")
	r.wantGaps(n.FromMs, n.ToMs, 0, 0)
	r.wantGaps(n.FromMs, n.ToMs, asOf, 3)
}

// Numbers that come out of a hole leave the rest of it as old as it was: whichever
// of them come, from either end or the middle, what is missing stays an incident.
func auditPartOfGap(_ *testing.T, r *rig) {
	r.consume()
	r.minutes("agent/a", 0, 8) // 2 to 8 are missing
	r.settled()
	r.clock.forward(11 * time.Minute)
	r.pass()
	r.wantOpen("source_gap agent/a#2")
	for _, step := range []struct {
		number int
		want   []string
	}{
		{8, []string{"source_gap agent/a#2"}},
		{5, []string{"source_gap agent/a#2", "source_gap agent/a#6"}},
		{2, []string{"source_gap agent/a#6", "source_gap agent/a#3"}}, // by when they were opened
		{7, []string{"source_gap agent/a#6", "source_gap agent/a#3"}},
		{4, []string{"source_gap agent/a#6", "source_gap agent/a#3"}},
		{6, []string{"source_gap agent/a#3"}},
		{3, nil},
	} {
		r.minutes("agent/a", step.number-1)
		r.settled()
		time.Sleep(2 * time.Millisecond)
		r.pass()
		r.wantOpen(step.want...)
		// Nor does it matter whether they were learned one after the other.
		r.exec("TRUNCATE TABLE audit_stream")
		r.exec("TRUNCATE TABLE audit_source")
		r.pass()
		r.wantOpen(step.want...)
	}
}

func (r *rig) wantGaps(fromMs, toMs, asOfMs, want int64) {
	r.t.Helper()
	q, err := r.app.db.Quality(r.t.Context(), "default", fromMs, toMs, asOfMs, 10*time.Minute)
	if err != nil || q.Gaps != want || (q.OpenIncidents > 0) != (want > 0) {
		r.t.Errorf("quality %+v, %v, want %d gaps", q, err, want)
	}
}

func auditSilent(t *testing.T, r *rig) {
	r.consume()
	now := schema.Floor(time.Now().UnixMilli(), schema.MinuteMs)
	for n := range 4 {
		u := minuteAt("agent/live", n, now-int64(5-n)*schema.MinuteMs)
		once := minuteAt("import/once", n, now-int64(5000+n)*schema.MinuteMs) // of days ago
		r.publish(messageOf(u), messageOf(once))
	}
	r.settled()
	r.clock.forward(2*time.Minute + 30*time.Second)
	r.pass()
	r.wantOpen()
	r.clock.forward(time.Minute)
	r.pass()
	n := r.wantOpen("silent agent/live")[0]
	if n.ToMs != schema.MaxTimeMs {
		t.Errorf("an open silence ends: %+v", n)
	}
	if c := r.component(); c.Ready {
		t.Errorf("readiness with a silent source: %+v", c)
	}
	r.publish(messageOf(minuteAt("agent/live", 4, now+schema.MinuteMs)))
	r.settled()
	r.clock.forward(time.Second)
	r.pass()
	r.wantOpen()
	r.wantEnded(schema.IncidentSilent, "heard again")
	r.clock.forward(8 * 24 * time.Hour)
	r.pass()
	r.wantOpen() // taken out of service
}

func auditConflict(t *testing.T, r *rig) {
	r.consume()
	first := minute("agent/a", 0)
	second := first
	second.Utilization = schema.Some(1)
	at := testkit.At("2026-03-01T10:00:00Z")
	begun := schema.Lease{Header: schema.Header{Source: "cloud/x", ID: "l1"}, Instance: "i1", AtMs: at, State: "running"}
	later := begun
	later.AtMs += schema.HourMs
	for i, c := range []struct {
		contents [2]schema.Event
		from, to int64
	}{
		{[2]schema.Event{{Usage: &first}, {Usage: &second}}, first.StartMs, first.EndMs},
		{[2]schema.Event{{Lease: &begun}, {Lease: &later}}, at, at + schema.HourMs + 1},
	} {
		for k := range c.contents {
			r.wantOpen()
			r.publish(schema.MessageOf("default", &c.contents[k]))
			r.settled()
			r.pass()
		}
		id := c.contents[0].Header().Identity()
		n := r.wantOpen("conflict " + id.Source + " / " + id.ID)[0]
		if n.Count != 2 || n.FromMs != c.from || n.ToMs != c.to {
			t.Errorf("conflict %+v", n)
		}
		correction := schema.Event{Correction: &schema.Correction{
			Header: schema.Header{Source: "billing", ID: fmt.Sprint("c", i)}, CorrectsSource: id.Source, CorrectsID: id.ID, Action: "retract", Actor: "eve", Reason: "test",
		}}
		r.publish(schema.MessageOf("default", &correction))
		r.settled()
		r.pass()
		r.wantOpen()
		r.wantEnded(schema.IncidentConflict, "corrected")
	}
}

func auditDerived(t *testing.T, r *rig) {
	r.consume()
	r.minutes("agent/a", 0, 1, 2)
	r.settled()
	r.pass() // marks are open: nothing is compared
	r.drain()
	r.pass()
	r.pass()
	r.wantOpen()
	forge := func(table string) {
		r.exec("INSERT INTO " + table + " SELECT * REPLACE (active_ms + 1 AS active_ms, version + 1 AS version) FROM " + table + " FINAL LIMIT 1")
	}
	forge("usage_minute")
	r.pass()
	r.wantOpen() // once is not yet an incident
	r.pass()
	n := r.wantOpen("derived 2026-03-01T10:00:00Z")[0]
	if n.FromMs != testkit.At("2026-03-01T10:00:00Z") || n.ToMs != n.FromMs+schema.HourMs || !strings.Contains(n.Detail, "minute of GPU-agent/a") {
		t.Errorf("derived %+v", n)
	}
	rebuild := func() {
		if err := r.app.db.Rebuild(t.Context(), func(int, int) {}); err != nil {
			t.Fatal(err)
		}
		r.drain()
		r.pass()
		r.wantOpen()
		r.wantEnded(schema.IncidentDerived, "agrees again")
	}
	rebuild()
	forge("usage_hour")
	r.pass()
	r.pass()
	if n := r.wantOpen("derived 2026-03-01T10:00:00Z")[0]; !strings.Contains(n.Detail, "hour of GPU-agent/a") {
		t.Errorf("derived %+v", n)
	}
	rebuild()
}

// The database reads a table wrongly with FINAL: another one with a key that is too
// short stands in its place, so FINAL drops rows of which the key says that they
// are different.
func auditStorage(t *testing.T, r *rig) {
	r.consume()
	r.minutes("agent/a", 0, 1, 2)
	r.minutes("agent/b", 0, 1, 2)
	r.settled()
	r.drain()
	r.pass()
	r.pass()
	r.wantOpen()
	const hour = " 2026-03-01T10:00:00Z"
	for table, want := range map[string][]string{
		"raw_usage":    {"storage" + hour},
		"usage_minute": {"derived" + hour, "storage" + hour}, // what is kept is read with FINAL
		"usage_hour":   {"derived" + hour, "storage" + hour},
	} {
		r.exec("CREATE TABLE wrong AS " + table + " ENGINE = ReplacingMergeTree PRIMARY KEY tenant ORDER BY tenant")
		r.exec("SYSTEM STOP MERGES wrong")
		r.exec("INSERT INTO wrong SELECT * FROM " + table + " SETTINGS optimize_on_insert = 0")
		r.exec("EXCHANGE TABLES wrong AND " + table)
		r.pass()
		r.wantOpen() // once is not yet an incident
		r.pass()
		open := r.wantOpen(want...)
		if n := open[len(open)-1]; n.FromMs != testkit.At("2026-03-01T10:00:00Z") || n.ToMs != n.FromMs+schema.HourMs || !strings.Contains(n.Detail, table+": with FINAL ") {
			t.Errorf("%s: %+v", table, n)
		}
		if c := r.component(); c.Ready || !strings.Contains(c.Detail, "storage") {
			t.Errorf("%s: readiness %+v", table, c)
		}
		r.pass()
		r.wantOpen(want...)
		r.exec("EXCHANGE TABLES wrong AND " + table)
		r.exec("DROP TABLE wrong SYNC")
		r.pass()
		r.wantOpen()
		r.wantEnded(schema.IncidentStorage, table+": with FINAL ")
	}
}

func (r *rig) component() (c struct {
	Ready  bool
	Detail string
}) {
	r.t.Helper()
	w := &watchedIncidents{}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.watch(ctx, r.app.db, time.Hour) }()
	r.await("open incidents to be read", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.byKind == nil {
			return fmt.Errorf("not yet: %v", w.err)
		}
		return nil
	})
	cancel()
	<-done
	p := w.component()
	c.Ready, c.Detail = p.Ready, p.Detail
	return c
}

// stopped does something to the stream's folder while the broker is down.
func (r *rig) stopped(f func()) {
	r.t.Helper()
	r.server.Stop()
	f()
	r.startBroker()
	r.await("the connection", func() error {
		if !r.nc.IsConnected() {
			return fmt.Errorf("%s", r.nc.Status())
		}
		return nil
	})
}

// backup copies the stream's folder. Putting the copy back is a restore, or a tail
// that never reached the disk.
func (r *rig) backup() (restore func()) {
	r.t.Helper()
	dir := filepath.Join(r.t.TempDir(), "copy")
	r.stopped(func() {
		if err := os.CopyFS(dir, os.DirFS(r.dir)); err != nil {
			r.t.Fatal(err)
		}
	})
	return func() {
		if err := os.RemoveAll(r.dir); err != nil {
			r.t.Fatal(err)
		}
		if err := os.CopyFS(r.dir, os.DirFS(dir)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// ahead makes the durable of the restored copy one that is ahead: the tail
// of the stream is lost, and not what the durable knows.
func (r *rig) ahead(floor uint64) {
	r.t.Helper()
	js, err := natsjs.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	stream, err := js.Stream(r.t.Context(), jetstream.StreamName)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := stream.DeleteConsumer(r.t.Context(), "store"); err != nil {
		r.t.Fatal(err)
	}
	if _, err := stream.CreateConsumer(r.t.Context(), natsjs.ConsumerConfig{
		Durable: "store", AckPolicy: natsjs.AckExplicitPolicy, DeliverPolicy: natsjs.DeliverByStartSequencePolicy, OptStartSeq: floor + 1,
		Metadata: map[string]string{"gpumeter-epoch": strconv.FormatUint(r.epoch(), 10)},
	}); err != nil {
		r.t.Fatal(err)
	}
}

// tail publishes five messages, keeps a copy of the stream, publishes five more,
// has all stored and puts the copy back.
func (r *rig) tail(consume bool) (restore func()) {
	r.t.Helper()
	stop := r.consume()
	r.minutes("agent/a", 0, 1, 2, 3, 4)
	r.settled()
	restore = r.backup()
	r.minutes("agent/a", 5, 6, 7, 8, 9)
	r.settled()
	r.pass()
	r.wantOpen()
	if !consume {
		stop()
	}
	r.stopped(restore)
	return restore
}

// recovered checks that everything is there: the ten of before, and those that
// were published since.
func (r *rig) recovered(before uint64, events int64) {
	r.t.Helper()
	r.newEpoch(before)
	r.settled()
	r.await("all events", func() error {
		if n := r.distinct(); n != events {
			return fmt.Errorf("%d events are stored, want %d", n, events)
		}
		return nil
	})
	r.pass()
	r.wantOpen()
	r.wantEnded(schema.IncidentTailLost, "was read and checked again")
}

// The durable is ahead of the stream: without a reset it would wait for sequences
// that new messages do not have yet.
func auditTailFloorAbove(_ *testing.T, r *rig) {
	r.tail(false)
	r.exec("TRUNCATE TABLE audit_stream")
	// Storage knows nothing of the tail.
	r.exec("DELETE FROM raw_usage WHERE stream_sequence > 5 SETTINGS lightweight_deletes_sync = 2")
	before := r.epoch()
	r.ahead(10)
	r.consume()
	r.minutes("agent/b", 0, 1, 2)
	r.recovered(before, 8)
}

// New messages have the sequences of the lost ones before anybody looks.
func auditTailReused(_ *testing.T, r *rig) {
	before := r.epoch()
	r.tail(true)
	r.minutes("agent/b", 0, 1, 2, 3, 4, 5, 6)
	r.recovered(before, 17)
}

// Nobody runs while the tail is lost; only storage remembers it.
func auditTailUnseen(_ *testing.T, r *rig) {
	restore := r.tail(false)
	before := r.epoch()
	r.minutes("agent/b", 0, 1, 2, 3, 4, 5, 6)
	r.ahead(10)
	stop := r.consume()
	r.recovered(before, 17)
	// Once more from the same copy: the epoch that follows its own is used already.
	stop()
	r.stopped(restore)
	if r.epoch() != before {
		r.t.Fatalf("epoch of the copy is %d, was %d", r.epoch(), before)
	}
	r.minutes("agent/c", 0, 1, 2)
	r.consume()
	r.recovered(before, 20)
	if got := r.epoch(); got != before+2 {
		r.t.Errorf("epoch %d, want %d", got, before+2)
	}
}

// The loss of a tail is over when all that the stream had by then is proved, and
// not when all that is settled so far is.
func auditTailUnread(t *testing.T, r *rig) {
	r.consume()
	r.minutes("agent/a", 0, 1, 2)
	r.settled()
	known := &history{db: r.app.db, now: r.clock.Now}
	if err := known.TailLost(t.Context(), jetstream.TailLoss{Stream: jetstream.StreamName, Epoch: r.epoch(), Last: 5, Detail: "lost"}); err != nil {
		t.Fatal(err)
	}
	tail := fmt.Sprintf("%s %s@%d", schema.IncidentTailLost, jetstream.StreamName, r.epoch())
	time.Sleep(2 * time.Millisecond)
	r.pass()
	r.wantOpen(tail)
	r.minutes("agent/a", 3)
	r.settled()
	r.pass()
	r.wantOpen(tail)
	r.minutes("agent/a", 4)
	r.settled()
	r.pass()
	r.wantOpen()
	r.wantEnded(schema.IncidentTailLost, "was read and checked again")
}

func auditClosedByHand(t *testing.T, r *rig) {
	r.consume()
	r.minutes("agent/a", 0, 2)
	r.settled()
	r.clock.forward(11 * time.Minute)
	r.pass()
	n := r.wantOpen("source_gap agent/a#2")[0]
	r.closeByHand(n)
	r.pass()
	r.pass()
	r.wantOpen()
}

// meddling is a stream of which something happens while a pass looks at it.
type meddling struct {
	audit.Stream
	meanwhile func()
}

func (s meddling) Message(ctx context.Context, sequence uint64) (*schema.Delivery, error) {
	s.meanwhile()
	return s.Stream.Message(ctx, sequence)
}

// A pass can be long. What is asked as of an instant within it stays the answer,
// whatever the pass finds, and what a person closes within it stays closed.
func auditMeanwhile(t *testing.T, r *rig) {
	pass := func(f func()) {
		t.Helper()
		meanwhile := sync.OnceFunc(func() { time.Sleep(5 * time.Millisecond); f(); time.Sleep(5 * time.Millisecond) })
		a, err := audit.NewAuditor(audit.AuditorOptions{
			Stream: meddling{r.reader, meanwhile}, // some messages are read back in every pass
			Store:  r.app.db, Publish: r.app.publisher.Publish, Compute: r.app.computeMinutes, Now: r.clock.Now,
		})
		if err == nil {
			err = a.Pass(t.Context(), false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.consume()
	r.minutes("agent/a", 0, 4)
	r.settled()
	r.clock.forward(11 * time.Minute)
	var asOf int64
	day := [2]int64{minute("agent/a", 0).StartMs, minute("agent/a", 9).EndMs}
	within := func() {
		asOf = r.clock.Now().UnixMilli()
		r.wantGaps(day[0], day[1], asOf, 0)
	}
	pass(within)
	r.wantGaps(day[0], day[1], asOf, 0)
	r.wantGaps(day[0], day[1], 0, 3)

	r.minutes("agent/a", 3) // the pass that learns of it changes the incident
	r.settled()
	n := r.wantOpen("source_gap agent/a#2")[0]
	pass(func() { r.closeByHand(n) })
	r.wantOpen()
	pass(func() {})
	r.wantOpen()
}

func (r *rig) closeByHand(n schema.Incident) {
	r.t.Helper()
	n.ClosedAtMs, n.ClosedBy = r.clock.Now().UnixMilli(), "eve: the node burned"
	if err := r.app.db.NoteIncidents(r.t.Context(), n.ClosedAtMs, []schema.Incident{n}); err != nil {
		r.t.Fatal(err)
	}
}

// Two auditors at once note the same and heal harmlessly.
func auditTwo(t *testing.T, r *rig) {
	r.consume()
	r.minutes("agent/a", 0, 1, 2, 3)
	r.minutes("agent/b", 0, 2)
	r.settled()
	r.exec("DELETE FROM raw_usage WHERE stream_sequence = 2 SETTINGS lightweight_deletes_sync = 2")
	r.clock.forward(11 * time.Minute)
	other, err := r.app.newAuditor(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	both := func() {
		var running sync.WaitGroup
		for _, a := range []*audit.Auditor{r.auditor, other} {
			running.Go(func() {
				if err := a.Pass(t.Context(), false); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
	}
	both()
	both()
	r.settled()
	both()
	r.wantOpen("source_gap agent/b#2")
	if n := r.distinct(); n != 6 {
		t.Errorf("%d events, want 6", n)
	}
}

// Before anybody has looked, it is not known that there is no incident.
func TestIncidentsAreUnknownAtFirst(t *testing.T) {
	var w watchedIncidents
	if c := w.component(); c.Ready || !strings.Contains(c.Detail, "yet") {
		t.Errorf("before the first look: %+v", c)
	}
	if n := w.count(schema.IncidentStorage); !math.IsNaN(n) {
		t.Errorf("before the first look there are %v incidents", n)
	}
	w.byKind = map[string][]schema.Incident{}
	if c := w.component(); !c.Ready || w.count(schema.IncidentStorage) != 0 {
		t.Errorf("after a look: %+v", c)
	}
}
