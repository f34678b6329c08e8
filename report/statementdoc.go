package report

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// States of a statement.
const (
	StateClosed = "closed"
	StateOpen   = "open" // what closing now would freeze
)

// Statement is what a tenant used in a calendar month, and what has changed in
// earlier closed months since they were last billed. Times are RFC 3339 in UTC.
//
// All rows are of one grouping, By. The sums of all columns hold as printed: rows
// add up to Totals, the rows of an adjustment to its Totals, those to
// AdjustmentTotals, and Due is Totals plus AdjustmentTotals.
type Statement struct {
	State            string           `json:"state" enum:"closed,open"`
	Tenant           string           `json:"tenant"`
	Period           string           `json:"period" doc:"Calendar month in the zone, YYYY-MM"`
	Zone             string           `json:"zone"`
	From             string           `json:"from"`
	To               string           `json:"to" doc:"Exclusive"`
	AsOf             string           `json:"as_of" doc:"Closing instant: what the stream had stored by then is in the statement"`
	ClosedAt         string           `json:"closed_at" doc:"Empty while open, as the next three"`
	ClosedBy         string           `json:"closed_by"`
	Reason           string           `json:"reason"`
	Override         string           `json:"override" doc:"Why it was closed before the grace time was over or with open incidents"`
	Incidents        []OpenIncident   `json:"incidents" doc:"Open incidents that touched the period"`
	IncidentsTotal   int              `json:"incidents_total"`
	Currency         *string          `json:"currency" doc:"Null without a price list"`
	PriceVersion     *string          `json:"price_version"`
	By               []string         `json:"by"`
	Rows             []StatementRow   `json:"rows"`
	Totals           StatementFigures `json:"totals"`
	Adjustments      []Adjustment     `json:"adjustments" doc:"Changes of earlier closed periods, by period"`
	AdjustmentTotals StatementFigures `json:"adjustment_totals"`
	Due              StatementFigures `json:"due" doc:"totals plus adjustment_totals"`
	Quality          schema.Quality   `json:"quality"`
	Previous         string           `json:"previous" doc:"Hash of the statement that was closed before; empty for the first"`
}

// OpenIncident is an incident that was open when a period was closed.
type OpenIncident struct {
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	Detail string `json:"detail"`
}

// StatementRow is one group of a statement, or its change.
type StatementRow struct {
	Keys map[string]string `json:"keys" doc:"The value of each key of by"`
	StatementFigures
}

// StatementFigures are usage and amounts, or their change, which may be negative.
// Amounts are nil when no time that they cover has a price. The exact ones are
// what was rounded: a decimal, or a fraction where that has no end.
type StatementFigures struct {
	AllocatedMs    int64   `json:"allocated_ms"`
	KnownMs        int64   `json:"known_ms"`
	ActiveMs       int64   `json:"active_ms"`
	IdleMs         int64   `json:"idle_ms"`
	UnknownMs      int64   `json:"unknown_ms"`
	Cost           *string `json:"cost"`
	IdleWaste      *string `json:"idle_waste"`
	UnpricedMs     int64   `json:"unpriced_ms"`
	FreeMs         int64   `json:"free_ms"`
	FreeCost       *string `json:"free_cost"`
	CostExact      *string `json:"cost_exact"`
	IdleWasteExact *string `json:"idle_waste_exact"`
	FreeCostExact  *string `json:"free_cost_exact"`
}

// Adjustment is the change of a closed period between the instant that it was
// billed through and the closing of the statement that holds the adjustment.
type Adjustment struct {
	Origin        string           `json:"origin" doc:"The closed period that changed"`
	BilledThrough string           `json:"billed_through" doc:"What was stored by then was billed before"`
	Rows          []StatementRow   `json:"rows" doc:"Groups that changed"`
	Totals        StatementFigures `json:"totals"`
	Events        Arrivals         `json:"events"`
	Prices        []PriceSource    `json:"prices,omitempty" doc:"Versions of the price book that changed what the period costs"`
}

// PriceSource is a version of a document that prices are from.
type PriceSource struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	AppliedAt string `json:"applied_at"`
	AppliedBy string `json:"applied_by"`
	Reason    string `json:"reason"`
	Forced    string `json:"forced,omitempty" doc:"Why it was applied although it changes closed periods"`
}

// MaxArrivals is how many events an adjustment lists at most.
const MaxArrivals = 100

// Arrivals are the events that came in between two instants, those stored first
// listed first.
type Arrivals struct {
	Total  int64     `json:"total"`
	Listed []Arrival `json:"listed" doc:"At most 100 of them"`

	usage int64 // of Total, the usage events
}

// Arrival is an event by which a period changed. Lease events and corrections
// have no unit and no interval.
type Arrival struct {
	Type     string `json:"type"`
	Source   string `json:"source"`
	ID       string `json:"id"`
	Payload  string `json:"payload_hash"`
	StoredAt string `json:"stored_at"`
	Unit     string `json:"unit"`
	Instance string `json:"instance"`
	Project  string `json:"project"`
	Start    string `json:"start"`
	End      string `json:"end"`
	Counted  bool   `json:"counted" doc:"False for another content of an identity that was stored before"`
}

func arrivalsOf(events []schema.StoredEvent, total int64, others []schema.OtherArrival, otherTotal int64) Arrivals {
	a := Arrivals{Total: total + otherTotal, Listed: []Arrival{}, usage: total}
	for i := range others {
		e := &others[i]
		a.Listed = append(a.Listed, Arrival{
			Type: e.Type, Source: e.Source, ID: e.ID, Payload: hex.EncodeToString(e.Payload[:]), StoredAt: storedText(e.StoredAtNs), Instance: e.Instance, Counted: true,
		})
	}
	for i := range events {
		e := &events[i]
		a.Listed = append(a.Listed, Arrival{
			Type: schema.TypeUsage, Source: e.Source, ID: e.ID, Payload: hex.EncodeToString(e.Payload[:]), StoredAt: storedText(e.StoredAtNs),
			Unit: e.Unit, Instance: e.Instance, Project: e.Project, Start: instantIn(utc, e.StartMs), End: instantIn(utc, e.EndMs), Counted: e.Counted,
		})
	}
	a.Listed = a.Listed[:min(len(a.Listed), MaxArrivals)]
	return a
}

// encodeStatement writes the canonical form: one line, keys always in the same
// order.
func encodeStatement(doc any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		panic(err) // texts, integers and maps of texts can always be written
	}
	return b.Bytes()
}

// line is one group with exact figures. Utilization and energy are not billed and
// not filled in.
type line struct {
	keys  []string
	order []string
	Figures
}

func linesOf(groups []*collected) []line {
	lines := make([]line, len(groups))
	for i, g := range groups {
		lines[i] = line{g.Row.Keys, g.Row.order, g.figures()}
	}
	return lines
}

// accumulate adds sign times b to f, exactly. An amount stays nil only where both
// are.
func (f *Figures) accumulate(b *Figures, sign int64) {
	for _, column := range timeColumns {
		*column(f) += sign * *column(b)
	}
	for _, column := range billedColumns {
		more := *column(b)
		if more == nil {
			continue
		}
		sum := new(big.Rat)
		if have := *column(f); have != nil {
			sum.Set(have)
		}
		*column(f) = sum.Add(sum, new(big.Rat).Mul(more, big.NewRat(sign, 1)))
	}
}

var timeColumns = [...]func(*Figures) *int64{
	func(f *Figures) *int64 { return &f.AllocatedMs },
	func(f *Figures) *int64 { return &f.KnownMs },
	func(f *Figures) *int64 { return &f.ActiveMs },
	func(f *Figures) *int64 { return &f.IdleMs },
	func(f *Figures) *int64 { return &f.UnknownMs },
	func(f *Figures) *int64 { return &f.UnpricedMs },
	func(f *Figures) *int64 { return &f.FreeMs },
}

// billedColumns are the amounts of a statement, in the order of its exact ones. What
// was used of the time, and what was reported twice, bill nothing.
var billedColumns = amountColumns[:3]

// changed says whether any billed column is not zero.
func (f *Figures) changed() bool {
	for _, column := range timeColumns {
		if *column(f) != 0 {
			return true
		}
	}
	for _, column := range billedColumns {
		if amount := *column(f); amount != nil && amount.Sign() != 0 {
			return true
		}
	}
	return false
}

// difference returns after minus before, the groups that changed, in order.
func difference(after, before []line) []line {
	byKey := map[string]*line{}
	add := func(list []line, sign int64) {
		for i := range list {
			id := fmt.Sprintf("%q", list[i].keys)
			if byKey[id] == nil {
				byKey[id] = &line{keys: list[i].keys, order: list[i].order}
			}
			byKey[id].accumulate(&list[i].Figures, sign)
		}
	}
	add(after, 1)
	add(before, -1)
	var changes []line
	for _, l := range byKey {
		if l.changed() {
			changes = append(changes, *l)
		}
	}
	slices.SortFunc(changes, func(a, b line) int { return slices.Compare(a.order, b.order) })
	return changes
}

// sums are figures as they are shown and as they are.
type sums struct{ shown, exact Figures }

func (s *sums) add(b *sums) {
	s.shown.accumulate(&b.shown, 1)
	s.exact.accumulate(&b.exact, 1)
}

func (s *sums) figures(currency string) StatementFigures {
	f := &s.shown
	return StatementFigures{
		AllocatedMs: f.AllocatedMs, KnownMs: f.KnownMs, ActiveMs: f.ActiveMs, IdleMs: f.IdleMs, UnknownMs: f.UnknownMs,
		UnpricedMs: f.UnpricedMs, FreeMs: f.FreeMs,
		Cost: orNil(amountText(f.Cost, currency)), IdleWaste: orNil(amountText(f.IdleWaste, currency)), FreeCost: orNil(amountText(f.FreeCost, currency)),
		CostExact: exactText(s.exact.Cost), IdleWasteExact: exactText(s.exact.IdleWaste), FreeCostExact: exactText(s.exact.FreeCost),
	}
}

func exactText(x *big.Rat) *string {
	if x == nil {
		return nil
	}
	return orNil(pricing.Exact(x))
}

// render rounds lines once and returns them as rows, with their sum.
func render(by []string, lines []line, currency string) ([]StatementRow, sums) {
	var total sums
	shown := make([]Figures, len(lines))
	parts := make([]*Figures, len(lines))
	for i := range lines {
		total.exact.accumulate(&lines[i].Figures, 1)
		shown[i] = lines[i].Figures
		parts[i] = &shown[i]
	}
	total.shown = total.exact
	roundColumns(parts, &total.shown)
	rows := make([]StatementRow, len(lines))
	for i := range lines {
		keys := make(map[string]string, len(by))
		for k, key := range by {
			keys[key] = lines[i].keys[k]
		}
		s := sums{shown: shown[i], exact: lines[i].Figures}
		rows[i] = StatementRow{Keys: keys, StatementFigures: s.figures(currency)}
	}
	return rows, total
}

// exactLines reads the rows of a frozen statement back.
func (d *Statement) exactLines() ([]line, error) {
	lines := make([]line, len(d.Rows))
	for i := range d.Rows {
		r := &d.Rows[i]
		l := line{Figures: Figures{
			AllocatedMs: r.AllocatedMs, KnownMs: r.KnownMs, ActiveMs: r.ActiveMs, IdleMs: r.IdleMs, UnknownMs: r.UnknownMs, UnpricedMs: r.UnpricedMs, FreeMs: r.FreeMs,
		}}
		for _, key := range d.By {
			l.keys = append(l.keys, r.Keys[key])
		}
		l.order = l.keys // no key of a statement sorts by anything but its text
		for k, text := range []*string{r.CostExact, r.IdleWasteExact, r.FreeCostExact} {
			if text == nil {
				continue
			}
			amount, ok := new(big.Rat).SetString(*text)
			if !ok {
				return nil, fmt.Errorf("statement %s of %s: row %d: %q is not an amount", d.Period, d.Tenant, i, *text)
			}
			*billedColumns[k](&l.Figures) = amount
		}
		lines[i] = l
	}
	return lines, nil
}

// period returns the calendar month YYYY-MM of a zone.
func period(zone *time.Location, text string) (fromMs, toMs int64, err error) {
	first, err := time.Parse("2006-01", text)
	if err != nil {
		return 0, 0, wrong("period", "%q is not a month such as 2026-03", clip(text))
	}
	fromMs, toMs = dayStart(zone, first), dayStart(zone, first.AddDate(0, 1, 0))
	if fromMs < schema.MinTimeMs || toMs > schema.MaxTimeMs {
		return 0, 0, wrong("period", "%s is outside 2000 to 2100, where every event lies", text)
	}
	return fromMs, toMs, nil
}

// checkStatementBy allows the keys that sort by their own text and of which a row
// of one statement can be compared with a row of another.
func checkStatementBy(by []string) error {
	if slices.Contains(by, "hour") || slices.Contains(by, "month") {
		return wrong("by", "a statement has no rows by hour or month; the shortest time is day")
	}
	return checkBy(by)
}

// StatementSummary is a closed period without its figures.
type StatementSummary struct {
	Period   string `json:"period"`
	Zone     string `json:"zone"`
	From     string `json:"from"`
	To       string `json:"to"`
	AsOf     string `json:"as_of"`
	ClosedAt string `json:"closed_at"`
	ClosedBy string `json:"closed_by"`
	Reason   string `json:"reason"`
	Override string `json:"override"`
	Hash     string `json:"hash" doc:"SHA-256 of the statement"`
	Previous string `json:"previous"`
}

func summaryOf(s *schema.Statement) StatementSummary {
	return StatementSummary{
		Period: s.Period, Zone: s.Zone, From: instantIn(utc, s.FromMs), To: instantIn(utc, s.ToMs), AsOf: instantIn(utc, s.AsOfMs),
		ClosedAt: instantIn(utc, s.ClosedAtMs), ClosedBy: s.ClosedBy, Reason: s.Reason, Override: s.Override, Hash: s.Hash, Previous: s.Previous,
	}
}

// StatementList lists the closed periods of a tenant in the order of closing.
type StatementList struct {
	Statements []StatementSummary `json:"statements"`
}

// StatementDiff is what changed in a closed period since it was closed: usage as
// known at AsOf, at the prices as known then, minus the frozen statement.
type StatementDiff struct {
	Tenant          string           `json:"tenant"`
	Period          string           `json:"period"`
	Zone            string           `json:"zone"`
	From            string           `json:"from"`
	To              string           `json:"to"`
	Hash            string           `json:"hash" doc:"SHA-256 of the statement compared with"`
	ClosedAsOf      string           `json:"closed_as_of"`
	AsOf            string           `json:"as_of"`
	Currency        *string          `json:"currency"`
	PriceVersion    *string          `json:"price_version" doc:"Of the statement"`
	PriceVersionNow *string          `json:"price_version_now"`
	By              []string         `json:"by"`
	Rows            []StatementRow   `json:"rows" doc:"Groups that changed"`
	Totals          StatementFigures `json:"totals"`
	Events          Arrivals         `json:"events"`
	Prices          []PriceSource    `json:"prices,omitempty" doc:"Versions of the price book since it was closed that change what the period costs"`
}

// compareChain orders candidates for one place of a chain.
func compareChain(a, b schema.Statement) int {
	return cmp.Or(cmp.Compare(a.ClosedAtMs, b.ClosedAtMs), cmp.Compare(a.Hash, b.Hash))
}

// chain returns the statements that count, in the order of closing. rows are all
// that were ever stored, in any order and with any repetition.
//
// Each statement names the one before it. Where several name the same, one that
// was built upon counts, then the one closed first, then the lower hash; so once
// a statement has a successor it stays. A row that names a statement which is not
// in the chain is an error: something in between was lost or changed.
func chain(tenant string, rows []schema.Statement) ([]schema.Statement, error) {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, compareChain)
	rows = slices.CompactFunc(rows, func(a, b schema.Statement) bool { return a.Hash == b.Hash })
	after := map[string][]schema.Statement{}
	for _, r := range rows {
		after[r.Previous] = append(after[r.Previous], r)
	}
	var list []schema.Statement
	inChain := map[string]bool{"": true}
	for head := ""; len(after[head]) > 0; head = list[len(list)-1].Hash {
		candidates := after[head]
		next := 0
		if i := slices.IndexFunc(candidates, func(s schema.Statement) bool { return len(after[s.Hash]) > 0 }); i > 0 {
			next = i
		}
		if inChain[candidates[next].Hash] {
			return nil, fmt.Errorf("statements of %s: %s follows itself", tenant, candidates[next].Hash)
		}
		list = append(list, candidates[next])
		inChain[candidates[next].Hash] = true
	}
	for _, r := range rows {
		if !inChain[r.Previous] {
			return nil, fmt.Errorf("statements of %s: the one of %s, closed at %s, follows one with the hash %s that is missing or not the one that counts",
				tenant, r.Period, instantIn(utc, r.ClosedAtMs), strconv.Quote(r.Previous))
		}
	}
	return list, nil
}
