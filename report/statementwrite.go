package report

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// JSON returns the canonical bytes; of a closed period those that were stored.
func (f *Frozen) JSON() []byte { return f.content }

// statementColumns are the columns of figures in CSV, in the order of the JSON.
var statementColumns = [...]struct {
	name string
	text func(f *StatementFigures) string
}{
	{"allocated_ms", func(f *StatementFigures) string { return strconv.FormatInt(f.AllocatedMs, 10) }},
	{"known_ms", func(f *StatementFigures) string { return strconv.FormatInt(f.KnownMs, 10) }},
	{"active_ms", func(f *StatementFigures) string { return strconv.FormatInt(f.ActiveMs, 10) }},
	{"idle_ms", func(f *StatementFigures) string { return strconv.FormatInt(f.IdleMs, 10) }},
	{"unknown_ms", func(f *StatementFigures) string { return strconv.FormatInt(f.UnknownMs, 10) }},
	{"cost", func(f *StatementFigures) string { return text(f.Cost) }},
	{"idle_waste", func(f *StatementFigures) string { return text(f.IdleWaste) }},
	{"unpriced_ms", func(f *StatementFigures) string { return strconv.FormatInt(f.UnpricedMs, 10) }},
	{"free_ms", func(f *StatementFigures) string { return strconv.FormatInt(f.FreeMs, 10) }},
	{"free_cost", func(f *StatementFigures) string { return text(f.FreeCost) }},
}

// CSV writes the rows of the period and then those of the adjustments, each with
// the period that it is of.
func (f *Frozen) CSV(w io.Writer) error {
	header := append([]string{"line", "origin"}, f.By...)
	lines := [][]string{statementHeader(header)}
	lines = appendRows(lines, []string{"usage", f.Period}, f.By, f.Rows, f.Currency)
	for i := range f.Adjustments {
		a := &f.Adjustments[i]
		lines = appendRows(lines, []string{"adjustment", a.Origin}, f.By, a.Rows, f.Currency)
	}
	return writeCSV(w, lines)
}

func statementHeader(keys []string) []string {
	for _, c := range statementColumns {
		keys = append(keys, c.name)
	}
	return append(keys, "currency")
}

func appendRows(lines [][]string, first, by []string, rows []StatementRow, currency *string) [][]string {
	for i := range rows {
		line := append([]string{}, first...)
		for _, key := range by {
			line = append(line, rows[i].Keys[key])
		}
		for _, c := range statementColumns {
			line = append(line, c.text(&rows[i].StatementFigures))
		}
		lines = append(lines, append(line, text(currency)))
	}
	return lines
}

// Table writes the statement for people.
func (f *Frozen) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "statement of %s, tenant %s: %s to %s (%s), as of %s\n", f.Period, printable(f.Tenant), f.From, f.To, f.Zone, f.AsOf)
	if f.State == StateOpen {
		b.WriteString("open: a preview of what closing it now would freeze; the adjustments go to the period that is closed next\n")
	} else {
		fmt.Fprintf(&b, "closed at %s by %s", f.ClosedAt, printable(f.ClosedBy))
		if f.Reason != "" {
			fmt.Fprintf(&b, ": %s", printable(f.Reason))
		}
		fmt.Fprintf(&b, "\nSHA-256 %s\n", f.Hash)
		if f.Override != "" {
			fmt.Fprintf(&b, "closed in spite of the grace time or open incidents: %s\n", printable(f.Override))
		}
	}
	for _, i := range f.Incidents {
		fmt.Fprintf(&b, "open incident: %s %s: %s\n", printable(i.Kind), printable(i.Key), printable(i.Detail))
	}
	b.WriteByte('\n')
	align(&b, len(f.By), statementTable(f.By, f.Rows, "total", &f.Totals, f.Currency))
	for i := range f.Adjustments {
		a := &f.Adjustments[i]
		fmt.Fprintf(&b, "\nadjustment of %s, billed through %s:\n", a.Origin, a.BilledThrough)
		align(&b, len(f.By), statementTable(f.By, a.Rows, "total", &a.Totals, f.Currency))
		a.Events.table(&b)
		pricesTable(&b, a.Prices)
	}
	if len(f.Adjustments) > 0 {
		b.WriteByte('\n')
		align(&b, 1, statementTable([]string{""}, nil, "due", &f.Due, f.Currency))
	}
	if text := qualityText(&f.Quality, false); text != "" {
		b.WriteString("\n" + text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// statementTable returns a header, the rows and a last line for the sum.
func statementTable(by []string, rows []StatementRow, sumName string, sum *StatementFigures, currency *string) [][]string {
	lines := [][]string{append(append([]string{}, by...), "allocated", "active", "idle", "unknown", "cost", "idle waste", "unpriced")}
	figures := func(line []string, f *StatementFigures) []string {
		return append(line, signedDuration(f.AllocatedMs), signedDuration(f.ActiveMs), signedDuration(f.IdleMs), signedDuration(f.UnknownMs),
			orUnknown(f.Cost, currency), orUnknown(f.IdleWaste, currency), signedDuration(f.UnpricedMs))
	}
	for i := range rows {
		var line []string
		for _, key := range by {
			line = append(line, cmp.Or(rows[i].Keys[key], "(none)"))
		}
		lines = append(lines, figures(line, &rows[i].StatementFigures))
	}
	last := make([]string, len(by))
	last[0] = sumName
	return append(lines, figures(last, sum))
}

func signedDuration(ms int64) string {
	if ms < 0 {
		return "-" + Duration(-ms)
	}
	return Duration(ms)
}

func (a *Arrivals) table(b *strings.Builder) {
	if a.Total == 0 {
		return
	}
	fmt.Fprintf(b, "from %d events", a.Total)
	if int64(len(a.Listed)) < a.Total {
		fmt.Fprintf(b, ", of which the first %d", len(a.Listed))
	}
	b.WriteString(":\n")
	lines := [][]string{{"event", "unit", "instance", "project", "start", "end", "stored at", "counted"}}
	for i := range a.Listed {
		v := &a.Listed[i]
		counted := "yes"
		if !v.Counted {
			counted = "no: conflict"
		}
		lines = append(lines, []string{v.Source + " " + v.ID, v.Unit, v.Instance, v.Project, v.Start, v.End, v.StoredAt, counted})
	}
	align(b, 6, lines)
}

func pricesTable(b *strings.Builder, list []PriceSource) {
	for i := range list {
		v := &list[i]
		fmt.Fprintf(b, "%s %s, version %s, applied at %s by %s: %s", v.Kind, printable(v.Name), v.Version, v.AppliedAt, printable(v.AppliedBy), printable(v.Reason))
		if v.Forced != "" {
			fmt.Fprintf(b, "; in spite of closed periods: %s", printable(v.Forced))
		}
		b.WriteByte('\n')
	}
}

// JSON writes the difference on one line, keys always in the same order.
func (d *StatementDiff) JSON() []byte { return encodeStatement(d) }

// CSV writes the groups that changed.
func (d *StatementDiff) CSV(w io.Writer) error {
	lines := [][]string{statementHeader(append([]string{}, d.By...))}
	return writeCSV(w, appendRows(lines, nil, d.By, d.Rows, d.Currency))
}

// Table writes the difference for people.
func (d *StatementDiff) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "change of %s (%s) since it was closed as of %s, as known at %s\n", d.Period, d.Zone, d.ClosedAsOf, d.AsOf)
	if text(d.PriceVersion) != text(d.PriceVersionNow) {
		fmt.Fprintf(&b, "the price list changed since: version %s, was %s\n", cmp.Or(text(d.PriceVersionNow), "none"), cmp.Or(text(d.PriceVersion), "none"))
	}
	if len(d.Rows) == 0 {
		b.WriteString("nothing changed\n")
	} else {
		b.WriteByte('\n')
		align(&b, len(d.By), statementTable(d.By, d.Rows, "total", &d.Totals, d.Currency))
	}
	d.Events.table(&b)
	pricesTable(&b, d.Prices)
	_, err := io.WriteString(w, b.String())
	return err
}

// JSON writes the list on one line.
func (l *StatementList) JSON() []byte { return encodeStatement(l) }

func (l *StatementList) lines() [][]string {
	lines := [][]string{{"period", "zone", "as_of", "closed_at", "closed_by", "reason", "override", "hash"}}
	for i := range l.Statements {
		s := &l.Statements[i]
		lines = append(lines, []string{s.Period, s.Zone, s.AsOf, s.ClosedAt, s.ClosedBy, s.Reason, s.Override, s.Hash})
	}
	return lines
}

// CSV writes one line per closed period.
func (l *StatementList) CSV(w io.Writer) error { return writeCSV(w, l.lines()) }

// Table writes one line per closed period.
func (l *StatementList) Table(w io.Writer) error {
	if len(l.Statements) == 0 {
		_, err := io.WriteString(w, "no period is closed\n")
		return err
	}
	var b strings.Builder
	align(&b, 8, l.lines())
	_, err := io.WriteString(w, b.String())
	return err
}
