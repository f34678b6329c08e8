package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
	"github.com/gpumeter/gpumeter/schema"
)

// question is what a report is asked with.
type question struct {
	kind     string
	from, to int64
	by       []string
	zone     string
}

func (q *question) String() string {
	return fmt.Sprintf("%s by %v in %s from %s to %s", q.kind, q.by, q.zone, schema.FormatTime(q.from), schema.FormatTime(q.to))
}

func (q *question) path(asOf string) string {
	v := url.Values{"from": {schema.FormatTime(q.from)}, "to": {schema.FormatTime(q.to)}, "zone": {q.zone}}
	if len(q.by) > 0 {
		v.Set("by", strings.Join(q.by, ","))
	}
	if asOf != "" {
		v.Set("as_of", asOf)
	}
	return "/api/v1/reports/" + q.kind + "?" + v.Encode()
}

type quality struct {
	Conflicts, Quarantined, Late, Gaps int64
	OutsideLease                       int64 `json:"outside_lease_ms"`
}

type answer struct {
	Rows    []map[string]any
	Totals  map[string]any
	Quality quality
}

func parse(text string) (a answer, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return a, d.Decode(&a)
}

// checker asks the running pipeline, and knows what it has to answer.
type checker struct {
	p     *pipeline
	model *model
	rnd   *rand.Rand

	mu     sync.Mutex
	past   []remembered
	counts map[string]int
	round  int
}

// remembered is an answer as of an instant, which must never change again.
type remembered struct {
	q      question
	asOf   time.Time
	answer string
}

// maxPast bounds the answers that are remembered.
const maxPast = 40

func (c *checker) counted(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

// world is all the time that the load lies in, up to a round.
func (c *checker) world() (from, to int64) {
	return firstDay - dayMs, firstDay + int64(c.round+2)*dayMs
}

// during checks what holds at any time, however much is still under way. What
// cannot be reached is not checked.
func (c *checker) during(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	from, to := c.world()
	q := question{kind: "usage", from: from, to: to, by: []string{"unit"}, zone: "UTC"}
	text, err := c.p.get(ctx, q.path(""))
	if err != nil {
		c.counted("out of reach")
		return nil
	}
	c.counted("any time")
	if err := c.bounded(text); err != nil {
		return fmt.Errorf("%v: %w", &q, err)
	}
	return c.unchanged(ctx)
}

func (c *checker) bounded(text string) error {
	a, err := parse(text)
	if err != nil {
		return fmt.Errorf("%w in %s", err, text)
	}
	// What is stored again while quality is counted may be counted twice, until the next
	// question; a storm delivers most things again, few more than once.
	if a.Quality.Quarantined != 0 || a.Quality.Conflicts > c.model.conflicts || a.Quality.Late > 2*c.model.events {
		return fmt.Errorf("quality %+v, with %d conflicts and %d events published", a.Quality, c.model.conflicts, c.model.events)
	}
	most := c.model.atMost()
	sums := map[string]int64{}
	for _, row := range append(slices.Clone(a.Rows), a.Totals) {
		n := func(column string) int64 { v, _ := row[column].(json.Number).Int64(); return v }
		if n("active_ms")+n("idle_ms") != n("known_ms") || n("known_ms")+n("unknown_ms") != n("allocated_ms") {
			return fmt.Errorf("the parts do not add up in %v", row)
		}
		unit, ok := row["unit"].(string)
		if !ok { // the totals come last
			for column, sum := range sums {
				if n(column) != sum {
					return fmt.Errorf("the rows have %d %s and the totals have %d", sum, column, n(column))
				}
			}
			continue
		}
		// Until the end of a lease is known it lasts, and nobody knows what for.
		if n("allocated_ms") > most[unit] && unit != "" && !leasedUnit(unit) {
			return fmt.Errorf("%s has %d ms, and only %d were published", unit, n("allocated_ms"), most[unit])
		}
		for _, column := range []string{"active_ms", "idle_ms", "unknown_ms", "allocated_ms", "free_ms", "unpriced_ms"} {
			sums[column] += n(column)
		}
	}
	return nil
}

// unchanged asks again what was asked at an earlier instant that was settled.
func (c *checker) unchanged(ctx context.Context) error {
	c.mu.Lock()
	if len(c.past) == 0 {
		c.mu.Unlock()
		return nil
	}
	r := c.past[c.rnd.IntN(len(c.past))]
	c.mu.Unlock()
	return c.same(ctx, r)
}

func (c *checker) same(ctx context.Context, r remembered) error {
	text, err := c.p.get(ctx, r.q.path(instantText(r.asOf)))
	if err != nil {
		c.counted("out of reach")
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The clock may have stepped behind the instant meanwhile.
	if !slices.ContainsFunc(c.past, func(o remembered) bool { return o.asOf.Equal(r.asOf) }) {
		return nil
	}
	c.counts["as of"]++
	if text != r.answer {
		return fmt.Errorf("%v as of %s was\n%s\nand is now\n%s", &r.q, instantText(r.asOf), r.answer, text)
	}
	return nil
}

func instantText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// clockSteps forgets the instants that the clock is about to pass a second time:
// what is stored then is legitimately part of them.
func (c *checker) clockSteps(says time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past = slices.DeleteFunc(c.past, func(r remembered) bool { return !r.asOf.Before(says) })
}

// settled checks everything, once all that was published is in the reports.
func (c *checker) settled(ctx context.Context, round int) error {
	from, to := c.world()
	day := firstDay + int64(round)*dayMs
	questions := []question{
		{kind: "usage", from: day - (openDays-1)*dayMs, to: day + 2*dayMs, by: []string{"unit", "hour"}, zone: "UTC"},
		{kind: "spend", from: from, to: to, by: []string{"project", "day"}, zone: "Asia/Shanghai"},
		{kind: "spend", from: from, to: to, by: []string{"day"}, zone: "Asia/Kolkata"},
		{kind: "usage", from: from, to: to, by: []string{"unit"}, zone: "UTC"},
		{kind: "usage", from: from, to: to, by: []string{"instance", "project"}, zone: "UTC"},
	}
	var faults []error
	for i := range questions {
		faults = append(faults, c.exact(ctx, &questions[i]))
	}
	faults = append(faults, c.stored(ctx), c.agents(ctx), c.unchanged(ctx), c.incidents(ctx))
	if err := errors.Join(faults...); err != nil {
		return err
	}
	r := remembered{asOf: c.p.clock.instant(), q: question{
		kind: "spend", from: day - int64(c.rnd.IntN(openDays))*dayMs, to: day + dayMs + 17*schema.HourMs/2, by: []string{"unit", "day"}, zone: "Asia/Shanghai"}}
	r.q.from = max(r.q.from, r.q.to-2*dayMs)
	var err error
	if r.answer, err = c.p.ask(ctx, r.q.path(instantText(r.asOf))); err != nil {
		return err
	}
	if err := c.compare(r.answer, &r.q); err != nil {
		return fmt.Errorf("as of now: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.past = append(c.past, r); len(c.past) > maxPast {
		i := c.rnd.IntN(maxPast / 2) // some stay for long
		c.past = slices.Delete(c.past, i, i+1)
	}
	return nil
}

// exact compares a report with the model, and what it says of its data.
func (c *checker) exact(ctx context.Context, q *question) error {
	text, err := c.p.ask(ctx, q.path(""))
	if err != nil {
		return fmt.Errorf("%v: %w", q, err)
	}
	if err := c.compare(text, q); err != nil {
		return err
	}
	c.counted("exact")
	if from, to := c.world(); q.from != from || q.to != to {
		return nil // events of other days are in between
	}
	a, err := parse(text)
	if want := (quality{Conflicts: c.model.conflicts, Late: c.model.events, OutsideLease: c.model.outsideMs()}); err == nil && a.Quality != want {
		return fmt.Errorf("%v: quality %+v, want %+v", q, a.Quality, want)
	}
	return err
}

func (c *checker) compare(text string, q *question) error {
	a, err := parse(text)
	if err != nil {
		return fmt.Errorf("%v: %w in %s", q, err, text)
	}
	zone, err := time.LoadLocation(q.zone)
	if err != nil {
		return err
	}
	got := map[string]string{"total": rowText(a.Totals)}
	for _, row := range a.Rows {
		keys := make([]string, len(q.by))
		for i, name := range q.by {
			keys[i] = fmt.Sprint(row[name])
		}
		got[strings.Join(keys, " | ")] = rowText(row)
	}
	if len(got) != len(a.Rows)+1 {
		return fmt.Errorf("%v: a row is there twice", q)
	}
	want := c.model.rows(q.from, q.to, q.by, zone)
	var wrong []string
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	for _, key := range sortedKeys(keys) {
		if got[key] != want[key] {
			wrong = append(wrong, fmt.Sprintf("%s\n  got  %s\n  want %s", key, got[key], want[key]))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%v: %d of %d rows are wrong:\n%s", q, len(wrong), len(want), strings.Join(wrong[:min(len(wrong), 4)], "\n"))
	}
	return nil
}

func rowText(row map[string]any) string {
	text := make([]string, len(columns))
	for i, name := range columns {
		text[i] = fmt.Sprintf("%s=%v", name, row[name])
	}
	return strings.Join(text, " ")
}

// stored compares the stored rows with what was published: as many distinct
// contents and identities, and nothing set aside.
func (c *checker) stored(ctx context.Context) error {
	from, to := c.world()
	got, err := c.p.query(ctx, fmt.Sprintf("SELECT uniqExact(source, id), uniqExact(source, id, payload), (SELECT count() FROM quarantine WHERE due_at = 0) "+
		"FROM raw_usage WHERE start >= fromUnixTimestamp64Milli(%d) AND start < fromUnixTimestamp64Milli(%d) FORMAT CSV", from, to))
	if err != nil {
		return err
	}
	c.counted("stored")
	if want := fmt.Sprintf("%d,%d,0", c.model.events, c.model.events+c.model.conflicts); got != want {
		return fmt.Errorf("stored identities, contents, quarantined are %s, published were %s", got, want)
	}
	return nil
}

// incidents checks that the auditor raises no false alarm: sources contradict
// themselves and fall silent here, and nothing else is wrong.
func (c *checker) incidents(ctx context.Context) error {
	from, to := c.world()
	text, err := c.p.ask(ctx, (&question{kind: "quality", from: from, to: to, zone: "UTC"}).path(""))
	if err != nil {
		return err
	}
	var a struct{ Incidents []schema.Incident }
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return fmt.Errorf("%w in %s", err, text)
	}
	c.counted("incidents")
	for _, n := range a.Incidents {
		if n.Kind != schema.IncidentConflict && n.Kind != schema.IncidentSilent {
			return fmt.Errorf("a false alarm: %+v", n)
		}
	}
	return nil
}

// agents checks what the agents sent, of which nobody knows beforehand what it is:
// every source numbered its events without a gap, no identity came with two
// contents, no time of a unit was reported twice, and reports say the same.
func (c *checker) agents(ctx context.Context) error {
	ours := "start > '2024-01-01 00:00:00'"
	wrong, err := c.p.query(ctx, "SELECT source, count() AS n, uniqExact(id) AS ids, uniqExact(sequence) AS numbers, min(sequence), max(sequence) AS last "+
		"FROM (SELECT source, id, sequence FROM raw_usage WHERE "+ours+" GROUP BY source, id, sequence, payload) GROUP BY source "+
		"HAVING n != ids OR n != numbers OR min(sequence) != 1 OR last != n FORMAT CSVWithNames")
	if err == nil && strings.Count(wrong, "\n") > 0 {
		err = fmt.Errorf("the numbers of an agent's events: %s", wrong)
	}
	if err != nil {
		return err
	}
	want, err := c.p.query(ctx, "SELECT u, toInt64(sum(a)) AS active, toInt64(sum(i)) AS idle, sum(length) - active - idle AS unknown "+
		"FROM (SELECT any(unit) AS u, any(active_ms) AS a, any(idle_ms) AS i, any(toUnixTimestamp64Milli(`end`) - toUnixTimestamp64Milli(start)) AS length "+
		"FROM raw_usage WHERE "+ours+" GROUP BY source, id) GROUP BY u ORDER BY u FORMAT CSV")
	if err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	q := question{kind: "usage", from: schema.Floor(now, dayMs) - 2*dayMs, to: schema.Floor(now, dayMs) + 2*dayMs, by: []string{"unit"}, zone: "UTC"}
	text, err := c.p.ask(ctx, q.path(""))
	if err != nil {
		return err
	}
	a, err := parse(text)
	if err != nil {
		return err
	}
	var got []string
	for _, r := range a.Rows {
		got = append(got, fmt.Sprintf("%q,%v,%v,%v", r["unit"], r["active_ms"], r["idle_ms"], r["unknown_ms"]))
	}
	c.counted("agents")
	if strings.Join(got, "\n") != want {
		return fmt.Errorf("the agents' units: stored are\n%s\nreported are\n%s", want, strings.Join(got, "\n"))
	}
	return nil
}

// final throws away everything derived, when all is settled: reports must be the
// same to the byte. It asks as a user does.
func (c *checker) final(ctx context.Context, round int) error {
	from, to := c.world()
	all := question{kind: "usage", from: from, to: to, by: []string{"unit", "hour"}, zone: "UTC"}
	if err := c.exact(ctx, &all); err != nil {
		return err
	}
	c.mu.Lock()
	past := slices.Clone(c.past)
	c.mu.Unlock()
	for _, r := range past {
		if err := c.same(ctx, r); err != nil {
			return err
		}
	}
	before, err := c.reports(from, to)
	if err != nil {
		return err
	}
	for _, name := range []string{"aggregate-1", "aggregate-2"} {
		if err := c.p.parts[name].Stop(); err != nil {
			return err
		}
	}
	if _, err := c.p.run("rebuild", "--data", c.p.dir); err != nil {
		return err
	}
	after, err := c.reports(from, to)
	if err != nil {
		return err
	}
	c.counted("rebuild")
	for i := range before {
		if before[i] != after[i] {
			return fmt.Errorf("after a rebuild a report is\n%s\nand was\n%s", after[i], before[i])
		}
	}
	return c.settled(ctx, round)
}

// asOfField is when a report was made, the one thing that may differ.
var asOfField = regexp.MustCompile(`"as_of":"[^"]*",`)

func (c *checker) reports(from, to int64) (list []string, err error) {
	for _, args := range [][]string{{"spend", "--by", "unit,hour"}, {"waste", "--by", "project,day", "--zone", "Asia/Kolkata"}, {"quality"}} {
		text, err := c.p.run(append([]string{"report", args[0], "--url", c.p.url, "--format", "json",
			"--from", schema.FormatTime(from), "--to", schema.FormatTime(to)}, args[1:]...)...)
		if err != nil {
			return nil, err
		}
		list = append(list, asOfField.ReplaceAllString(text, ""))
	}
	return list, nil
}

// run runs a command of the program to its end.
func (p *pipeline) run(args ...string) (string, error) {
	cmd := process.Command(args...)
	cmd.Env = append(cmd.Env, "GPUMETER_CLOCK="+p.clock.path)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("gpumeter %v: %w\n%s%s", args, err, out, stderr.String())
	}
	return string(out), nil
}
