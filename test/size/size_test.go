package size_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// base is the start of the month, 2026-06-01 UTC.
const base = 1_780_272_000_000

const span = "from=2026-06-01&to=2026-07-01&"

// insert stores n events made by SQL over number, with ids as an agent makes them,
// and the marks of their minutes as a consumer writes them; the program then
// recomputes as always. Publishing them would measure the stream, which gpumeter
// bench does.
func (p *program) insert(n, units, lengthMs int64, instance string) {
	p.t.Helper()
	begin := time.Now()
	const chunk = 1_000_000
	for from := int64(0); from < n; from += chunk {
		p.sql(fmt.Sprintf(`INSERT INTO raw_usage (tenant, span, minute, unit_hash, unit, start, end, source, id, payload, sequence, instance, project, node, platform, region, model,
			active_ms, idle_ms, labels, stream, epoch, stream_sequence, place, stored_at, first)
			WITH number %% %[3]d AS u, %[4]d + intDiv(number, %[3]d) * %[5]d AS at, 'GPU-' || toString(u) AS name, 1790000000000000000 + number AS stored
			SELECT 'default', 0, toDateTime(intDiv(at, 60000) * 60, 'UTC'), xxHash64(name), name, fromUnixTimestamp64Milli(at, 'UTC'), fromUnixTimestamp64Milli(at + %[5]d, 'UTC'),
			's', name || '/' || formatDateTime(fromUnixTimestamp64Milli(at, 'UTC'), '%%Y-%%m-%%dT%%H:%%i:%%S.000Z', 'UTC'), toFixedString(leftPad(toString(number), 16, '0'), 16), 0, %[6]s, 'a', 'n', 'self', '', ['H100', 'A100', ''][u %% 3 + 1],
			number * 7919 %% (%[5]d DIV 2 + 1), number * 104729 %% (%[5]d DIV 2), '', 'S', 1, number + 1, 0, fromUnixTimestamp64Nano(stored, 'UTC'), -stored
			FROM numbers(%[1]d, %[2]d)`, from, min(chunk, n-from), units, base, lengthMs, instance))
	}
	minutes := (n/units*lengthMs + 2*60_000 - 1) / 60_000
	p.sql(fmt.Sprintf(`INSERT INTO dirty (grain, tenant, window, mark, units, marked_at, sign)
		SELECT 'minute', 'default', toDateTime(%d + number * 60, 'UTC'), number + 1, arrayMap(u -> xxHash64('GPU-' || toString(u)), range(%d)), now64(3), 1 FROM numbers(%d)`, base/1000, units, minutes))
	p.peaks(fmt.Sprintf("insert %d events", n), begin)
	begin = time.Now()
	p.settled()
	p.peaks("recompute", begin)
}

// event is what insert makes of a number.
func event(number, units, lengthMs int64) (unit, at int64, model string, active, idle int64) {
	unit, at = number%units, base+number/units*lengthMs
	return unit, at, []string{"H100", "A100", ""}[unit%3], number * 7919 % (lengthMs/2 + 1), number * 104729 % (lengthMs / 2)
}

func (p *program) check(what string, rows []row, key func(*row) string, want map[string]*sum) {
	p.t.Helper()
	if len(rows) != len(want) {
		p.t.Errorf("%s: %d rows, want %d", what, len(rows), len(want))
	}
	for i := range rows {
		if w := want[key(&rows[i])]; w == nil || !w.same(&rows[i].figures) {
			p.t.Fatalf("%s: row %+v, want %+v", what, rows[i], w)
		}
	}
}

// A month of one event a minute of every unit, all of one project: every report is
// what the generator says, and no question takes more memory than the caps (G1).
func TestMonthOfEvents(t *testing.T) {
	units, n := int64(10), int64(100_000)
	if full() {
		units, n = 250, 250*30*24*60 // 10.8 million
	}
	p := start(t)
	p.insert(n, units, 60_000, "concat('i-', toString(u), '-', toString(intDiv(at - "+fmt.Sprint(int64(base))+", 86400000)))")
	var total sum
	days, hours, instances := map[string]*sum{}, map[string]*sum{}, map[string]*sum{}
	for number := range n {
		unit, at, model, active, idle := event(number, units, 60_000)
		clock := time.UnixMilli(at).UTC()
		for m, key := range map[*map[string]*sum]string{&days: clock.Format(time.DateOnly), &hours: clock.Truncate(time.Hour).Format(time.RFC3339), &instances: fmt.Sprintf("i-%d-%d", unit, (at-base)/86_400_000)} {
			if (*m)[key] == nil {
				(*m)[key] = &sum{}
			}
			(*m)[key].add(model, at, 60_000, active, idle)
		}
		total.add(model, at, 60_000, active, idle)
	}
	if total.allocated != n*60_000 {
		t.Fatal("the generator is wrong")
	}
	asOf := "as_of=" + url.QueryEscape(time.Now().UTC().Format(time.RFC3339)) // the prices are applied at the start
	for query, want := range map[string]map[string]*sum{
		span + "by=project": {"a": &total}, span + "by=day": days, span + "by=hour": hours, span + "by=instance": instances,
		span + "by=project&" + asOf: {"a": &total}, span + "by=instance&" + asOf: instances,
	} {
		a := p.report("spend", query)
		p.check(query, a.Rows, func(r *row) string { return r.Project + r.Instance + r.Day + r.Hour }, want)
		if !total.same(&a.Totals) {
			t.Errorf("%s: totals %+v, want %+v", query, a.Totals, total)
		}
	}
	p.report("quality", strings.TrimSuffix(span, "&"))
	a := p.report("spend", span+"by=instance&top=10")
	if len(a.Rows) != 10 || a.RowCount != int64(len(instances)) || !total.same(&a.Totals) {
		t.Errorf("top 10: %d rows of %d, totals %+v", len(a.Rows), a.RowCount, a.Totals)
	}
	p.close(t, "2026-06", instances, &total)
}

// close closes a month by instance and shows it again. The events were never on the
// stream, so what the auditor says of that is overridden.
func (p *program) close(t *testing.T, period string, want map[string]*sum, total *sum) {
	t.Helper()
	begin := time.Now()
	frozen := p.command("statement", "close", "--period", period, "--tenant", "default", "--by", "instance", "--format", "json",
		"--override", "the events were made in the database")
	p.peaks("statement close", begin)
	var doc struct {
		State string
		Rows  []struct {
			Keys map[string]string
			figures
		}
		Totals, Due figures
	}
	if err := json.Unmarshal(frozen, &doc); err != nil {
		t.Fatal(err)
	}
	rows := make([]row, len(doc.Rows))
	for i, r := range doc.Rows {
		rows[i] = row{Instance: r.Keys["instance"], figures: r.figures}
	}
	p.check("statement", rows, func(r *row) string { return r.Instance }, want)
	if doc.State != "closed" || !total.same(&doc.Totals) || !total.same(&doc.Due) {
		t.Errorf("statement: state %s, totals %+v, due %+v, want %+v", doc.State, doc.Totals, doc.Due, total)
	}
	begin = time.Now()
	shown := p.command("statement", "show", "--period", period, "--format", "json")
	p.peaks("statement show", begin)
	if !bytes.Equal(shown, frozen) {
		t.Errorf("statement show gives %d bytes that are not the %d of the closing", len(shown), len(frozen))
	}
}

// As many instances in a day as no dashboard expects, 30 s each: the top and the
// pages are what the generator says, in bounded memory (G3).
func TestDayOfInstances(t *testing.T) {
	units, n, limit, pages := int64(4), int64(10_000), 1000, 10
	if full() {
		units, n, limit, pages = 348, 1_000_000, 10_000, 5
	}
	p := start(t)
	p.insert(n, units, 30_000, "'i-' || leftPad(toString(number), 7, '0')")
	var total sum
	all := make([]sum, n)
	for number := range n {
		_, at, model, active, idle := event(number, units, 30_000)
		all[number].add(model, at, 30_000, active, idle)
		total.add(model, at, 30_000, active, idle)
	}
	if total.allocated != n*30_000 {
		t.Fatal("the generator is wrong")
	}
	name := func(number int64) string { return fmt.Sprintf("i-%07d", number) }
	check := func(what string, a *answer, numbers []int64) {
		t.Helper()
		if !total.same(&a.Totals) {
			t.Errorf("%s: totals %+v, want %+v", what, a.Totals, total)
		}
		if len(a.Rows) != len(numbers) {
			t.Fatalf("%s: %d rows, want %d", what, len(a.Rows), len(numbers))
		}
		for i, number := range numbers {
			if a.Rows[i].Instance != name(number) || !all[number].same(&a.Rows[i].figures) {
				t.Fatalf("%s: row %d is %+v, want %s with %+v", what, i, a.Rows[i], name(number), all[number])
			}
		}
	}
	order := make([]int64, n)
	for kind, size := range map[string]func(*sum) int64{"spend": func(s *sum) int64 { return s.cost }, "waste": func(s *sum) int64 { return s.waste }} {
		for i := range order {
			order[i] = int64(i)
		}
		slices.SortStableFunc(order, func(a, b int64) int {
			// Without a price the cost is unknown, which is below none.
			known := func(s *sum) int { return 1 - int(s.unpriced/30_000) }
			x, y := &all[a], &all[b]
			return cmp.Or(cmp.Compare(known(y), known(x)), cmp.Compare(size(y), size(x)))
		})
		a := p.report(kind, span+"by=instance&top=20")
		check(kind+" top 20", &a, order[:20])
		if a.RowCount != n {
			t.Errorf("%s: %d rows in all, want %d", kind, a.RowCount, n)
		}
	}
	after, at := "", int64(0)
	for page := range pages {
		a := p.report("usage", fmt.Sprintf("%sby=instance&limit=%d%s", span, limit, after))
		var numbers []int64
		for range limit {
			numbers, at = append(numbers, at), at+1
		}
		check(fmt.Sprint("page ", page), &a, numbers)
		if last := at == n; last != (a.Next == "") {
			t.Fatalf("page %d ends at %d with next %q", page, at, a.Next)
		}
		after = "&after=" + url.QueryEscape(a.Next)
	}
	if !full() && at != n {
		t.Errorf("the pages hold %d of %d rows", at, n)
	}
}
