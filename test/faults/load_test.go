package faults_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// One milliyuan per GPU and second: a cost is its milliseconds, moved by six
// digits, and nothing is left to round.
const priceList = `currency: CNY
prices:
  - model: H100
    per_gpu_hour: "3.60"
`

// load is the usage of some units over some hours of one day, in three parts.
// Every test case has a day, and so units and sources, of its own.
type load struct {
	fromMs, toMs int64
	parts        [3][]schema.Usage
	conflicts    map[string]bool // ids that were published with other content, too
	rnd          *rand.Rand
}

const (
	loadUnits = 8
	loadFrom  = 2 * schema.HourMs // of the day
	loadTo    = 21 * schema.HourMs
)

// newLoad invents the events. Those of one unit do not overlap, so that what is
// right is a plain sum; they begin and end at any millisecond and cross the borders
// of minutes and hours. They lie far apart, because a recomputation that was lost
// would not show if other events of the same minute caused another.
func newLoad(day int) *load {
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, day)
	l := &load{fromMs: from.UnixMilli(), toMs: from.AddDate(0, 0, 1).UnixMilli(), conflicts: map[string]bool{}, rnd: rand.New(rand.NewPCG(7, uint64(day)))}
	sequence := map[string]uint64{}
	for unit := range loadUnits {
		for at := l.fromMs + loadFrom + l.rnd.Int64N(90_000); at < l.fromMs+loadTo; {
			u := schema.Usage{
				Unit:     fmt.Sprintf("GPU-%02d-%d", day, unit),
				Instance: fmt.Sprintf("i-%d", unit/2),
				Project:  fmt.Sprintf("p-%d", unit%3),
				Model:    "H100", Platform: "self", Node: fmt.Sprintf("node-%d", unit%4),
				StartMs: at, EndMs: at + l.length(),
			}
			l.activity(&u)
			u.Source = fmt.Sprintf("agent/%02d-%d", day, unit%4)
			u.ID = schema.UsageID(u.Unit, u.StartMs)
			sequence[u.Source]++
			u.Sequence = sequence[u.Source]
			part := slices.Index([]bool{l.rnd.IntN(10) < 5, l.rnd.IntN(10) < 7, true}, true)
			l.parts[part] = append(l.parts[part], u)
			if at = u.EndMs; l.rnd.IntN(4) > 0 { // or the next follows at once
				at += l.rnd.Int64N(20 * schema.MinuteMs)
			}
		}
	}
	for _, part := range l.parts {
		l.rnd.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
	}
	return l
}

func (l *load) length() int64 {
	switch l.rnd.IntN(30) {
	case 0:
		return 5*60_000 + l.rnd.Int64N(40*60_000) // many minutes, at times two hours
	case 1, 2:
		return 1 + l.rnd.Int64N(999)
	}
	return 60_000 + l.rnd.Int64N(60_000)
}

// activity gives the event one of the forms that the format allows.
func (l *load) activity(u *schema.Usage) {
	switch length := u.LengthMs(); l.rnd.IntN(5) {
	case 0: // unknown
	case 1:
		u.Utilization = schema.Some(9_999) // just below the threshold: idle
	case 2:
		u.Utilization = schema.Some(10_000 + l.rnd.Int64N(990_000)) // active
	default:
		active := l.rnd.Int64N(length + 1)
		u.ActiveMs, u.IdleMs = schema.Some(active), schema.Some(l.rnd.Int64N(length-active+1))
		u.Utilization = schema.Some(500_000)
	}
}

// messages packs events in one of many possible ways: alone as JSON, several as
// JSON, several in the compact form.
func (l *load) messages(t testing.TB, events []schema.Usage) []schema.Message {
	t.Helper()
	var list []schema.Message
	bySource := map[string][]schema.Usage{}
	for _, u := range events {
		bySource[u.Source] = append(bySource[u.Source], u)
	}
	for _, source := range sortedKeys(bySource) {
		for rest := bySource[source]; len(rest) > 0; {
			n := min(len(rest), 1+l.rnd.IntN(20))
			form := l.rnd.IntN(3)
			if form == 0 {
				n = 1
			}
			list = append(list, pack(t, rest[:n], form))
			rest = rest[n:]
		}
	}
	return list
}

func pack(t testing.TB, events []schema.Usage, form int) schema.Message {
	t.Helper()
	m := schema.MessageOf(schema.DefaultTenant, &schema.Event{Usage: &events[0]})
	switch form {
	case 1:
		var parts [][]byte
		for i := range events {
			parts = append(parts, schema.EncodeEvent(&schema.Event{Usage: &events[i]}))
		}
		m.ContentType, m.Payload = schema.ContentTypeBatch, slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]"))
	case 2:
		var err error
		if m.Payload, err = schema.EncodeCompact(events); err != nil {
			t.Fatal(err)
		}
		m.ContentType = schema.ContentTypeCompact
	default:
		return m
	}
	sum := sha256.Sum256(m.Payload)
	m.ID = hex.EncodeToString(sum[:])
	return m
}

// publish does what a producer has to do: it offers the messages again under the
// same ids until the stream has confirmed each.
func (c *cluster) publish(t testing.TB, messages []schema.Message) {
	t.Helper()
	await(t, "the stream has taken everything", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		receipts, err := c.publisher.Publish(ctx, messages)
		if err != nil {
			return err
		}
		for _, r := range receipts {
			if r.Err != nil {
				return r.Err
			}
		}
		return nil
	})
}

// publishPart publishes one part and, in between, copies of earlier events, packed
// in another way so that the stream cannot tell that they are copies, and events
// that claim the identity of an earlier one and say something else. Neither may
// count.
func (c *cluster) publishPart(t testing.TB, l *load, part int) {
	t.Helper()
	events := slices.Clone(l.parts[part])
	for before := range part {
		for _, u := range l.parts[before] {
			switch l.rnd.IntN(40) {
			case 0:
				u.Utilization, u.ActiveMs, u.IdleMs = schema.Some(schema.UtilizationOne), schema.Maybe{}, schema.Maybe{}
				u.EndMs -= u.LengthMs() / 2
				l.conflicts[u.ID] = true
				fallthrough
			case 1, 2, 3, 4, 5, 6, 7, 8, 9:
				events = append(events, u)
			}
		}
	}
	for _, u := range l.parts[part] { // and twice at once
		if l.rnd.IntN(8) == 0 {
			events = append(events, u)
		}
	}
	l.rnd.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	c.publish(t, l.messages(t, events))
}

// figures are the columns of a report that a plain sum can tell.
type figures struct{ active, idle, unknown int64 }

func (f figures) json() map[string]string {
	allocated := f.active + f.idle + f.unknown
	return map[string]string{
		"allocated_ms": strconv.FormatInt(allocated, 10), "known_ms": strconv.FormatInt(f.active+f.idle, 10),
		"active_ms": strconv.FormatInt(f.active, 10), "idle_ms": strconv.FormatInt(f.idle, 10), "unknown_ms": strconv.FormatInt(f.unknown, 10),
		"cost": money(allocated), "idle_waste": money(f.idle), "unpriced_ms": "0",
	}
}

// money writes microyuan as reports do: two digits at least, six at most.
func money(micro int64) string {
	s := fmt.Sprintf("%d.%06d", micro/1_000_000, micro%1_000_000)
	for range 4 {
		if s[len(s)-1] != '0' {
			break
		}
		s = s[:len(s)-1]
	}
	return s
}

// reference sums up events by a key.
func reference(events []schema.Usage, key func(*schema.Usage) string) map[string]figures {
	sums := map[string]figures{}
	for i := range events {
		u := &events[i]
		f, length := sums[key(u)], u.LengthMs()
		switch {
		case u.ActiveMs.Known:
			f.active += u.ActiveMs.Value
			f.idle += u.IdleMs.Value
			f.unknown += length - u.ActiveMs.Value - u.IdleMs.Value
		case !u.Utilization.Known:
			f.unknown += length
		case u.Utilization.Value >= 10_000:
			f.active += length
		default:
			f.idle += length
		}
		sums[key(u)] = f
	}
	return sums
}

// answer is a report as it is printed.
type answer struct {
	Rows    []map[string]any
	Totals  map[string]any
	Quality struct{ Conflicts, Quarantined, Late, Gaps int64 }
}

// report asks the program, as a user does.
func (c *cluster) report(t testing.TB, l *load, kind string, more ...string) []byte {
	t.Helper()
	return c.reportAt(t, c.url, l, kind, more...)
}

func (c *cluster) reportAt(t testing.TB, url string, l *load, kind string, more ...string) []byte {
	t.Helper()
	return run(t, append([]string{"report", kind, "--url", url, "--format", "json",
		"--from", schema.FormatTime(l.fromMs), "--to", schema.FormatTime(l.toMs)}, more...)...)
}

// check compares a report with the reference of the events.
func check(t testing.TB, what string, printed []byte, by string, want map[string]figures) answer {
	t.Helper()
	var got answer
	decoder := json.NewDecoder(bytes.NewReader(printed))
	decoder.UseNumber()
	if err := decoder.Decode(&got); err != nil {
		t.Fatalf("%s: %v in %s", what, err, printed)
	}
	var total figures
	for _, key := range sortedKeys(want) {
		f := want[key]
		total.active, total.idle, total.unknown = total.active+f.active, total.idle+f.idle, total.unknown+f.unknown
		i := slices.IndexFunc(got.Rows, func(r map[string]any) bool { return r[by] == key })
		if i < 0 {
			t.Errorf("%s: no row of %s %s", what, by, key)
			continue
		}
		compare(t, what+", "+by+" "+key, got.Rows[i], f)
	}
	if len(got.Rows) != len(want) {
		t.Errorf("%s: %d rows, want %d", what, len(got.Rows), len(want))
	}
	compare(t, what+", totals", got.Totals, total)
	return got
}

func compare(t testing.TB, what string, row map[string]any, want figures) {
	t.Helper()
	fields := want.json()
	for _, name := range sortedKeys(fields) {
		if got := fmt.Sprint(row[name]); got != fields[name] {
			t.Errorf("%s: %s is %s, want %s", what, name, got, fields[name])
		}
	}
}

func byProject(u *schema.Usage) string { return u.Project }
func byUnit(u *schema.Usage) string    { return u.Unit }

// checkAll compares the reports of a load with its first parts, and those of an
// instant with what had been published by then.
func (c *cluster) checkAll(t testing.TB, l *load, parts int, asOf time.Time) {
	t.Helper()
	events := slices.Concat(l.parts[:parts]...)
	got := check(t, "spend", c.report(t, l, "spend", "--by", "project"), "project", reference(events, byProject))
	// All events are of a day long past: every distinct one is late.
	if q := got.Quality; q.Conflicts != int64(len(l.conflicts)) || q.Quarantined != 0 || q.Gaps != 0 && parts == len(l.parts) || q.Late != int64(len(events)) {
		t.Errorf("quality %+v, want %d conflicts, %d late events and nothing else", q, len(l.conflicts), len(events))
	}
	check(t, "usage", c.report(t, l, "usage", "--by", "unit"), "unit", reference(events, byUnit))
	if !asOf.IsZero() {
		check(t, "usage as of "+asOf.Format(time.RFC3339Nano), c.report(t, l, "usage", "--by", "unit", "--as-of", asOf.UTC().Format(time.RFC3339Nano)),
			"unit", reference(l.parts[0], byUnit))
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
