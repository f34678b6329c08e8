package pricing

import (
	"math/big"
	"slices"
	"time"
)

// The oracle bills a rental a second time, in the plainest way: it walks over the
// rental one second after the other and asks of each what the profile says. It uses the
// types of the package, and none of its functions. It is slow, it knows only whole
// seconds, and it has nothing in common with [Tariff.Rate] that could be wrong in both.
// For longer rentals its second may last longer: then every instant has to be a multiple
// of that.

// oracle is what it bills with.
type oracle struct {
	profile *Profile
	entries []Entry
	rules   func(s *Segment, second int64) []Adjustment // nil = none
	ms      int64                                       // that a second lasts

	known map[situation][2]*big.Rat // prices that were worked out before, to be faster
}

// situation is what a price depends on.
type situation struct {
	segment *Segment
	entry   int
	rules   int
}

// second is what the oracle knows of one second of a rental.
type second struct {
	segment    *Segment
	metered    bool // the platform provides something
	run        int  // -1: not billed
	day        int  // counted from the first second on
	settlement int  // likewise; -1: settled with nothing
	times      int64
	free       bool     // refunded
	list, paid *big.Rat // of one second of all GPUs; nil = no price
}

// walk looks at every second from the first segment's beginning to the last one's end.
func (o *oracle) walk(r *Rental) []second {
	first, last := r.Segments[0].FromMs/o.ms, r.Segments[len(r.Segments)-1].ToMs/o.ms
	seconds := make([]second, last-first)
	run, billing, day, settlement := -1, false, 0, 0
	before := o.clockAt(first - 1)
	for i := range seconds {
		at, s := first+int64(i), &seconds[i]
		now := o.clockAt(at)
		s.segment = o.segmentAt(r, at)
		s.run = -1
		if s.segment != nil {
			billed := slices.Contains(o.profile.Billed.Compute, State(s.segment.State))
			s.metered = billed || !slices.Contains([]string{"released", "expired", "interrupted"}, s.segment.State)
			if billed {
				if !billing || o.stoppedAt(r, at) {
					run++
				}
				s.run = run
			}
			billing = billed
		} else {
			billing = false
		}
		if i > 0 {
			if now.begins(EveryDay, before) {
				day++
			}
			if now.begins(o.profile.Settle, before) {
				settlement++
			}
		}
		before = now
		s.day, s.settlement = day, settlement
		if o.profile.Settle == "" {
			s.settlement = s.run
		}
	}
	return seconds
}

func (o *oracle) segmentAt(r *Rental, second int64) *Segment {
	for i := range r.Segments {
		if s := &r.Segments[i]; s.FromMs <= second*o.ms && second*o.ms < s.ToMs {
			return s
		}
	}
	return nil
}

// stoppedAt says whether billing ended at an instant, though it may go on at once.
func (o *oracle) stoppedAt(r *Rental, second int64) bool {
	for i := range r.Segments {
		if s := &r.Segments[i]; s.FromMs == second*o.ms && !slices.Contains(o.profile.Billed.Compute, State(s.State)) {
			return true
		}
	}
	return false
}

func (o *oracle) interruptedAt(r *Rental, second int64) bool {
	for i := range r.Segments {
		if s := &r.Segments[i]; s.State == "interrupted" && s.FromMs == second*o.ms {
			return true
		}
	}
	return false
}

// clock is what the clocks of a zone show.
type clock struct{ month, day, hour, minute, second int }

func (o *oracle) clockAt(second int64) clock {
	t := time.UnixMilli(second * o.ms).In(o.profile.Zone)
	_, month, day := t.Date()
	h, m, s := t.Clock()
	return clock{int(month), day, h, m, s}
}

// begins says whether an hour, a day or a month begins with a second: when the clock
// shows another one than a second before, or a full hour again.
func (c clock) begins(step Every, before clock) bool {
	switch step {
	case EveryHour:
		return c.hour != before.hour || c.minute == 0 && c.second == 0
	case EveryDay:
		return c.day != before.day
	case EveryMonth:
		return c.month != before.month
	}
	return false
}

// bill fills in how many times every second is billed, and at what price.
func (o *oracle) bill(r *Rental) []second {
	seconds := o.timed(r)
	o.known = map[situation][2]*big.Rat{}
	for i := range seconds {
		if s := &seconds[i]; s.run >= 0 {
			o.price(s, r.Segments[0].FromMs/o.ms+int64(i))
		}
	}
	return seconds
}

// timed fills in how many times every second is billed.
func (o *oracle) timed(r *Rental) []second {
	seconds := o.walk(r)
	// The seconds of every run, in a row: what is added after the end of a run, or of a
	// day, is its last second once more.
	var runs [][]int
	for i := range seconds {
		if n := seconds[i].run; n >= 0 {
			for len(runs) <= n {
				runs = append(runs, nil)
			}
			runs[n] = append(runs[n], i)
		}
	}
	minimum := int(int64(o.profile.Time.Minimum) / o.ms)
	switch o.profile.Time.MinimumPer {
	case PerStart:
		for n, run := range runs {
			for len(run) < minimum {
				run = append(run, run[len(run)-1])
			}
			runs[n] = run
		}
	case PerDay:
		o.daily(seconds, runs, minimum)
	}
	for _, run := range runs {
		for _, together := range o.roundedTogether(seconds, run) {
			for _, i := range o.rounded(together) {
				seconds[i].times++
			}
		}
	}
	o.refund(r, r.Segments[0].FromMs/o.ms, seconds, runs)
	return seconds
}

// daily repeats the last billed second of a day until the day has its minimum.
func (o *oracle) daily(seconds []second, runs [][]int, minimum int) {
	count, last := map[int]int{}, map[int]int{}
	for i := range seconds {
		if seconds[i].run >= 0 {
			count[seconds[i].day]++
			last[seconds[i].day] = i
		}
	}
	for n, run := range runs {
		var longer []int
		for _, i := range run {
			longer = append(longer, i)
			if day := seconds[i].day; last[day] == i {
				for k := count[day]; k < minimum; k++ {
					longer = append(longer, i)
				}
			}
		}
		runs[n] = longer
	}
}

// roundedTogether divides the seconds of a run into what is rounded at once.
func (o *oracle) roundedTogether(seconds []second, run []int) (list [][]int) {
	if o.profile.Time.Per != PerSettlement {
		return [][]int{run}
	}
	for k, i := range run {
		if k == 0 || seconds[i].settlement != seconds[run[k-1]].settlement {
			list = append(list, nil)
		}
		list[len(list)-1] = append(list[len(list)-1], i)
	}
	return list
}

// rounded repeats the last second until the length is a multiple of the granularity, or
// takes seconds away from the end.
func (o *oracle) rounded(row []int) []int {
	whole := int(int64(o.profile.Time.Granularity) / o.ms)
	if whole == 0 {
		return row
	}
	more, less := 0, 0
	for (len(row)+more)%whole != 0 {
		more++
	}
	for (len(row)-less)%whole != 0 {
		less++
	}
	up := o.profile.Time.Rounding == RoundUp || o.profile.Time.Rounding == RoundNearest && more <= less
	if !up {
		return row[:len(row)-less]
	}
	for range more {
		row = append(row, row[len(row)-1])
	}
	return row
}

// refund marks what a run does not cost that the platform ended.
func (o *oracle) refund(r *Rental, first int64, seconds []second, runs [][]int) {
	spot := o.profile.Spot
	for n := range runs {
		begin := runs[n][0]
		end := begin
		for end+1 < len(seconds) && seconds[end+1].run == n {
			end++
		}
		length := end - begin + 1
		if !o.interruptedAt(r, first+int64(end)+1) || seconds[end].segment.Plan != "spot" || spot.Within > 0 && length >= int(int64(spot.Within)/o.ms) {
			continue
		}
		for i := begin; i <= end; i++ {
			hour := int(hourMs / o.ms)
			started := (i - begin) / hour // hours of the run before this second
			seconds[i].free = spot.Refund == RefundRun || spot.Refund == RefundHour && (started+1)*hour > length
		}
	}
}

// price looks for the price of a second in the whole list.
func (o *oracle) price(s *second, at int64) {
	g := s.segment
	found := o.entry(g, at)
	var rules []Adjustment
	if o.rules != nil {
		rules = o.rules(g, at)
	}
	in := situation{g, found, len(rules)}
	prices, ok := o.known[in]
	if !ok {
		prices = o.prices(g, found, rules)
		o.known[in] = prices
	}
	s.list, s.paid = prices[0], prices[1]
}

// entry is the position of the entry that says what a segment costs; -1 without one.
func (o *oracle) entry(g *Segment, at int64) int {
	found, best := -1, -1
	for i := range o.entries {
		e := &o.entries[i]
		valid := at*o.ms >= e.FromMs && at*o.ms < e.ToMs
		if !valid || e.Model != g.Model && e.Model != "*" || e.Platform != g.Platform && e.Platform != "" || e.Region != g.Region && e.Region != "" {
			continue
		}
		special := 0
		if e.Region != "" {
			special++
		}
		if e.Platform != "" {
			special += 2
		}
		if e.Model != "*" {
			special += 4
		}
		if special > best {
			best, found = special, i
		}
	}
	return found
}

// prices are the list price and what is paid for one second of all GPUs; nil without
// an entry.
func (o *oracle) prices(g *Segment, entry int, rules []Adjustment) [2]*big.Rat {
	gpus, list := big.NewRat(g.Gpus*o.ms, hourMs), (*big.Rat)(nil)
	if entry >= 0 {
		list = o.entries[entry].PerGPUHour
	}
	if g.State == "running_no_gpu" && o.profile.Billed.NoGPU != nil {
		list, gpus = o.profile.Billed.NoGPU, big.NewRat(o.ms, hourMs)
	}
	if list == nil {
		return [2]*big.Rat{}
	}
	return [2]*big.Rat{new(big.Rat).Mul(list, gpus), new(big.Rat).Mul(stacked(list, rules), gpus)}
}

// stacked goes through the stages one after the other, and in each through the rules
// by their ids.
func stacked(price *big.Rat, rules []Adjustment) *big.Rat {
	before := price // of the stage volume
	for stage := StageRegion; stage <= StageCap; stage++ {
		if stage == StageVolume {
			before = price
		}
		rest := slices.DeleteFunc(slices.Clone(rules), func(a Adjustment) bool { return a.Stage != stage })
		for len(rest) > 0 {
			next := 0
			for i := range rest {
				if rest[i].ID < rest[next].ID {
					next = i
				}
			}
			a := rest[next]
			rest = slices.Delete(rest, next, next+1)
			of := price
			if a.Additive {
				of = before
			}
			part := new(big.Rat).Mul(of, a.Value)
			switch a.Kind {
			case Uplift:
				price = new(big.Rat).Add(price, part)
			case Discount:
				price = new(big.Rat).Sub(price, part)
			case Factor:
				price = part
			case Fixed:
				price = a.Value
			case Cap:
				if price.Cmp(a.Value) > 0 {
					price = a.Value
				}
			}
			if price.Sign() < 0 {
				price = new(big.Rat)
			}
		}
	}
	return price
}

// money makes the amount of a settlement that is not negative.
func (o *oracle) money(x *big.Rat) *big.Rat {
	a := &o.profile.Amount
	if a.Rounding == "" || a.Per == PerBill || x.Sign() == 0 {
		return x
	}
	if a.FreeBelow != nil && x.Cmp(a.FreeBelow) < 0 {
		return new(big.Rat)
	}
	digit := big.NewRat(1, 1)
	for range a.Decimals {
		digit.Quo(digit, big.NewRat(10, 1))
	}
	units := new(big.Rat).Quo(x, digit)
	low := new(big.Int).Quo(units.Num(), units.Denom())
	twice := new(big.Rat).Sub(units, new(big.Rat).SetInt(low)) // of what is beyond
	twice.Add(twice, twice)
	more := false
	switch a.Rounding {
	case Up:
		more = twice.Sign() > 0
	case HalfUp:
		more = twice.Cmp(big.NewRat(1, 1)) >= 0
	case HalfEven:
		odd := new(big.Int).Rem(low, big.NewInt(2)).Sign() != 0
		more = twice.Cmp(big.NewRat(1, 1)) > 0 || odd && twice.Cmp(big.NewRat(1, 1)) == 0
	}
	if more {
		low.Add(low, big.NewInt(1))
	}
	x = new(big.Rat).Mul(new(big.Rat).SetInt(low), digit)
	if a.Minimum != nil && x.Cmp(a.Minimum) < 0 {
		return a.Minimum
	}
	return x
}
