package pricing

import (
	"slices"
	"time"
)

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
	// Settlements is how many settlements in a row the piece puts together: whole
	// ones, with as much time billed in each. Settlement is when the first one ends.
	Settlements int64
	Settlement  int64
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
	sorted := slices.Clone(cuts)
	slices.Sort(sorted)
	var list []Billed
	for n, run := range runs {
		inside := r.inside(run, sorted)
		for _, s := range r.Settle.stretches(run, r.Zone) {
			from, _ := slices.BinarySearch(inside, s.FromMs+1)
			to, _ := slices.BinarySearch(inside, s.ToMs)
			for _, piece := range s.cut(slices.Clip(inside[from:to])) {
				list = append(list, Billed{Span: piece.Span, BilledMs: piece.Ms(), Run: n, Settlements: piece.n, Settlement: piece.ends})
			}
		}
		if r.MinimumPer == PerStart {
			list = raise(list, len(list)-1, r.MinimumMs-run.Ms())
		}
	}
	if r.MinimumPer == PerDay {
		list = r.daily(list)
	}
	if r.Granularity <= 1 {
		return list
	}
	return r.round(list)
}

// inside are the cuts within a run, with the boundaries that a minimum per day needs.
func (r *TimeRule) inside(run Span, sorted []int64) []int64 {
	from, _ := slices.BinarySearch(sorted, run.FromMs+1)
	to, _ := slices.BinarySearch(sorted, run.ToMs)
	inside := sorted[from:to]
	if r.MinimumPer == PerDay {
		inside = append(slices.Clip(inside), EveryDay.Boundaries(run.FromMs, run.ToMs, r.Zone)...)
		slices.Sort(inside)
	}
	return slices.Compact(slices.Clone(inside))
}

// last makes a settlement of its own of the last one of a piece: it is to be billed
// otherwise than those before.
func last(list []Billed, i int) ([]Billed, int) {
	b := list[i]
	if b.Settlements == 1 {
		return list, i
	}
	unit := b.BilledMs / b.Settlements
	length := b.Ms() / b.Settlements
	end := b
	end.FromMs, end.Settlement, end.Settlements = b.ToMs-length, b.Settlement+(b.Settlements-1)*length, 1
	end.BilledMs, end.MinimumMs, end.RoundingMs = unit, b.MinimumMs/b.Settlements, b.RoundingMs/b.Settlements
	b.ToMs, b.Settlements = end.FromMs, b.Settlements-1
	b.BilledMs, b.MinimumMs, b.RoundingMs = b.BilledMs-unit, b.MinimumMs-end.MinimumMs, b.RoundingMs-end.RoundingMs
	list[i] = b
	return slices.Insert(list, i+1, end), i + 1
}

// raise bills more time at the end of a piece.
func raise(list []Billed, i int, ms int64) []Billed {
	if ms > 0 {
		list, i = last(list, i)
		list[i].MinimumMs += ms
		list[i].BilledMs += ms
	}
	return list
}

// round rounds what is rounded at once: a run, or what is settled of it at once.
func (r *TimeRule) round(list []Billed) []Billed {
	out := make([]Billed, 0, len(list))
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && list[to].Run == list[from].Run && (r.Per != PerSettlement || list[to].Settlement == list[from].Settlement) {
			to++
		}
		out = append(out, r.roundOne(slices.Clone(list[from:to]))...)
		from = to
	}
	return out
}

// roundOne rounds pieces as one. What is cut off is cut off at the end, and no piece is
// left with less than nothing.
func (r *TimeRule) roundOne(list []Billed) []Billed {
	if b := &list[0]; r.Per == PerSettlement && b.Settlements > 1 {
		change := b.Settlements * (r.rounded(b.BilledMs/b.Settlements) - b.BilledMs/b.Settlements)
		b.RoundingMs += change
		b.BilledMs += change
		return list
	}
	whole := Total(list)
	change := r.rounded(whole) - whole
	for i := len(list) - 1; i >= 0 && change != 0; {
		list, i = last(list, i)
		b := &list[i]
		ms := max(change, -b.BilledMs)
		b.RoundingMs += ms
		b.BilledMs += ms
		if change -= ms; change != 0 && i > 0 {
			i--
		} else if change != 0 {
			break
		}
	}
	return list
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
func (r *TimeRule) daily(list []Billed) []Billed {
	for from := 0; from < len(list); {
		end := EveryDay.next(list[from].FromMs, r.Zone)
		to, sum := from, int64(0)
		for to < len(list) && list[to].FromMs < end {
			sum += list[to].BilledMs
			to++
		}
		before := len(list)
		list = raise(list, to-1, r.MinimumMs-sum)
		from = to + len(list) - before
	}
	return list
}

// Total sums up what is billed.
func Total(list []Billed) (ms int64) {
	for i := range list {
		ms += list[i].BilledMs
	}
	return ms
}
