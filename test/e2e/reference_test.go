package e2e_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// This file says again, as plainly as it can, what a report is: it goes from the
// list of events to the figures without windows, versions, marks or tables. Where
// the program cuts time into minutes and hours, it cuts where anything changes.

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

// tariff is one line of the price list. An empty platform is any.
type tariff struct {
	model, platform string
	perHour         string
	from, to        int64
}

// sums is a row in the making.
type sums struct {
	key, order                                              []string
	active, idle, free, unknown, util, energyMs, unpricedMs int64
	utilSum, energy                                         *big.Int
	priced                                                  bool
	cost, waste, freeCost                                   *big.Rat

	overlap, crowded int64
	used, unused     *big.Rat
	useful, dark     *big.Rat // of active time, and of time of which nothing is known
}

func newSums(key, order []string) *sums {
	return &sums{key: key, order: order, utilSum: new(big.Int), energy: new(big.Int), cost: new(big.Rat), waste: new(big.Rat), freeCost: new(big.Rat),
		used: new(big.Rat), unused: new(big.Rat), useful: new(big.Rat), dark: new(big.Rat)}
}

// reference returns the rows and the totals of a report over the events, all of
// them distinct and without conflicts.
func reference(t tester, events []schema.Usage, tariffs []tariff, q *question) ([]map[string]any, map[string]any) {
	zone, err := time.LoadLocation(q.zone)
	if err != nil {
		t.Fatal(err)
	}
	// No zone is shifted by less than a quarter of an hour.
	cuts := []int64{q.from, q.to}
	const quarter = 15 * schema.MinuteMs
	for at := q.from - q.from%quarter; at < q.to; at += quarter {
		cuts = append(cuts, at)
	}
	for _, e := range events {
		cuts = append(cuts, e.StartMs, e.EndMs)
	}
	for _, p := range tariffs {
		cuts = append(cuts, p.from, p.to)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	units := map[string][]schema.Usage{}
	for _, e := range events {
		units[e.Unit] = append(units[e.Unit], e)
	}
	rows, all := map[string]*sums{}, newSums(nil, nil)
	for i := 1; i < len(cuts); i++ {
		from, to := max(cuts[i-1], q.from), min(cuts[i], q.to)
		if from >= to {
			continue
		}
		for _, list := range units {
			segment(list, from, to, func(e *schema.Usage, first, last *big.Int, doubt doubt) {
				key, order := keyOf(e, q.by, from, zone)
				r := rows[strings.Join(key, "\x00")]
				if r == nil {
					r = newSums(key, order)
					rows[strings.Join(key, "\x00")] = r
				}
				for _, into := range []*sums{r, all} {
					into.add(e, first, last, priceAt(tariffs, e, from), doubt)
				}
			})
		}
	}
	list := make([]*sums, 0, len(rows))
	for _, r := range rows {
		if r.active+r.idle+r.unknown > 0 {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *sums) int { return slices.Compare(a.order, b.order) })
	largest := all.largest()
	for _, column := range []func(*sums) **big.Rat{
		func(s *sums) **big.Rat { return &s.cost }, func(s *sums) **big.Rat { return &s.waste }, func(s *sums) **big.Rat { return &s.freeCost },
		func(s *sums) **big.Rat { return &s.used }, func(s *sums) **big.Rat { return &s.unused },
		func(s *sums) **big.Rat { return &s.useful }, func(s *sums) **big.Rat { return &s.dark },
	} {
		roundColumn(list, all, column)
	}
	balance(append(slices.Clip(list), all), largest)
	if q.kind == "waste" {
		slices.SortStableFunc(list, func(a, b *sums) int {
			if a.priced != b.priced {
				return map[bool]int{true: -1, false: 1}[a.priced]
			}
			return b.waste.Cmp(a.waste)
		})
	}
	out := make([]map[string]any, len(list))
	for i, r := range list {
		out[i] = r.figures()
		for k, name := range q.by {
			out[i][name] = r.key[k]
		}
	}
	return out, all.figures()
}

// doubt says of a holder's time that several of its events tell of it, and that
// the holders of the unit claim more than all of it.
type doubt struct{ overlap, crowded bool }

// segment says who has what of one unit in [from, to), in which the set of its
// events does not change: give gets the event that speaks for the holder, and the
// span as positions on the holder's own axis of time.
func segment(events []schema.Usage, from, to int64, give func(e *schema.Usage, first, last *big.Int, doubt doubt)) {
	speaker, tell := map[string]*schema.Usage{}, map[string]int{}
	for i := range events {
		e := &events[i]
		if e.StartMs > from || e.EndMs < to {
			continue
		}
		tell[e.Instance]++
		if have := speaker[e.Instance]; have == nil || speaksBefore(e, have) {
			speaker[e.Instance] = e
		}
	}
	var holders []string
	for instance := range speaker {
		if instance != "" {
			holders = append(holders, instance)
		}
	}
	slices.Sort(holders)
	weights := shares(holders, speaker)
	claims := new(big.Rat)
	for _, h := range holders {
		claim := int64(schema.ShareOne)
		if s := speaker[h].Share; s.Known {
			claim = s.Value
		}
		claims.Add(claims, big.NewRat(claim, schema.ShareOne))
	}
	crowded := claims.Cmp(big.NewRat(1, 1)) > 0
	left := big.NewRat(1, 1)
	first, last := big.NewInt(from), big.NewInt(to)
	for _, h := range holders {
		// Of what the holders before left over, this one has the part w.
		w := new(big.Rat).Quo(weights[h], left)
		mineFirst, mineLast := floorTimes(first, w), floorTimes(last, w)
		give(speaker[h], mineFirst, mineLast, doubt{tell[h] > 1, crowded})
		first, last = new(big.Int).Sub(first, mineFirst), new(big.Int).Sub(last, mineLast)
		if left.Sub(left, weights[h]).Sign() == 0 {
			return
		}
	}
	if nobody := speaker[""]; nobody != nil {
		give(nobody, first, last, doubt{overlap: tell[""] > 1})
	}
}

// speaksBefore: the event that knows more of its interval, then the more active
// one, then the lower identity.
func speaksBefore(a, b *schema.Usage) bool {
	activeA, idleA := stateOf(a)
	activeB, idleB := stateOf(b)
	return cmp.Or(
		big.NewRat(activeB+idleB, b.EndMs-b.StartMs).Cmp(big.NewRat(activeA+idleA, a.EndMs-a.StartMs)),
		big.NewRat(activeB, b.EndMs-b.StartMs).Cmp(big.NewRat(activeA, a.EndMs-a.StartMs)),
		cmp.Compare(a.Source, b.Source), cmp.Compare(a.ID, b.ID)) < 0
}

func stateOf(u *schema.Usage) (active, idle int64) {
	switch {
	case u.ActiveMs.Known || u.IdleMs.Known:
		return u.ActiveMs.Value, u.IdleMs.Value
	case !u.Utilization.Known:
		return 0, 0
	case u.Utilization.Value >= 10_000:
		return u.EndMs - u.StartMs, 0
	}
	return 0, u.EndMs - u.StartMs
}

// shares returns what part of the unit each holder has.
func shares(holders []string, speaker map[string]*schema.Usage) map[string]*big.Rat {
	given, silent := new(big.Rat), int64(0)
	part := map[string]*big.Rat{}
	for _, h := range holders {
		if s := speaker[h].Share; s.Known {
			part[h] = big.NewRat(s.Value, schema.ShareOne)
			given.Add(given, part[h])
		} else {
			silent++
		}
	}
	one := big.NewRat(1, 1)
	rest := new(big.Rat).Sub(one, given)
	sum := new(big.Rat)
	for _, h := range holders {
		if part[h] == nil {
			// Who gave none divides the rest, or, where nothing is left, counts
			// as holding all.
			part[h] = one
			if rest.Sign() > 0 {
				part[h] = new(big.Rat).Quo(rest, new(big.Rat).SetInt64(silent))
			}
		}
		sum.Add(sum, part[h])
	}
	if sum.Cmp(one) > 0 {
		for _, h := range holders {
			part[h] = new(big.Rat).Quo(part[h], sum)
		}
	}
	return part
}

func floorTimes(n *big.Int, w *big.Rat) *big.Int {
	x := new(big.Int).Mul(n, w.Num())
	return x.Quo(x, w.Denom())
}

// add counts the positions [first, last) of the event's owner.
func (s *sums) add(e *schema.Usage, first, last *big.Int, perHour *big.Rat, doubt doubt) {
	activeOfAll, idleOfAll := stateOf(e)
	length := e.EndMs - e.StartMs
	knownOfAll := activeOfAll + idleOfAll
	upTo := func(at *big.Int, part, whole int64) *big.Int {
		if whole == 0 {
			return new(big.Int)
		}
		return floorTimes(at, big.NewRat(part, whole))
	}
	known := func(at *big.Int) *big.Int { return upTo(at, knownOfAll, length) }
	between := func(f func(*big.Int) *big.Int) int64 { return new(big.Int).Sub(f(last), f(first)).Int64() }

	ms := new(big.Int).Sub(last, first).Int64()
	knownMs := between(known)
	active := between(func(at *big.Int) *big.Int { return upTo(known(at), activeOfAll, knownOfAll) })
	s.active += active
	s.idle += knownMs - active
	s.unknown += ms - knownMs
	heldIdle, free := knownMs-active, int64(0)
	if e.Instance == "" {
		heldIdle, free = 0, heldIdle
	}
	s.free += free
	if doubt.overlap {
		s.overlap += ms
	}
	if doubt.crowded {
		s.crowded += ms
	}
	if e.Utilization.Known {
		s.util += knownMs
		s.utilSum.Add(s.utilSum, new(big.Int).Mul(big.NewInt(knownMs), big.NewInt(e.Utilization.Value)))
	}
	if e.EnergyMj.Known {
		s.energyMs += ms
		s.energy.Add(s.energy, big.NewInt(between(func(at *big.Int) *big.Int { return upTo(at, e.EnergyMj.Value, length) })))
	}
	if ms == 0 {
		return
	}
	if perHour == nil {
		s.unpricedMs += ms
		return
	}
	s.priced = true
	price := func(into *big.Rat, ms int64) {
		into.Add(into, new(big.Rat).Mul(big.NewRat(ms, schema.HourMs), perHour))
	}
	price(s.cost, ms)
	price(s.waste, heldIdle)
	price(s.freeCost, free)
	price(s.useful, active)
	price(s.dark, ms-knownMs)
	if e.Utilization.Known {
		busy := big.NewRat(e.Utilization.Value, 1_000_000)
		of := new(big.Rat).Mul(big.NewRat(knownMs, schema.HourMs), perHour)
		s.used.Add(s.used, new(big.Rat).Mul(of, busy))
		s.unused.Add(s.unused, of.Mul(of, busy.Sub(big.NewRat(1, 1), busy)))
	}
}

func priceAt(tariffs []tariff, e *schema.Usage, at int64) *big.Rat {
	for _, platform := range []string{e.Platform, ""} {
		for _, p := range tariffs {
			if p.model == e.Model && p.platform == platform && p.from <= at && at < p.to {
				r, _ := new(big.Rat).SetString(p.perHour)
				return r
			}
		}
	}
	return nil
}

func keyOf(e *schema.Usage, by []string, at int64, zone *time.Location) (key, order []string) {
	local := time.UnixMilli(at).In(zone)
	for _, name := range by {
		text, sort := "", ""
		switch name {
		case "project":
			text = e.Project
		case "instance":
			text = e.Instance
		case "unit":
			text = e.Unit
		case "model":
			text = e.Model
		case "platform":
			text = e.Platform
		case "label:team":
			for _, l := range e.Labels {
				if l.Key == "team" {
					text = l.Value
				}
			}
		case "day":
			text = local.Format(time.DateOnly)
		case "hour":
			began := local.Add(-time.Duration(local.Minute())*time.Minute - time.Duration(local.Second())*time.Second - time.Duration(local.Nanosecond()))
			text, sort = began.Format(time.RFC3339), fmt.Sprintf("%020d", began.UnixMilli())
		}
		key, order = append(key, text), append(order, cmp.Or(sort, text))
	}
	return key, order
}

// roundColumn rounds to six decimals so that the rows add up to the rounded total:
// all are rounded down, and those that lost most get one last digit back.
func roundColumn(rows []*sums, all *sums, column func(*sums) **big.Rat) {
	million := big.NewRat(1_000_000, 1)
	micros := func(x *big.Rat) (*big.Int, *big.Rat) {
		scaled := new(big.Rat).Mul(x, million)
		whole := new(big.Int).Quo(scaled.Num(), scaled.Denom())
		return whole, scaled.Sub(scaled, new(big.Rat).SetInt(whole))
	}
	half := big.NewRat(1, 2)
	total, rest := micros(*column(all))
	if rest.Cmp(half) >= 0 {
		total.Add(total, big.NewInt(1))
	}
	missing := new(big.Int).Set(total)
	whole, lost := make([]*big.Int, len(rows)), make([]*big.Rat, len(rows))
	order := []int{}
	for i, r := range rows {
		whole[i], lost[i] = micros(*column(r))
		missing.Sub(missing, whole[i])
		if lost[i].Sign() > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return lost[b].Cmp(lost[a]) })
	for _, i := range order[:min(len(order), int(missing.Int64()))] {
		whole[i].Add(whole[i], big.NewInt(1))
	}
	for i, r := range rows {
		*column(r) = new(big.Rat).SetFrac(whole[i], big.NewInt(1_000_000))
	}
	if len(rows) == 0 {
		total = new(big.Int)
	}
	*column(all) = new(big.Rat).SetFrac(total, big.NewInt(1_000_000))
}

// balance gives what rounding left over of the classes of a row to the one of them that
// was largest in all.
func balance(rows []*sums, largest int) {
	for _, s := range rows {
		left := new(big.Rat).Set(s.cost)
		for k, c := range s.classes() {
			if k != largest {
				left.Sub(left, c)
			}
		}
		s.classes()[largest].Set(left)
	}
}

func (s *sums) classes() []*big.Rat { return []*big.Rat{s.useful, s.waste, s.freeCost, s.dark} }

func (s *sums) largest() (largest int) {
	for k, c := range s.classes() {
		if c.Cmp(s.classes()[largest]) > 0 {
			largest = k
		}
	}
	return largest
}

// figures writes the columns as the report does.
func (s *sums) figures() map[string]any {
	number := func(n int64) json.Number { return json.Number(fmt.Sprint(n)) }
	m := map[string]any{
		"allocated_ms": number(s.active + s.idle + s.unknown), "known_ms": number(s.active + s.idle), "active_ms": number(s.active),
		"idle_ms": number(s.idle), "unknown_ms": number(s.unknown), "unpriced_ms": number(s.unpricedMs), "free_ms": number(s.free),
		"utilization": nil, "cost": nil, "idle_waste": nil, "free_cost": nil, "energy_mj": nil,
		"overlap_ms": number(s.overlap), "oversubscribed_ms": number(s.crowded), "used_cost": nil, "unused_cost": nil,
	}
	for _, name := range []string{"list_cost", "effective_cost", "useful_cost", "unknown_cost", "stopped_cost", "minimum_cost", "commitment_unused_cost", "rework_cost", "meter_cost", "credit_cost"} {
		m[name] = nil
	}
	if s.util > 0 {
		mean := new(big.Rat).SetFrac(s.utilSum, new(big.Int).Mul(big.NewInt(s.util), big.NewInt(1_000_000)))
		m["utilization"] = decimal(mean, 0)
	}
	if s.energyMs > 0 {
		m["energy_mj"] = json.Number(s.energy.String())
	}
	if s.priced {
		m["cost"], m["idle_waste"], m["free_cost"] = decimal(s.cost, 2), decimal(s.waste, 2), decimal(s.freeCost, 2)
		m["used_cost"], m["unused_cost"] = decimal(s.used, 2), decimal(s.unused, 2)
		// Without leases all are billed what they cost, at the list price.
		m["list_cost"], m["effective_cost"] = m["cost"], m["cost"]
		m["useful_cost"], m["unknown_cost"] = decimal(s.useful, 2), decimal(s.dark, 2)
		for _, none := range []string{"stopped_cost", "minimum_cost", "commitment_unused_cost", "rework_cost", "meter_cost", "credit_cost"} {
			m[none] = "0.00"
		}
	}
	return m
}

// decimal writes a number that is not negative with up to six decimals, the last
// one rounded half up, and at least the given number of them.
func decimal(x *big.Rat, least int) string {
	s := x.FloatString(6)
	for strings.HasSuffix(s, "0") && len(s)-strings.IndexByte(s, '.')-1 > least {
		s = s[:len(s)-1]
	}
	return strings.TrimSuffix(s, ".")
}

// checkReference compares a report with the reference.
func checkReference(t tester, document []byte, events []schema.Usage, tariffs []tariff, q *question) {
	t.Helper()
	rows, totals := reference(t, events, tariffs, q)
	a := parse(t, document)
	text := func(v any) string {
		b, err := json.Marshal(v) // keys in order
		if err != nil {
			t.Fatal(err)
		}
		return string(bytes.ReplaceAll(b, []byte("},{"), []byte("},\n{")))
	}
	same(t, q.String(), text(a.Rows), text(rows))
	same(t, q.String()+", totals", text(a.Totals), text(totals))
}
