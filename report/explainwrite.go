package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// sortUsage brings rows without groups into the order of time and kind of unit,
// whatever order the store gave them in.
func sortUsage(rows []schema.UsageRow) {
	slices.SortFunc(rows, func(a, b schema.UsageRow) int {
		return cmp.Or(cmp.Compare(a.Piece, b.Piece), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Platform, b.Platform), cmp.Compare(a.Region, b.Region))
	})
}

// JSON writes the explanation on one line, keys always in the same order.
func (e *Explanation) JSON() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		panic(err) // texts, integers and maps of texts can always be written
	}
	return b.Bytes()
}

// CSV writes one line per event of the page, without its pieces.
func (e *Explanation) CSV(w io.Writer) error {
	lines := [][]string{{
		"source", "id", "sequence", "stream", "stream_sequence", "place", "stored_at", "counted", "unit", "instance", "project",
		"node", "platform", "region", "model", "start", "end", "active_ms", "idle_ms", "unknown_ms", "utilization", "share",
		"clipped_start", "clipped_end", "clipped_ms", "payload_hash", "why", "outside_lease_ms",
	}}
	for i := range e.Events {
		v := &e.Events[i]
		lines = append(lines, []string{
			v.Source, v.ID, text(v.Sequence), v.Stream, strconv.FormatUint(v.StreamSequence, 10), strconv.FormatUint(uint64(v.Place), 10),
			v.StoredAt, strconv.FormatBool(v.Counted), v.Unit, v.Instance, v.Project, v.Node, v.Platform, v.Region, v.Model, v.Start, v.End,
			strconv.FormatInt(v.ActiveMs, 10), strconv.FormatInt(v.IdleMs, 10), strconv.FormatInt(v.UnknownMs, 10), text(v.Utilization), text(v.Share),
			v.ClippedStart, v.ClippedEnd, strconv.FormatInt(v.ClippedMs, 10), v.Payload, v.Why.kind(), strconv.FormatInt(v.OutsideLeaseMs, 10),
		})
	}
	return writeCSV(w, lines)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orUnknown(s *string, currency *string) string {
	if s == nil {
		return unknown
	}
	return *s + " " + text(currency)
}

// Table writes the figure, the pieces it is made of and the page of events.
func (e *Explanation) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "from %s to %s, as of %s\n", e.From, e.To, e.AsOf)
	if len(e.Filter) > 0 {
		fmt.Fprintf(&b, "only %s\n", printable(filterText(e.Filter)))
	}
	if e.PriceVersion != nil {
		fmt.Fprintf(&b, "price version %s\n", *e.PriceVersion)
	} else {
		b.WriteString("no price list: all time is unpriced\n")
	}
	t := &e.Total
	fmt.Fprintf(&b, "\ncost %s, idle waste %s, unpriced %s\nallocated %s (%d ms): active %s, idle %s (free %s), unknown %s\n\n",
		orUnknown(t.Cost, e.Currency), orUnknown(t.IdleWaste, e.Currency), Duration(t.UnpricedMs),
		Duration(t.AllocatedMs), t.AllocatedMs, Duration(t.ActiveMs), Duration(t.IdleMs), Duration(t.FreeMs), Duration(t.UnknownMs))
	e.tableLines(&b)
	e.tableCharges(&b)
	e.tableLeases(&b)
	e.tableEvents(&b)
	tableCorrections(&b, e.Corrections)
	if e.Next != "" {
		fmt.Fprintf(&b, "\nmore events: --after %s\n", printable(e.Next))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (e *Explanation) tableLines(b *strings.Builder) {
	lines := [][]string{{"from", "to", "model", "platform", "region", "price", "calculation", "amount"}}
	for i := range e.Lines {
		l := &e.Lines[i]
		price := "none"
		if l.Price != nil {
			price = fmt.Sprintf("line %d", l.Price.Line)
		}
		lines = append(lines, []string{l.From, l.To, l.Model, l.Platform, l.Region, price, l.Arithmetic, orUnknown(l.Amount, e.Currency)})
	}
	align(b, 7, lines)
}

// tableCharges writes each charge with the steps from its time to its amounts.
func (e *Explanation) tableCharges(b *strings.Builder) {
	for i := range e.Charges {
		c := &e.Charges[i]
		if i == 0 {
			b.WriteString("\ncharges, each of all of its span; amounts are exact\n")
		}
		line := []string{"charge " + c.ID + ":", c.Category}
		for _, part := range []string{text(c.Status), c.Meter, orText(c.Commitment, "of "), orText(&c.Instance, "instance "), orText(&c.Project, "project ")} {
			if part != "" {
				line = append(line, part)
			}
		}
		line = append(line, fmt.Sprintf("%s to %s", c.From, c.To))
		if c.Gpus > 0 {
			line = append(line, fmt.Sprintf("%s x %d", cmp.Or(c.State, c.Plan), c.Gpus))
		}
		fmt.Fprintf(b, "%s\n", printable(strings.Join(line, " ")))
		for _, step := range c.Arithmetic {
			fmt.Fprintf(b, "    %s\n", printable(step))
		}
		fmt.Fprintf(b, "    billed %s, effective %s, at list price %s\n", orUnknown(c.Billed, c.Currency), orUnknown(c.EffectiveCost, c.Currency), orUnknown(c.ListCost, c.Currency))
		if c.Evidence != nil {
			fmt.Fprintf(b, "    rests on the event with the payload %s\n", printable(*c.Evidence))
		}
	}
	if e.MoreCharges > 0 {
		fmt.Fprintf(b, "%d more charges\n", e.MoreCharges)
	}
}

// orText is a text with what it is, or nothing.
func orText(s *string, what string) string {
	if text(s) == "" {
		return ""
	}
	return what + *s
}

func (e *Explanation) tableEvents(b *strings.Builder) {
	lines := [][]string{{"event", "unit", "instance", "project", "start", "end", "in the span", "active", "idle", "unknown", "stream", "stored at", "counted"}}
	for i := range e.Events {
		v := &e.Events[i]
		counted := "yes"
		switch {
		case !v.Counted:
			counted = "no: " + v.Why.text()
		case v.OutsideLeaseMs > 0 && v.OutsideLeaseMs == v.ClippedMs:
			counted = "no: outside of its lease"
		case v.OutsideLeaseMs > 0:
			counted = "yes, all but " + Duration(v.OutsideLeaseMs) + " outside of its lease"
		}
		lines = append(lines, []string{
			v.Source + " " + v.ID, v.Unit, v.Instance, v.Project, v.Start, v.End, Duration(v.ClippedMs),
			Duration(v.ActiveMs), Duration(v.IdleMs), Duration(v.UnknownMs),
			fmt.Sprintf("%s/%d/%d", v.Stream, v.StreamSequence, v.Place), v.StoredAt, counted,
		})
	}
	b.WriteByte('\n')
	align(b, 6, lines)
}
