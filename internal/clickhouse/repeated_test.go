package clickhouse_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// What quality counts is what a walk over all rows counts, however the copies of an
// identity lie: in one place, in several, of several lengths, before the span, and
// under an id that tells the place of another event.
func TestQualityIsWhatAWalkCounts(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "walk")
	base, grace := testkit.At("2026-03-01T10:00:00Z"), time.Hour
	starts := []int64{base - schema.HourMs, base - schema.MinuteMs/2, base, base + schema.MinuteMs/2, base + schema.MinuteMs}
	lengths := []int64{schema.MinuteMs / 2, schema.MinuteMs, 10 * schema.MinuteMs, 2 * schema.HourMs}
	type content struct {
		unit              string
		start, end, value int64
	}
	type stored struct {
		schema.Identity
		content
		at int64
	}
	conflicts, late := int64(0), int64(0)
	for seed := range uint64(30) {
		r, tenant := rand.New(rand.NewPCG(seed, 0)), fmt.Sprint("t", seed)
		place := func() (string, int64) { return fmt.Sprint("GPU-", r.IntN(2)), starts[r.IntN(len(starts))] }
		b := db.NewBatch()
		var rows []stored
		for n := range 12 {
			unit, start := place()
			u := testkit.Usage(unit, "i1", schema.FormatTime(start), schema.FormatTime(start+lengths[r.IntN(len(lengths))]))
			u.Source, u.ID = "s", schema.UsageID(unit, start)
			switch r.IntN(6) {
			case 0:
				u.ID = fmt.Sprint(r.IntN(3))
			case 1:
				u.ID = schema.UsageID(place())
			}
			u.Utilization = schema.Some(int64(r.IntN(2)))
			at := u.EndMs + int64(r.IntN(4))*schema.HourMs/2 + int64(n)
			b.Usage(&schema.Position{Tenant: tenant, Stream: "S", StreamSequence: uint64(n), StoredAtNs: at * 1e6}, &u)
			rows = append(rows, stored{u.Identity(), content{unit, u.StartMs, u.EndMs, u.Utilization.Value}, at})
		}
		if err := b.WriteRaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		from, to := base, base+schema.MinuteMs
		for _, asOf := range []int64{0, base + schema.HourMs} {
			first, contents := map[schema.Identity]*stored{}, map[schema.Identity]map[content]bool{}
			for i := range rows {
				row := &rows[i]
				if asOf > 0 && row.at > asOf {
					continue
				}
				if contents[row.Identity] == nil {
					contents[row.Identity] = map[content]bool{}
				}
				contents[row.Identity][row.content] = true
				if f := first[row.Identity]; row.start < to && row.end > from && (f == nil || row.at < f.at) {
					first[row.Identity] = row
				}
			}
			var want schema.Quality
			for id, f := range first {
				if f.at-f.end > grace.Milliseconds() {
					want.Late++
				}
				if len(contents[id]) > 1 {
					want.Conflicts++
				}
			}
			got, err := db.Quality(t.Context(), tenant, from, to, asOf, grace)
			if err != nil || got != want {
				t.Errorf("seed %d as of %d: %+v, want %+v, %v", seed, asOf, got, want, err)
			}
			conflicts, late = conflicts+want.Conflicts, late+want.Late
		}
	}
	if conflicts < 20 || late < 20 {
		t.Errorf("%d conflicts and %d late events, too few to tell", conflicts, late)
	}
}

// Counting what is wrong with a million events takes a small part of the memory
// that a row for each of them would.
func TestQualityOfManyEventsIsBounded(t *testing.T) {
	server := testkit.Engine(t)
	db := testkit.DB(t, server, "many")
	const n = 1_000_000
	err := db.Exec(t.Context(), fmt.Sprintf(`INSERT INTO raw_usage (tenant, span, minute, unit_hash, unit, start, end, source, id, payload, sequence, instance, project, node, platform, region, model,
		labels, stream, epoch, stream_sequence, place, stored_at, first)
		WITH toDateTime('2026-03-01 00:00:00', 'UTC') + intDiv(number, 50) * 60 AS at, 'GPU-' || toString(number %% 50) AS name
		SELECT 'default', 0, at, xxHash64(name), name, at, at + 60, 's', name || '/' || toString(at), toFixedString(leftPad(toString(number), 16, '0'), 16), 0,
		'i', 'a', 'n', '', '', '', '', 'S', 1, number, 0, at + 7200, -toInt64(number) FROM numbers(%d)`, n))
	if err != nil {
		t.Fatal(err)
	}
	small, err := clickhouse.OpenWith(t.Context(), "http://"+server.HTTPAddr()+"/many", map[string]string{"max_memory_usage": "150000000", "max_threads": "2"})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	from, to := testkit.At("2026-03-01T00:00:00Z"), testkit.At("2026-04-01T00:00:00Z")
	q, err := small.Quality(t.Context(), "default", from, to, 0, time.Hour)
	if err != nil || q != (schema.Quality{Late: n}) {
		t.Errorf("quality %+v, %v", q, err)
	}
	list, total, err := small.Sources(t.Context(), "default", from, to, 0, time.Hour)
	if err != nil || total != 1 || list[0].Events != n || list[0].Late != n {
		t.Errorf("%d sources %+v, %v", total, list, err)
	}
}
