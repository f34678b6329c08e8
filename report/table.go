package report

import (
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gpumeter/gpumeter/schema"
	"github.com/rivo/uniseg"
)

var utc = time.UTC

const unknown = "unknown"

// tableColumn is one column of figures in a table.
type tableColumn struct {
	title string
	text  func(f *Figures, currency string) string
}

func timeColumn(title string, ms func(*Figures) int64) tableColumn {
	return tableColumn{title, func(f *Figures, _ string) string { return Duration(ms(f)) }}
}

func amountColumn(title string, amount func(*Figures) *big.Rat) tableColumn {
	return tableColumn{title, func(f *Figures, currency string) string {
		text := amountText(amount(f), currency)
		if text == "" {
			return unknown
		}
		return text + " " + currency
	}}
}

func shareColumn(title string, part func(*Figures) int64) tableColumn {
	return tableColumn{title, func(f *Figures, _ string) string {
		return percent(big.NewRat(part(f), 1), big.NewRat(f.AllocatedMs, 1))
	}}
}

var (
	allocated   = timeColumn("allocated", func(f *Figures) int64 { return f.AllocatedMs })
	active      = timeColumn("active", func(f *Figures) int64 { return f.ActiveMs })
	heldIdle    = timeColumn("held idle", func(f *Figures) int64 { return f.IdleMs - f.FreeMs })
	free        = timeColumn("free", func(f *Figures) int64 { return f.FreeMs })
	notKnown    = timeColumn("unknown", func(f *Figures) int64 { return f.UnknownMs })
	unpriced    = timeColumn("unpriced", func(f *Figures) int64 { return f.UnpricedMs })
	cost        = amountColumn("cost", func(f *Figures) *big.Rat { return f.Cost })
	idleWaste   = amountColumn("idle waste", func(f *Figures) *big.Rat { return f.IdleWaste })
	freeCost    = amountColumn("free cost", func(f *Figures) *big.Rat { return f.FreeCost })
	wasteShare  = tableColumn{"of cost", func(f *Figures, _ string) string { return percent(f.IdleWaste, f.EffectiveCost) }}
	utilization = tableColumn{"utilization", func(f *Figures, _ string) string {
		if !f.Utilization.Known {
			return unknown
		}
		return percent(big.NewRat(f.Utilization.Value, 1), big.NewRat(schema.UtilizationOne, 1))
	}}
	energy = tableColumn{"energy", func(f *Figures, _ string) string {
		if f.EnergyMj == nil {
			return unknown
		}
		return new(big.Rat).SetFrac(f.EnergyMj, big.NewInt(3_600_000_000)).FloatString(3) + " kWh"
	}}
)

// further are columns that are shown where there is something in them.
var further = map[string][]tableColumn{
	"spend": {
		amountColumn("effective cost", func(f *Figures) *big.Rat { return f.EffectiveCost }),
		amountColumn("unused commitment", func(f *Figures) *big.Rat { return f.CommitmentUnusedCost }),
	},
	"waste": {
		amountColumn("unused commitment", func(f *Figures) *big.Rat { return f.CommitmentUnusedCost }),
		amountColumn("stopped", func(f *Figures) *big.Rat { return f.StoppedCost }),
		amountColumn("minimum", func(f *Figures) *big.Rat { return f.MinimumCost }),
		amountColumn("rework", func(f *Figures) *big.Rat { return f.ReworkCost }),
		amountColumn("spend", func(f *Figures) *big.Rat { return f.EffectiveCost }),
	},
}

// columns are those of a kind of report, and of the further ones those that say more.
func (r *Report) columns() []tableColumn {
	list := tables[r.Kind]
	f := &r.Totals
	if f.EffectiveCost == nil {
		return list
	}
	some := func(x *big.Rat) bool { return x != nil && x.Sign() != 0 }
	bought := f.Cost.Cmp(f.EffectiveCost) != 0
	shown := map[string][]bool{
		"spend": {bought, some(f.CommitmentUnusedCost)},
		"waste": {some(f.CommitmentUnusedCost), some(f.StoppedCost), some(f.MinimumCost), some(f.ReworkCost), bought},
	}[r.Kind]
	for i, yes := range shown {
		if yes {
			list = append(slices.Clip(list), further[r.Kind][i])
		}
	}
	return list
}

// tables says which columns answer the question that a kind of report asks.
var tables = map[string][]tableColumn{
	"spend":       {allocated, cost, idleWaste, unpriced},
	"waste":       {idleWaste, wasteShare, heldIdle, freeCost, free, notKnown, unpriced},
	"utilization": {utilization, shareColumn("active", func(f *Figures) int64 { return f.ActiveMs }), shareColumn("idle", func(f *Figures) int64 { return f.IdleMs }), shareColumn("unknown", func(f *Figures) int64 { return f.UnknownMs }), allocated},
	"usage":       {allocated, active, heldIdle, free, notKnown, energy},
}

// Table writes the report for people: what it covers, the rows, the totals and,
// where there is something to know about the data, a sentence that says so.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s to %s (%s), as of %s\n", r.Kind, instantIn(r.Zone, r.FromMs), instantIn(r.Zone, r.ToMs), r.ZoneName, instantIn(r.Zone, r.asOf()))
	if len(r.Filter) > 0 {
		fmt.Fprintf(&b, "only %s\n", printable(filterText(r.Filter)))
	}
	if columns := r.columns(); columns != nil {
		b.WriteByte('\n')
		align(&b, len(r.By), r.tableLines(columns))
		switch {
		case r.Top > 0:
			fmt.Fprintf(&b, "%d of %d rows; the total is of all\n", len(r.Rows), r.RowCount)
		case r.Next != "":
			fmt.Fprintf(&b, "%d rows; the total is of all; go on with --after %s\n", len(r.Rows), r.Next)
		case r.Limit > 0:
			fmt.Fprintf(&b, "%d rows, the last page; the total is of all\n", len(r.Rows))
		}
	}
	if r.Kind == "quality" && len(r.Sources) > 0 {
		b.WriteByte('\n')
		sourcesTable(&b, r)
	}
	incidents := incidentText(r.Incidents)
	if text := qualityText(&r.Quality, r.Kind == "quality"); text != "" {
		b.WriteString("\n" + text)
	}
	if r.scoped() {
		b.WriteString("\nonly of projects that you may see; data quality: unknown\n")
	}
	r.tableConflicts(&b)
	b.WriteString(incidents)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) tableLines(columns []tableColumn) [][]string {
	line := func(keys []string, f *Figures) []string {
		cells := append(make([]string, 0, len(keys)+len(columns)), keys...)
		for _, c := range columns {
			cells = append(cells, c.text(f, r.Currency))
		}
		return cells
	}
	header := append([]string{}, r.By...)
	for _, c := range columns {
		header = append(header, c.title)
	}
	lines := [][]string{header}
	if len(r.By) == 0 {
		return append(lines, line(nil, &r.Totals))
	}
	for i := range r.Rows {
		keys := append([]string{}, r.Rows[i].Keys...)
		for k := range keys {
			if keys[k] == "" {
				keys[k] = "(none)"
			}
		}
		lines = append(lines, line(keys, &r.Rows[i].Figures))
	}
	total := make([]string, len(r.By))
	total[0] = "total"
	return append(lines, line(total, &r.Totals))
}

// align writes the cells in columns, the first left ones to the left, the rest
// to the right. Width is what a terminal shows, not bytes.
func align(b *strings.Builder, left int, lines [][]string) {
	var widths []int
	for _, line := range lines {
		for i := range line {
			line[i] = printable(line[i])
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], uniseg.StringWidth(line[i]))
		}
	}
	for _, line := range lines {
		var row strings.Builder
		for i, cell := range line {
			if i > 0 {
				row.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-uniseg.StringWidth(cell))
			if i < left {
				row.WriteString(cell + pad)
			} else {
				row.WriteString(pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
}

// printable replaces what a terminal would obey: names come from anywhere and
// may hold escape sequences or marks that turn text around.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// Duration writes milliseconds for people: "336h 00m", "12m 30s", "4.25s".
func Duration(ms int64) string {
	switch s := ms / 1000; {
	case ms == 0:
		return "0"
	case ms < 60_000:
		text := fmt.Sprintf("%d.%03d", s, ms%1000)
		return strings.TrimRight(strings.TrimRight(text, "0"), ".") + "s"
	case ms < schema.HourMs:
		return fmt.Sprintf("%dm %02ds", s/60, s%60)
	default:
		return fmt.Sprintf("%dh %02dm", s/3600, s/60%60)
	}
}

// percent is part/whole with one decimal, or unknown when there is no whole to
// compare with.
func percent(part, whole *big.Rat) string {
	if part == nil || whole == nil || whole.Sign() == 0 {
		return unknown
	}
	ratio := new(big.Rat).Quo(part, whole)
	return ratio.Mul(ratio, big.NewRat(100, 1)).FloatString(1) + " %"
}

// qualityText says in words what a reader has to know. Without all it leaves
// out what is zero.
func qualityText(q *schema.Quality, all bool) string {
	var parts []string
	open := "open incidents"
	if !all {
		open += " (see gpumeter report quality)"
	}
	for _, p := range [...]struct {
		n    int64
		what string
	}{
		{q.Conflicts, "identities in conflict (what was stored first counts)"},
		{q.Quarantined, "quarantined messages or events (not counted; see gpumeter quarantine list)"},
		{q.Late, "late events (counted)"},
		{q.Held, "held events (they end in the future by the clock of their source, and count from then on)"},
		{q.Gaps, "missing sequence numbers (reported by no event that arrived)"},
		{q.OutsideLeaseMs, "ms of units reported for instances whose lease held none (not counted)"},
		{q.OpenIncidents, open},
	} {
		if all || p.n != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	switch {
	case len(parts) == 0:
		return ""
	case all:
		return strings.Join(parts, "\n") + "\n"
	}
	return "data quality: " + strings.Join(parts, "; ") + "\n"
}
