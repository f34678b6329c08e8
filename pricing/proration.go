package pricing

import (
	"math/big"
	"time"
)

// MonthRule says what part of a month's price a span costs.
type MonthRule string

// Rules, after how platforms write them.
const (
	// MonthOfCalendar divides the span among the calendar months: 12 days of a month
	// of 30 and 8 of one of 31 are 12/30 + 8/31, and no intermediate result is rounded.
	MonthOfCalendar MonthRule = "calendar"
	// MonthOfCycle divides the length of the span by that of the billing cycle.
	MonthOfCycle MonthRule = "cycle"
	// MonthOf30Days and MonthOf730Hours are fixed lengths.
	MonthOf30Days   MonthRule = "30_days"
	MonthOf730Hours MonthRule = "730_hours"
)

const (
	hourMs = 3_600_000
	dayMs  = 24 * hourMs
)

// Part returns the part of a month's price that span costs. cycle is the billing
// cycle that it lies in, zone the platform's.
func (r MonthRule) Part(span, cycle Span, zone *time.Location) *big.Rat {
	switch r {
	case MonthOfCycle:
		return big.NewRat(span.Ms(), cycle.Ms())
	case MonthOf30Days:
		return big.NewRat(span.Ms(), 30*dayMs)
	case MonthOf730Hours:
		return big.NewRat(span.Ms(), 730*hourMs)
	}
	sum := new(big.Rat)
	for _, piece := range Cut(span.FromMs, span.ToMs, EveryMonth.Boundaries(span.FromMs, span.ToMs, zone)) {
		y, m, _ := time.UnixMilli(piece.FromMs).In(zone).Date()
		length := startOfDay(y, m+1, 1, zone) - startOfDay(y, m, 1, zone)
		sum.Add(sum, big.NewRat(piece.Ms(), length))
	}
	return sum
}

// Term is the time that a plan is bought for.
type Term string

// Terms, and the number of months of those that are made of months.
const (
	TermHour    Term = "hour"
	TermDay     Term = "day"
	TermWeek    Term = "week"
	TermMonth   Term = "month"
	TermQuarter Term = "quarter"
	TermYear    Term = "year"
)

var termMonths = map[Term]int{TermMonth: 1, TermQuarter: 3, TermYear: 12}

// DayCycle says when a day of a daily plan begins.
type DayCycle string

// Days of a plan: 24 hours from the start on, or dates.
const (
	RollingDay  DayCycle = "rolling"
	CalendarDay DayCycle = "calendar"
)

// Cycles returns the billing cycles of a plan that begins at an instant, until the
// end of the last one that has begun before untilMs. Cycles of months keep the
// anchor's day: see [AddMonths].
func (t Term) Cycles(startMs, untilMs int64, day DayCycle, zone *time.Location) []Span {
	var list []Span
	for at, n := startMs, 1; at < untilMs; n++ {
		next := t.end(startMs, at, n, day, zone)
		list = append(list, Span{at, next})
		at = next
	}
	return list
}

func (t Term) end(startMs, at int64, n int, day DayCycle, zone *time.Location) int64 {
	switch t {
	case TermHour:
		return at + hourMs
	case TermDay:
		if day == CalendarDay {
			return EveryDay.next(at, zone)
		}
		return at + dayMs
	case TermWeek:
		return at + 7*dayMs
	}
	return AddMonths(startMs, n*termMonths[t], zone)
}

// BreakEven returns how many hours of on-demand use a plan's price pays for. Whoever
// uses less is better off on demand; when it is more than the term has hours, that
// is everybody: never says so.
func BreakEven(planPrice, perHour *big.Rat, termHours int64) (hours *big.Rat, never bool) {
	if perHour.Sign() <= 0 {
		return nil, true
	}
	hours = new(big.Rat).Quo(planPrice, perHour)
	return hours, hours.Cmp(big.NewRat(termHours, 1)) > 0
}
