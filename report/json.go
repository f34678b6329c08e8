package report

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// JSON writes the report on one line, keys always in the same order, so that
// equal reports are equal bytes. Instants are RFC 3339 in UTC; an amount, a
// utilization or an energy that is not known is null.
func (r *Report) JSON() []byte {
	b := []byte("{")
	b = appendText(appendName(b, "from"), instantIn(utc, r.FromMs))
	b = appendText(appendName(b, "to"), instantIn(utc, r.ToMs))
	b = appendText(appendName(b, "as_of"), instantIn(utc, r.asOf()))
	b = appendText(appendName(b, "zone"), r.ZoneName)
	if r.Kind != "quality" {
		b = appendName(b, "currency")
		if r.Currency == "" {
			b = append(b, "null"...)
		} else {
			b = appendText(b, r.Currency)
		}
		b = append(appendName(b, "by"), '[')
		for i, key := range r.By {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, key)
		}
		b = append(appendName(append(b, ']'), "rows"), '[')
		for i := range r.Rows {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, '{')
			for k, key := range r.By {
				b = appendText(appendName(b, key), r.Rows[i].Keys[k])
			}
			b = append(appendFigures(b, &r.Rows[i].Figures, r.Currency), '}')
		}
		b = append(appendName(append(b, ']'), "totals"), '{')
		b = append(appendFigures(b, &r.Totals, r.Currency), '}')
		b = r.appendPart(b)
	} else {
		b = appendSources(b, r)
	}
	b = append(appendName(b, "quality"), '{')
	for _, q := range qualityColumns(&r.Quality) {
		if b = appendName(b, q.name); r.scoped() {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendInt(b, q.value, 10)
		}
	}
	b = append(b, '}')
	if r.Kind == "quality" {
		b = append(appendName(b, "conflict_list"), r.conflictsJSON()...)
		b = appendIncidents(b, r.Incidents)
	}
	return append(b, "}\n"...)
}

// appendPart says what the rows are a part of, when they are.
func (r *Report) appendPart(b []byte) []byte {
	if r.Top > 0 {
		b = strconv.AppendInt(appendName(b, "row_count"), r.RowCount, 10)
	}
	switch {
	case r.Limit == 0:
	case r.Next == "":
		b = append(appendName(b, "next"), "null"...)
	default:
		b = appendText(appendName(b, "next"), r.Next)
	}
	return b
}

// MarshalJSON writes the same as JSON.
func (r *Report) MarshalJSON() ([]byte, error) { return r.JSON(), nil }

func appendFigures(b []byte, f *Figures, currency string) []byte {
	for _, c := range figureColumns {
		b = appendName(b, c.name)
		switch text := c.text(f, currency); {
		case text == "":
			b = append(b, "null"...)
		case c.quoted:
			b = appendText(b, text)
		default:
			b = append(b, text...)
		}
	}
	return b
}

// figureColumns are the columns of JSON and CSV in their order. Text is "" for
// unknown; amounts and ratios are quoted in JSON, because most readers of JSON
// would turn a bare decimal into a binary fraction.
var figureColumns = [...]struct {
	name   string
	quoted bool
	text   func(f *Figures, currency string) string
}{
	{"allocated_ms", false, func(f *Figures, _ string) string { return strconv.FormatInt(f.AllocatedMs, 10) }},
	{"known_ms", false, func(f *Figures, _ string) string { return strconv.FormatInt(f.KnownMs, 10) }},
	{"active_ms", false, func(f *Figures, _ string) string { return strconv.FormatInt(f.ActiveMs, 10) }},
	{"idle_ms", false, func(f *Figures, _ string) string { return strconv.FormatInt(f.IdleMs, 10) }},
	{"unknown_ms", false, func(f *Figures, _ string) string { return strconv.FormatInt(f.UnknownMs, 10) }},
	{"utilization", true, func(f *Figures, _ string) string { return ratioText(f.Utilization) }},
	{"cost", true, func(f *Figures, currency string) string { return amountText(f.Cost, currency) }},
	{"idle_waste", true, func(f *Figures, currency string) string { return amountText(f.IdleWaste, currency) }},
	{"unpriced_ms", false, func(f *Figures, _ string) string { return strconv.FormatInt(f.UnpricedMs, 10) }},
	{"free_ms", false, func(f *Figures, _ string) string { return strconv.FormatInt(f.FreeMs, 10) }},
	{"free_cost", true, func(f *Figures, currency string) string { return amountText(f.FreeCost, currency) }},
	{"energy_mj", false, func(f *Figures, _ string) string { return bigText(f.EnergyMj) }},
	{"overlap_ms", false, func(f *Figures, _ string) string { return strconv.FormatInt(f.OverlapMs, 10) }},
	{"oversubscribed_ms", false, func(f *Figures, _ string) string { return strconv.FormatInt(f.OversubscribedMs, 10) }},
	{"used_cost", true, func(f *Figures, currency string) string { return amountText(f.UsedCost, currency) }},
	{"unused_cost", true, func(f *Figures, currency string) string { return amountText(f.UnusedCost, currency) }},
	{"list_cost", true, func(f *Figures, currency string) string { return amountText(f.ListCost, currency) }},
	{"effective_cost", true, func(f *Figures, currency string) string { return amountText(f.EffectiveCost, currency) }},
	{"useful_cost", true, func(f *Figures, currency string) string { return amountText(f.UsefulCost, currency) }},
	{"unknown_cost", true, func(f *Figures, currency string) string { return amountText(f.UnknownCost, currency) }},
	{"stopped_cost", true, func(f *Figures, currency string) string { return amountText(f.StoppedCost, currency) }},
	{"minimum_cost", true, func(f *Figures, currency string) string { return amountText(f.MinimumCost, currency) }},
	{"commitment_unused_cost", true, func(f *Figures, currency string) string { return amountText(f.CommitmentUnusedCost, currency) }},
	{"rework_cost", true, func(f *Figures, currency string) string { return amountText(f.ReworkCost, currency) }},
	{"meter_cost", true, func(f *Figures, currency string) string { return amountText(f.MeterCost, currency) }},
	{"credit_cost", true, func(f *Figures, currency string) string { return amountText(f.CreditCost, currency) }},
}

type qualityColumn struct {
	name  string
	value int64
}

func qualityColumns(q *schema.Quality) [7]qualityColumn {
	return [...]qualityColumn{
		{"conflicts", q.Conflicts}, {"quarantined", q.Quarantined}, {"late", q.Late}, {"gaps", q.Gaps}, {"held", q.Held},
		{"outside_lease_ms", q.OutsideLeaseMs},
		{"open_incidents", q.OpenIncidents},
	}
}

func ratioText(m schema.Maybe) string {
	if !m.Known {
		return ""
	}
	return schema.FormatUtilization(m.Value)
}

func amountText(x *big.Rat, currency string) string {
	if x == nil {
		return ""
	}
	return pricing.Format(x, currency)
}

func bigText(x *big.Int) string {
	if x == nil {
		return ""
	}
	return x.String()
}

// appendName writes a key, after a comma unless it is the first of its object.
func appendName(b []byte, name string) []byte {
	if last := b[len(b)-1]; last != '{' {
		b = append(b, ',')
	}
	return append(appendText(b, name), ':')
}

// appendText writes a JSON string. Text that is not UTF-8 cannot come out of
// the store; should it do so, the report stays valid JSON.
func appendText(b []byte, s string) []byte {
	quoted, err := jsontext.AppendQuote(b, s)
	if err != nil {
		quoted, _ = jsontext.AppendQuote(b, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return quoted
}
