package pricing

import "time"

// TimeRule is how a platform turns the time of a run into time that it bills. A run
// begins when billing does and ends when it does; a stop and a new start are two.
type TimeRule struct {
	Granularity int64      // ms that time is billed in whole multiples of; 0 or 1 = exact
	Rounding    TimeRound  // of a started multiple
	Per         RoundScope // what is rounded
	MinimumMs   int64      // least time of a start, or of a day with any run
	MinimumPer  MinimumPer // which of them
	Settle      Every      // money is taken at these boundaries; empty = at the end of the run
	Zone        *time.Location
}

// TimeRound is what becomes of a started multiple of the granularity.
type TimeRound string

// Ways to round time.
const (
	RoundUp      TimeRound = "up" // a started one counts whole
	RoundDown    TimeRound = "down"
	RoundNearest TimeRound = "nearest" // half up
)

// RoundScope is what is rounded: a run as a whole, or what is settled of it at once.
type RoundScope string

// Scopes of rounding.
const (
	PerRun        RoundScope = "run"
	PerSettlement RoundScope = "settlement"
)

// MinimumPer is what a minimum is applied to.
type MinimumPer string

// Scopes of a minimum.
const (
	PerStart MinimumPer = "start"
	PerDay   MinimumPer = "day"
)

// Billed is a piece of a run, within one settlement and between the cuts, and the
// time that is billed for it.
type Billed struct {
	Span
	// BilledMs is Ms() plus what minimum and rounding add, which is negative when
	// time is rounded down: BilledMs = Ms() + MinimumMs + RoundingMs.
	BilledMs   int64
	MinimumMs  int64
	RoundingMs int64
	Run        int // position of its run
}

// Bill bills the runs of one rental, in order and not overlapping, each cut at the
// settlement boundaries and at cuts.
//
// The minimum is applied first and rounding then, both before a run is cut: a run
// that is cut at midnight has one minimum. What they add lies behind the end of the
// run, so it goes to the last piece, and what rounding takes away is taken from the
// end; a run that is rounded per settlement has the rounding of each at the end of
// each. So a cut that is not a settlement boundary never changes a total.
func (r *TimeRule) Bill(runs []Span, cuts []int64) []Billed {
	var list []Billed
	var ends []int // of what is rounded at once
	for n, run := range runs {
		settled := []Span{run}
		if r.Settle != "" {
			settled = Cut(run.FromMs, run.ToMs, r.Settle.Boundaries(run.FromMs, run.ToMs, r.Zone))
		}
		for i, s := range settled {
			for _, piece := range Cut(s.FromMs, s.ToMs, cuts, r.days(s)) {
				list = append(list, Billed{Span: piece, BilledMs: piece.Ms(), Run: n})
			}
			if r.Per == PerSettlement || i == len(settled)-1 {
				ends = append(ends, len(list))
			}
		}
		if r.MinimumPer == PerStart {
			list[len(list)-1].raise(r.MinimumMs - run.Ms())
		}
	}
	if r.MinimumPer == PerDay {
		r.daily(list)
	}
	from := 0
	for _, end := range ends {
		r.round(list[from:end])
		from = end
	}
	return list
}

// days are the boundaries that a minimum per day needs.
func (r *TimeRule) days(s Span) []int64 {
	if r.MinimumPer != PerDay {
		return nil
	}
	return EveryDay.Boundaries(s.FromMs, s.ToMs, r.Zone)
}

func (b *Billed) raise(ms int64) {
	if ms > 0 {
		b.MinimumMs += ms
		b.BilledMs += ms
	}
}

// round rounds pieces as one. What is cut off is cut off at the end, and no piece is
// left with less than nothing.
func (r *TimeRule) round(list []Billed) {
	whole := Total(list)
	change := r.rounded(whole) - whole
	for i := len(list) - 1; i >= 0 && change != 0; i-- {
		b := &list[i]
		ms := max(change, -b.BilledMs)
		b.RoundingMs += ms
		b.BilledMs += ms
		change -= ms
	}
}

func (r *TimeRule) rounded(ms int64) int64 {
	g := r.Granularity
	if g <= 1 {
		return ms
	}
	switch over := ms % g; {
	case over == 0, r.Rounding == RoundDown, r.Rounding == RoundNearest && over*2 < g:
		return ms - over
	default:
		return ms - over + g
	}
}

// daily raises the last piece of every day to the day's minimum.
func (r *TimeRule) daily(list []Billed) {
	for from := 0; from < len(list); {
		end := EveryDay.next(list[from].FromMs, r.Zone)
		to, sum := from, int64(0)
		for to < len(list) && list[to].FromMs < end {
			sum += list[to].BilledMs
			to++
		}
		list[to-1].raise(r.MinimumMs - sum)
		from = to
	}
}

// Total sums up what is billed.
func Total(list []Billed) (ms int64) {
	for i := range list {
		ms += list[i].BilledMs
	}
	return ms
}
