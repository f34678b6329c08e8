package report

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// OverviewParams ask what is being spent. From and To choose the range of Overview.Range,
// Series and By, written as in [Params]; by default it is the month to date. AsOf moves
// the whole overview into the past.
type OverviewParams struct {
	Tenant, Zone   string
	From, To, AsOf string
	Filter         map[string]string
	Projects       []string // nil = all
}

// Overview is what a dashboard shows first. All of its figures come from one answer of
// the store, so those of the days add up to those of the month.
type Overview struct {
	At              string            `json:"at" format:"date-time" doc:"Instant that the overview is of"`
	Zone            string            `json:"zone"`
	Currency        *string           `json:"currency" nullable:"true" doc:"Null without a price list"`
	Filter          map[string]string `json:"filter"`
	Now             NowFigures        `json:"now"`
	Today           SpanFigures       `json:"today" doc:"Since midnight in the zone"`
	Month           SpanFigures       `json:"month" doc:"Since the month began in the zone"`
	LastMonth       SpanFigures       `json:"last_month" doc:"The whole month before"`
	LastMonthToDate SpanFigures       `json:"last_month_to_date" doc:"The month before, as far as this one has come"`
	Budget          *BudgetFigures    `json:"budget" doc:"Null when there is none for what is asked for"`
	Forecast        *Forecast         `json:"forecast" doc:"Null when nothing is known to foresee it by"`
	Hours           []KeyFigures      `json:"hours" doc:"Of the last 24 hours, the one that has begun among them"`
	Range           SpanFigures       `json:"range" doc:"The span that was asked for; the month to date by default"`
	Series          Series            `json:"series" doc:"The range over time"`
	By              OverviewBy        `json:"by" doc:"The range by what it was spent on; the rows of each list add up to the range"`
	Coverage        *string           `json:"coverage" nullable:"true" doc:"Part of the range's allocated time of which it is known what the units did; null without any"`
	Quality         *SpanQuality      `json:"quality" doc:"Of the last 24 hours; null for those who may see some projects only"`
}

// Shown are figures with the currency that their amounts are written in.
type Shown struct {
	Figures
	Currency string
}

// MarshalJSON writes the columns of a report.
func (s Shown) MarshalJSON() ([]byte, error) {
	return append(appendFigures([]byte("{"), &s.Figures, s.Currency), '}'), nil
}

// SpanFigures are the figures of a span.
type SpanFigures struct {
	From    string `json:"from" format:"date-time"`
	To      string `json:"to" format:"date-time" doc:"Exclusive"`
	Figures Shown  `json:"figures"`
}

// KeyFigures are the figures of one value of a key.
type KeyFigures struct {
	Key string `json:"key" doc:"As in a report; empty = without one"`
	SpanFigures
}

// Series are figures over time.
type Series struct {
	Step   string       `json:"step" enum:"hour,day,month"`
	Points []KeyFigures `json:"points"`
}

// OverviewBy are figures by what they are of, most cost first.
type OverviewBy struct {
	Project  []KeyFigures `json:"project"`
	Model    []KeyFigures `json:"model"`
	Platform []KeyFigures `json:"platform"`
	Plan     []KeyFigures `json:"plan"`
}

// NowFigures are the latest minutes of which everything should have come in. What
// happens in them is said per hour.
type NowFigures struct {
	SpanFigures
	BurnPerHour  *string `json:"burn_per_hour" nullable:"true" doc:"Effective cost of an hour at this pace"`
	WastePerHour *string `json:"waste_per_hour" nullable:"true" doc:"Idle waste of an hour at this pace"`
	Gpus         GpusNow `json:"gpus" doc:"How many units on average"`
}

// GpusNow are numbers of units, as decimals.
type GpusNow struct {
	Allocated string `json:"allocated"`
	Active    string `json:"active"`
	Idle      string `json:"idle" doc:"Held and idle"`
	Free      string `json:"free"`
	Unknown   string `json:"unknown"`
}

// SpanQuality is the quality of the data of a span.
type SpanQuality struct {
	From string `json:"from" format:"date-time"`
	To   string `json:"to" format:"date-time"`
	schema.Quality
}

// nowDelay is how long after a minute has ended all of its events should have come:
// agents send one a minute, and a second or two pass until it is added up. nowMinutes are
// added up, so that one late event does not make the pace jump.
const (
	nowDelay   = 2 * schema.MinuteMs
	nowMinutes = 5
)

// overviewSpans are the spans that an overview is about.
type overviewSpans struct {
	atMs, endOfMonthMs                      int64
	now, today, month, last, lastPart, span pricing.Span
	hours, week                             pricing.Span // 24 hours; whole days before today
}

func (o *overviewSpans) all() []pricing.Span {
	return []pricing.Span{o.now, o.today, o.month, o.last, o.lastPart, o.span, o.hours, o.week}
}

// Overview answers what is being spent. A *RequestError says that the question is wrong.
func (s *Service) Overview(ctx context.Context, p OverviewParams) (*Overview, error) {
	req, spans, err := parseOverview(p, s.Now())
	if err != nil {
		return nil, err
	}
	if err := s.known(ctx, req.AsOfMs, req.NowMs); err != nil {
		return nil, err
	}
	ch, err := s.charges(ctx, &req)
	if err != nil {
		return nil, err
	}
	b, err := s.board(ctx, &req, ch, spans)
	if err != nil {
		return nil, err
	}
	o := b.overview(spans)
	if err := ch.err(); err != nil {
		return nil, err
	}
	if s.Budget != nil && !req.scoped() {
		if o.Budget, err = b.budget(s.Budget(req.Tenant, req.Filter), o); err != nil {
			return nil, err
		}
	}
	if req.scoped() {
		return o, nil
	}
	day := pricing.Span{FromMs: spans.atMs - dayMs, ToMs: spans.atMs}
	quality, err := s.Store.Quality(ctx, req.Tenant, day.FromMs, day.ToMs, req.AsOfMs)
	if err != nil {
		return nil, fmt.Errorf("overview: quality: %w", err)
	}
	o.Quality = &SpanQuality{instantIn(utc, day.FromMs), instantIn(utc, day.ToMs), quality}
	return o, nil
}

// parseOverview checks a question. The request's span holds all spans of the overview.
func parseOverview(p OverviewParams, now time.Time) (Request, *overviewSpans, error) {
	now = now.Truncate(time.Second) // a span that ends in a whole second is easier to ask for again
	q := Params{Tenant: p.Tenant, Zone: p.Zone, From: p.From, To: p.To, AsOf: p.AsOf, Filter: p.Filter, By: []string{"project"}, Projects: p.Projects}
	if q.To == "" {
		q.To = q.AsOf
	}
	r, err := Parse(q, now)
	if err != nil {
		return r, nil, err
	}
	o := &overviewSpans{atMs: r.until(), span: pricing.Span{FromMs: r.FromMs, ToMs: r.ToMs}}
	local := time.UnixMilli(o.atMs - 1).In(r.Zone)
	day := func(year int, month time.Month, day int) int64 {
		return dayStart(r.Zone, time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
	}
	y, m, d := local.Date()
	o.today = pricing.Span{FromMs: day(y, m, d), ToMs: o.atMs}
	o.week = pricing.Span{FromMs: day(y, m, d-forecastDays), ToMs: o.today.FromMs}
	o.month = pricing.Span{FromMs: day(y, m, 1), ToMs: o.atMs}
	o.endOfMonthMs = day(y, m+1, 1)
	o.last = pricing.Span{FromMs: day(y, m-1, 1), ToMs: o.month.FromMs}
	o.lastPart = pricing.Span{FromMs: o.last.FromMs, ToMs: min(o.last.FromMs+o.month.Ms(), o.last.ToMs)}
	end := schema.Floor(o.atMs-nowDelay, schema.MinuteMs)
	o.now = pricing.Span{FromMs: end - nowMinutes*schema.MinuteMs, ToMs: end}
	o.hours = pricing.Span{FromMs: schema.Floor(o.atMs-1, schema.HourMs) - 23*schema.HourMs, ToMs: o.atMs}
	for _, span := range o.all() {
		r.FromMs, r.ToMs = min(r.FromMs, span.FromMs), max(r.ToMs, span.ToMs)
	}
	return r, o, nil
}

// Budget is an amount that may be spent in a month.
type Budget struct {
	Amount   *big.Rat
	Currency string
}

// BudgetFigures say how much of a budget is spent, by effective cost.
type BudgetFigures struct {
	Amount    string `json:"amount" doc:"For the whole month"`
	Spent     string `json:"spent" doc:"In the month to date"`
	Left      string `json:"left" doc:"Negative when it is overspent"`
	UsedShare string `json:"used_share" doc:"Spent part, at most six decimals"`
}

// budget is nil without a budget, and when nothing that was spent has a price.
func (b *board) budget(of *Budget, o *Overview) (*BudgetFigures, error) {
	spent := o.Month.Figures.EffectiveCost
	if of == nil || spent == nil {
		return nil, nil
	}
	if of.Currency != b.ch.currency {
		return nil, wrong("filter", "the budget is in %s and the cost in %s, which cannot be compared; give the budget in %s", of.Currency, b.ch.currency, b.ch.currency)
	}
	return &BudgetFigures{
		Amount: pricing.Format(of.Amount, of.Currency), Spent: pricing.Format(spent, of.Currency),
		Left:      pricing.Format(new(big.Rat).Sub(of.Amount, spent), of.Currency),
		UsedShare: trimmed(new(big.Rat).Quo(spent, of.Amount), 6),
	}, nil
}

// Forecast is what the month will have cost when it ends.
type Forecast struct {
	Amount   string `json:"amount" doc:"Effective cost to date, and the rest of the month at the mean pace of the days it is foreseen by"`
	Low      string `json:"low" doc:"The rest at the pace of the cheapest of those days"`
	High     string `json:"high" doc:"The rest at the pace of the dearest"`
	DaysUsed int    `json:"days_used" doc:"The last whole days, at most seven; 0 = it goes on as now"`
	Method   string `json:"method" enum:"mean_of_days,pace_of_now"`
}

// forecastDays is how many days a forecast looks back: a week has all of its weekdays.
const forecastDays = 7

// forecast goes on from the month to date as the last whole days went, those since
// anything was allocated; before the first of them is over, as the last minutes did.
func (b *board) forecast(o *overviewSpans, days []*panel, now *panel, month *Figures) *Forecast {
	if month.EffectiveCost == nil {
		return nil
	}
	var paces []*big.Rat // per millisecond
	for _, d := range days {
		f := d.figures()
		if len(paces) == 0 && f.AllocatedMs == 0 {
			continue
		}
		pace := new(big.Rat)
		if f.EffectiveCost != nil {
			pace.Quo(f.EffectiveCost, big.NewRat(d.Ms(), 1))
		}
		paces = append(paces, pace)
	}
	f := &Forecast{DaysUsed: len(paces), Method: "mean_of_days"}
	if len(paces) == 0 {
		n := now.figures()
		if n.EffectiveCost == nil {
			return nil
		}
		f.Method = "pace_of_now"
		paces = append(paces, new(big.Rat).Quo(n.EffectiveCost, big.NewRat(now.Ms(), 1)))
	}
	mean := new(big.Rat)
	for _, pace := range paces {
		mean.Add(mean, pace)
	}
	mean.Quo(mean, big.NewRat(int64(len(paces)), 1))
	at := func(pace *big.Rat) string {
		rest := new(big.Rat).Mul(pace, big.NewRat(o.endOfMonthMs-o.atMs, 1))
		return pricing.Format(rest.Add(rest, month.EffectiveCost), b.ch.currency)
	}
	compare := func(x, y *big.Rat) int { return x.Cmp(y) }
	f.Amount, f.Low, f.High = at(mean), at(slices.MinFunc(paces, compare)), at(slices.MaxFunc(paces, compare))
	return f
}

// overview puts the parts together.
func (b *board) overview(o *overviewSpans) *Overview {
	r := &Overview{
		At: instantIn(utc, o.atMs), Zone: b.req.ZoneName, Currency: orNil(b.ch.currency), Filter: b.req.Filter,
		Today: b.one(o.today), Month: b.one(o.month), LastMonth: b.one(o.last), LastMonthToDate: b.one(o.lastPart), Range: b.one(o.span),
		Hours: b.buckets("hour", o.hours),
	}
	if r.Filter == nil {
		r.Filter = map[string]string{}
	}
	r.Series.Step = stepOf(o.span)
	r.Series.Points = b.buckets(r.Series.Step, o.span)
	now := b.panel(o.now)
	r.Now = b.now(now)
	r.Forecast = b.forecast(o, b.panels("day", o.week), now, &r.Month.Figures.Figures)
	f := &r.Range.Figures
	if f.AllocatedMs > 0 {
		r.Coverage = decimalOrNil(big.NewRat(f.KnownMs, f.AllocatedMs))
	}
	key := func(of func(p *boardPart) string) []KeyFigures { return b.by(o.span, of) }
	r.By = OverviewBy{
		Project: key(func(p *boardPart) string { return p.project }), Model: key(func(p *boardPart) string { return p.model }),
		Platform: key(func(p *boardPart) string { return p.platform }), Plan: key(func(p *boardPart) string { return p.plan }),
	}
	return r
}

// stepOf is the step in which a span has some tens of points.
func stepOf(s pricing.Span) string {
	switch {
	case s.Ms() <= 3*dayMs:
		return "hour"
	case s.Ms() <= 100*dayMs:
		return "day"
	}
	return "month"
}

func (b *board) now(p *panel) NowFigures {
	f := p.figures()
	hourly := func(x *big.Rat) *string {
		if x == nil {
			return nil
		}
		return amountOrNil(new(big.Rat).Mul(x, big.NewRat(schema.HourMs, p.Ms())), b.ch.currency)
	}
	units := func(ms int64) string { return trimmed(big.NewRat(ms, p.Ms()), 3) }
	return NowFigures{
		SpanFigures: b.shown(p), BurnPerHour: hourly(f.EffectiveCost), WastePerHour: hourly(f.IdleWaste),
		Gpus: GpusNow{units(f.AllocatedMs), units(f.ActiveMs), units(f.IdleMs - f.FreeMs), units(f.FreeMs), units(f.UnknownMs)},
	}
}

// by are the rows of a span by a key, most cost first, rounded so that they add up.
func (b *board) by(span pricing.Span, of func(*boardPart) string) []KeyFigures {
	groups := map[string]*collector{}
	total := &panel{Span: span}
	for i := range b.parts {
		p := &b.parts[i]
		if !total.holds(b, p.piece) {
			continue
		}
		c := groups[of(p)]
		if c == nil {
			c = &collector{}
			groups[of(p)] = c
		}
		p.into(c)
		p.into(&total.collector)
	}
	keys := make([]string, 0, len(groups))
	for key := range groups {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	figures := make([]Figures, len(keys))
	rows := make([]*Figures, len(keys))
	for i, key := range keys {
		figures[i] = groups[key].figures()
		rows[i] = &figures[i]
	}
	sum := total.figures()
	roundColumns(rows, &sum)
	list := make([]KeyFigures, len(keys))
	for i, key := range keys {
		list[i] = KeyFigures{key, b.span(span, figures[i])}
	}
	slices.SortStableFunc(list, func(x, y KeyFigures) int {
		a, c := x.Figures.EffectiveCost, y.Figures.EffectiveCost
		if a == nil || c == nil {
			return cmp.Or(cmp.Compare(boolInt(c != nil), boolInt(a != nil)), cmp.Compare(y.Figures.AllocatedMs, x.Figures.AllocatedMs))
		}
		return c.Cmp(a)
	})
	return list
}
