package soak_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// This file says what reports have to say, from the list of published events and
// as plainly as it can: no minutes, no versions, no marks. It keeps the events of
// the days that can still get new ones, and of older days only their sums, so that
// hours of load fit into memory.

// bucketMs divides days and hours of every zone that is asked for.
const bucketMs = 30 * schema.MinuteMs

// place is what a part of usage is told apart by.
type place struct {
	unit, instance, project string
	bucketMs                int64
}

// figures are the sums of a place.
type figures struct {
	active, idle, free, unknown int64
	utilMs, utilSum             int64
	energyMs, energy            int64
	overlap, oversubscribed     int64
}

func (f *figures) add(o figures) {
	f.active += o.active
	f.idle += o.idle
	f.free += o.free
	f.unknown += o.unknown
	f.utilMs += o.utilMs
	f.utilSum += o.utilSum
	f.energyMs += o.energyMs
	f.energy += o.energy
	f.overlap += o.overlap
	f.oversubscribed += o.oversubscribed
}

func (f *figures) allocated() int64 { return f.active + f.idle + f.unknown }

type model struct {
	open   map[int64]map[string][]schema.Usage // by day and unit, what counts
	leases map[string][]schema.Lease           // by instance, as long as its day is open
	sums   map[int64]map[place]figures         // by day
	// outside is the usage of a day that lies outside of leases.
	outside map[int64]int64
	// loose is the time of a unit that may be reported too much until all is known.
	loose map[string]int64

	events, conflicts, corrections, leaseEvents int64
}

func newModel() *model {
	return &model{open: map[int64]map[string][]schema.Usage{}, leases: map[string][]schema.Lease{}, sums: map[int64]map[place]figures{}, outside: map[int64]int64{}}
}

func dayOf(ms int64) int64 { return schema.Floor(ms, dayMs) }

// publish adds a round.
func (m *model) publish(r *round) {
	m.conflicts += int64(r.conflicts)
	m.corrections += int64(len(r.corrections))
	m.leaseEvents += int64(len(r.leases))
	m.loose = map[string]int64{}
	for _, v := range r.moved {
		m.loose[v.unit] += v.ms
	}
	for _, u := range r.events {
		m.add(u)
	}
	for _, l := range r.leases {
		m.leases[l.Instance] = append(m.leases[l.Instance], l)
	}
	for _, c := range r.corrections {
		if c.Replacement != nil {
			m.add(*c.Replacement.Usage)
		}
	}
	m.takeOut(r.corrections)
	for day, byUnit := range m.open {
		m.sums[day], m.outside[day] = m.sumDay(byUnit, day)
	}
	m.close(firstDay + int64(r.number-openDays+1)*dayMs)
}

func (m *model) add(u schema.Usage) {
	m.events++
	for day := dayOf(u.StartMs); day < u.EndMs; day += dayMs {
		if m.open[day] == nil {
			if m.sums[day] != nil {
				panic("an event of a day that was closed")
			}
			m.open[day] = map[string][]schema.Usage{}
		}
		m.open[day][u.Unit] = append(m.open[day][u.Unit], u)
	}
}

// takeOut takes out all that is corrected: what a replacement replaces and what it
// does not, for a replacement is an event like others, unless it is corrected too.
func (m *model) takeOut(list []schema.Correction) {
	out := map[schema.Identity]bool{}
	for _, c := range list {
		out[schema.Identity{Source: c.CorrectsSource, ID: c.CorrectsID}] = true
	}
	for _, byUnit := range m.open {
		for unit := range byUnit {
			byUnit[unit] = slices.DeleteFunc(byUnit[unit], func(u schema.Usage) bool { return out[u.Identity()] })
		}
	}
	for instance := range m.leases {
		m.leases[instance] = slices.DeleteFunc(m.leases[instance], func(l schema.Lease) bool { return out[l.Identity()] })
	}
}

// close forgets the events of the days before last: a later round reaches back
// openDays-1 days from its own.
func (m *model) close(last int64) {
	for _, day := range slices.Collect(maps.Keys(m.open)) {
		if day < last {
			delete(m.open, day)
		}
	}
	maps.DeleteFunc(m.leases, func(_ string, list []schema.Lease) bool { return list[0].AtMs < last })
}

// sumDay also returns how much usage lies outside of leases.
func (m *model) sumDay(byUnit map[string][]schema.Usage, day int64) (map[place]figures, int64) {
	sums, outside := map[place]figures{}, int64(0)
	for unit, events := range byUnit {
		for bucket := day; bucket < day+dayMs; bucket += bucketMs {
			outside += m.sumBucket(sums, unit, events, bucket)
		}
	}
	for instance := range m.leases {
		var mine []schema.Usage
		for _, events := range byUnit {
			for _, u := range events {
				if u.Instance == instance {
					mine = append(mine, u)
				}
			}
		}
		for bucket := day; bucket < day+dayMs; bucket += bucketMs {
			m.sumMissing(sums, instance, mine, bucket)
		}
	}
	return sums, outside
}

// sumBucket cuts a bucket wherever an event of the unit begins or ends or the lease
// of one of its holders changes, and asks of every piece who holds it. What its
// lease does not cover is outside.
func (m *model) sumBucket(sums map[place]figures, unit string, events []schema.Usage, bucket int64) (outside int64) {
	cuts := []int64{bucket, bucket + bucketMs}
	var here []*schema.Usage
	for i := range events {
		if e := &events[i]; e.StartMs < bucket+bucketMs && e.EndMs > bucket {
			here = append(here, e)
			cuts = append(cuts, max(e.StartMs, bucket), min(e.EndMs, bucket+bucketMs))
			cuts = append(cuts, m.changes(e.Instance, bucket)...)
		}
	}
	slices.Sort(cuts)
	for i := 1; i < len(cuts); i++ {
		if cuts[i-1] == cuts[i] {
			continue
		}
		holders(here, cuts[i-1], cuts[i], func(e *schema.Usage, first, last int64, n claims) {
			if m.leases[e.Instance] != nil && !m.leaseAt(e.Instance, cuts[i-1]).held() {
				outside += last - first
				return
			}
			at := place{unit, e.Instance, e.Project, bucket}
			f := sums[at]
			f.count(e, first, last, n)
			sums[at] = f
		})
	}
	return outside
}

// claims are what is said about one piece of a holder's time.
type claims struct {
	events         int // of the holder
	oversubscribed bool
}

// holders says who has what of [from, to), in which the set of events does not
// change: give gets the event that speaks for a holder, and the span as positions
// on the holder's own axis of time.
func holders(events []*schema.Usage, from, to int64, give func(e *schema.Usage, first, last int64, n claims)) {
	speaks, heard := map[string]*schema.Usage{}, map[string]int{}
	for _, e := range events {
		if e.StartMs <= from && e.EndMs >= to {
			heard[e.Instance]++
			if have := speaks[e.Instance]; have == nil || knowsMore(e, have) {
				speaks[e.Instance] = e
			}
		}
	}
	names := sortedKeys(speaks)
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	claimed := new(big.Rat)
	for _, name := range names {
		if s := speaks[name].Share; s.Known {
			claimed.Add(claimed, big.NewRat(s.Value, schema.ShareOne))
		} else {
			claimed.Add(claimed, big.NewRat(1, 1))
		}
	}
	tooMuch := claimed.Cmp(big.NewRat(1, 1)) > 0
	left := big.NewRat(1, 1)
	for i, part := range parts(names, speaks) {
		// Of what the holders before leave, this one has the part w.
		w := new(big.Rat).Quo(part, left)
		mineFirst, mineLast := floorTimes(from, w), floorTimes(to, w)
		give(speaks[names[i]], mineFirst, mineLast, claims{heard[names[i]], tooMuch})
		from, to = from-mineFirst, to-mineLast
		if left.Sub(left, part).Sign() == 0 {
			return
		}
	}
	if nobody := speaks[""]; nobody != nil {
		give(nobody, from, to, claims{heard[""], false})
	}
}

// parts returns the part of the unit that each holder has.
func parts(names []string, speaks map[string]*schema.Usage) []*big.Rat {
	given, silent := new(big.Rat), int64(0)
	for _, name := range names {
		if s := speaks[name].Share; s.Known {
			given.Add(given, big.NewRat(s.Value, schema.ShareOne))
		} else {
			silent++
		}
	}
	one := big.NewRat(1, 1)
	list, sum := make([]*big.Rat, len(names)), new(big.Rat)
	for i, name := range names {
		switch s := speaks[name].Share; {
		case s.Known:
			list[i] = big.NewRat(s.Value, schema.ShareOne)
		case given.Cmp(one) < 0:
			list[i] = new(big.Rat).Sub(one, given)
			list[i].Quo(list[i], new(big.Rat).SetInt64(silent))
		default:
			list[i] = one
		}
		sum.Add(sum, list[i])
	}
	if sum.Cmp(one) > 0 {
		for i := range list {
			list[i] = new(big.Rat).Quo(list[i], sum)
		}
	}
	return list
}

// knowsMore chooses between two events of one holder: who knows more of its
// interval, then who saw more activity, then the lower identity.
func knowsMore(a, b *schema.Usage) bool {
	activeA, idleA := states(a)
	activeB, idleB := states(b)
	ratio := func(ms int64, u *schema.Usage) *big.Rat { return big.NewRat(ms, u.EndMs-u.StartMs) }
	return cmp.Or(
		ratio(activeB+idleB, b).Cmp(ratio(activeA+idleA, a)),
		ratio(activeB, b).Cmp(ratio(activeA, a)),
		cmp.Compare(a.Source, b.Source), cmp.Compare(a.ID, b.ID)) < 0
}

func states(u *schema.Usage) (active, idle int64) {
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

func floorTimes(n int64, w *big.Rat) int64 {
	x := new(big.Int).Mul(big.NewInt(n), w.Num())
	return x.Quo(x, w.Denom()).Int64()
}

// count adds the positions [first, last) of the event's holder. What an event says
// of its interval lies evenly over time.
func (f *figures) count(e *schema.Usage, first, last int64, n claims) {
	if n.events > 1 {
		f.overlap += last - first
	}
	if n.oversubscribed {
		f.oversubscribed += last - first
	}
	active, idle := states(e)
	length, known := e.EndMs-e.StartMs, active+idle
	of := func(at, part, whole int64) int64 {
		if whole == 0 {
			return 0
		}
		return floorTimes(at, big.NewRat(part, whole))
	}
	knownFirst, knownLast := of(first, known, length), of(last, known, length)
	activeMs := of(knownLast, active, known) - of(knownFirst, active, known)
	idleMs := knownLast - knownFirst - activeMs
	f.active += activeMs
	f.idle += idleMs
	f.unknown += last - first - activeMs - idleMs
	if e.Instance == "" {
		f.free += idleMs
	}
	if e.Utilization.Known {
		f.utilMs += activeMs + idleMs
		f.utilSum += (activeMs + idleMs) * e.Utilization.Value
	}
	if e.EnergyMj.Known {
		f.energyMs += last - first
		f.energy += of(last, e.EnergyMj.Value, length) - of(first, e.EnergyMj.Value, length)
	}
}

// atMost is what may be reported of a unit before all is known.
func (m *model) atMost() map[string]int64 {
	sums := maps.Clone(m.loose)
	for _, day := range m.sums {
		for at, f := range day {
			sums[at.unit] += f.allocated()
		}
	}
	return sums
}

// rows returns the rows of a report over [from, to) by keys, the values of which
// are joined by " | ", and "total".
func (m *model) rows(from, to int64, by []string, zone *time.Location) map[string]string {
	sums, all := map[string]*figures{}, figures{}
	for _, day := range m.sums {
		for at, f := range day {
			if at.bucketMs < from || at.bucketMs >= to {
				continue
			}
			key := at.key(by, zone)
			if sums[key] == nil {
				sums[key] = &figures{}
			}
			sums[key].add(f)
			all.add(f)
		}
	}
	rows := map[string]string{"total": all.String()}
	for key, f := range sums {
		if f.allocated() > 0 {
			rows[key] = f.String()
		}
	}
	return rows
}

func (p *place) key(by []string, zone *time.Location) string {
	values := make([]string, len(by))
	local := time.UnixMilli(p.bucketMs).In(zone)
	for i, name := range by {
		switch name {
		case "unit":
			values[i] = p.unit
		case "instance":
			values[i] = p.instance
		case "project":
			values[i] = p.project
		case "day":
			values[i] = local.Format(time.DateOnly)
		case "hour":
			began := local.Add(-time.Duration(local.Minute()) * time.Minute)
			values[i] = began.Format(time.RFC3339)
		default:
			panic("the reference knows nothing of " + name)
		}
	}
	return strings.Join(values, " | ")
}

// columns are what a row of a report is compared in, in this order.
var columns = []string{"allocated_ms", "known_ms", "active_ms", "idle_ms", "unknown_ms", "utilization",
	"cost", "idle_waste", "unpriced_ms", "free_ms", "free_cost", "energy_mj", "overlap_ms", "oversubscribed_ms"}

// String writes the columns.
func (f *figures) String() string {
	utilization, energy := "<nil>", "<nil>"
	if f.utilMs > 0 {
		utilization = decimal(big.NewRat(f.utilSum, f.utilMs))
	}
	if f.energyMs > 0 {
		energy = fmt.Sprint(f.energy)
	}
	cost, waste, free := money(f.allocated()), money(f.idle-f.free), money(f.free)
	if f.allocated() == 0 {
		cost, waste, free = "<nil>", "<nil>", "<nil>"
	}
	values := []any{f.allocated(), f.active + f.idle, f.active, f.idle, f.unknown, utilization, cost, waste, 0, f.free, free, energy, f.overlap, f.oversubscribed}
	text := make([]string, len(columns))
	for i, name := range columns {
		text[i] = fmt.Sprintf("%s=%v", name, values[i])
	}
	return strings.Join(text, " ")
}

// decimal writes millionths as a number with at most six decimals, half up.
func decimal(millionths *big.Rat) string {
	s := new(big.Rat).Quo(millionths, big.NewRat(schema.UtilizationOne, 1)).FloatString(6)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// money writes microyuan as reports do: two digits at least, six at most.
func money(micro int64) string {
	s := fmt.Sprintf("%d.%06d", micro/1_000_000, micro%1_000_000)
	for range 4 {
		s = strings.TrimSuffix(s, "0")
	}
	return s
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
