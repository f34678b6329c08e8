package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// Ledger keeps what was charged.
type Ledger interface {
	// ChargeEntries returns the entries of the lines whose digest begins with a prefix,
	// by line, the first one first; at most limit of them.
	ChargeEntries(ctx context.Context, tenant, prefix string, limit int) ([]schema.Charge, error)
}

// Least and most digits of the digest of a line that name it.
const (
	minLineDigits = 8
	maxLineDigits = 32
)

// States of a charge.
const (
	ChargeBooked   = "booked"
	ChargeTaken    = "taken_back" // another line says now what is charged
	ChargeAccruing = "accruing"   // it is not booked yet, and may become longer
)

// ChargeAnswer is a line of a bill and what the ledger says of it.
type ChargeAnswer struct {
	State   string        `json:"state" enum:"booked,taken_back,accruing"`
	Charge  ExplainCharge `json:"charge"`
	Entries []ChargeEntry `json:"entries" nullable:"false" doc:"Of the ledger, the first one first; none while it is accruing"`
}

// ChargeEntry books a line or takes it back.
type ChargeEntry struct {
	ID         string `json:"id"`
	Reversal   bool   `json:"reversal" doc:"It takes the line back"`
	Correction bool   `json:"correction" doc:"It is of a time that had been booked before"`
	BookedAt   string `json:"booked_at" format:"date-time"`
	Horizon    string `json:"horizon" format:"date-time" doc:"Until when everything was booked by then"`
	Reason     string `json:"reason" doc:"What led to the booking"`
}

// Charge returns a line by the first digits of its digest. A *RequestError says that
// they are no digits, too few of them, or name several lines; a *NoChargeError that
// there is no such line, or none of the projects that may be seen (nil = all).
func (s *Service) Charge(ctx context.Context, tenant, line string, projects []string) (*ChargeAnswer, error) {
	if tenant == "" {
		tenant = schema.DefaultTenant
	}
	if n := len(line); n < minLineDigits || n > maxLineDigits || strings.Trim(line, "0123456789abcdef") != "" {
		return nil, wrong("line", "%q is not the id of a charge: %d to %d hexadecimal digits, as explain shows them", clip(line), minLineDigits, maxLineDigits)
	}
	if s.Ledger != nil {
		entries, err := s.Ledger.ChargeEntries(ctx, tenant, line, 100)
		if err != nil {
			return nil, fmt.Errorf("charge %s: %w", line, err)
		}
		entries = slices.DeleteFunc(entries, func(e schema.Charge) bool { return !schema.InScope(projects, e.Project) })
		if len(entries) > 0 {
			return booked(line, entries)
		}
	}
	return s.accruing(ctx, tenant, line, projects)
}

// booked is a line that the ledger has.
func booked(line string, entries []schema.Charge) (*ChargeAnswer, error) {
	a := &ChargeAnswer{State: ChargeBooked}
	for i := range entries {
		e := &entries[i]
		if e.Line != entries[0].Line {
			return nil, wrong("line", "%s names several charges, such as %s and %s; give more digits", line, entries[0].Line, e.Line)
		}
		if e.Reversal {
			a.State = ChargeTaken
		} else {
			a.State = ChargeBooked
		}
		a.Entries = append(a.Entries, ChargeEntry{e.Entry, e.Reversal, e.Correction, instantIn(utc, e.BookedAtMs), instantIn(utc, e.HorizonMs), e.Why})
	}
	if err := json.Unmarshal(entries[0].Content, &a.Charge); err != nil {
		return nil, fmt.Errorf("charge %s: what the ledger keeps of it cannot be read: %w", line, err)
	}
	return a, nil
}

// accruing looks for a line among those of now.
func (s *Service) accruing(ctx context.Context, tenant, line string, projects []string) (*ChargeAnswer, error) {
	r := &Request{Tenant: tenant, FromMs: schema.MinTimeMs, ToMs: schema.MaxTimeMs, NowMs: s.Now().UnixMilli(), Projects: projects}
	ch, err := s.booked(ctx, r)
	if err != nil {
		return nil, err
	}
	for i := range ch.lines {
		if l := &ch.lines[i]; concerns(l, r) && strings.HasPrefix(l.Digest(), line) {
			return &ChargeAnswer{State: ChargeAccruing, Charge: chargeOf(l), Entries: []ChargeEntry{}}, nil
		}
	}
	return nil, &NoChargeError{Line: line}
}

// NoChargeError says that nothing is charged under a name.
type NoChargeError struct{ Line string }

// Error says what to do, too.
func (e *NoChargeError) Error() string {
	return "there is no charge " + e.Line + "; explain lists those of a span. The line of an instance that runs on has another id every moment, until it is booked"
}

// JSON writes the answer on one line.
func (a *ChargeAnswer) JSON() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(a); err != nil {
		panic(err) // texts and numbers can always be written
	}
	return b.Bytes()
}

// CSV writes the entries of the ledger.
func (a *ChargeAnswer) CSV(w io.Writer) error {
	lines := [][]string{{"line", "entry", "reversal", "correction", "booked_at", "horizon", "reason", "billed_cost", "effective_cost", "currency"}}
	for _, e := range a.Entries {
		lines = append(lines, []string{a.Charge.ID, e.ID, fmt.Sprint(e.Reversal), fmt.Sprint(e.Correction), e.BookedAt, e.Horizon, e.Reason,
			text(a.Charge.Billed), text(a.Charge.EffectiveCost), text(a.Charge.Currency)})
	}
	return writeCSV(w, lines)
}

// Table writes the calculation step by step, so that a person can do it again.
func (a *ChargeAnswer) Table(w io.Writer) error {
	c := &a.Charge
	var b strings.Builder
	what := c.Category
	if c.Status != nil {
		what += ", " + *c.Status
	}
	fmt.Fprintf(&b, "charge %s: %s of %s, %s\n", c.ID, what, c.Meter, strings.ReplaceAll(a.State, "_", " "))
	fmt.Fprintf(&b, "%s to %s", c.From, c.To)
	for _, part := range [...][2]string{{"instance", c.Instance}, {"project", c.Project}, {"platform", c.Platform}, {"region", c.Region}, {"model", c.Model}, {"plan", c.Plan},
		{"state", c.State}, {"commitment", text(c.Commitment)}, {"contract", text(c.Contract)}} {
		if part[1] != "" {
			fmt.Fprintf(&b, ", %s %s", part[0], printable(part[1]))
		}
	}
	if c.Gpus > 0 {
		fmt.Fprintf(&b, ", %d GPUs", c.Gpus)
	}
	b.WriteString("\n\n")
	for i, step := range c.Arithmetic {
		fmt.Fprintf(&b, "%d. %s\n", i+1, printable(step))
	}
	fmt.Fprintf(&b, "\nbilled %s, effective %s, at list price %s\n", orUnknown(c.Billed, c.Currency), orUnknown(c.EffectiveCost, c.Currency), orUnknown(c.ListCost, c.Currency))
	if c.Evidence != nil {
		fmt.Fprintf(&b, "rests on the event with the payload %s\n", *c.Evidence)
	}
	for _, e := range a.Entries {
		verb := "booked"
		if e.Reversal {
			verb = "taken back"
		}
		fmt.Fprintf(&b, "%s at %s as entry %s: %s", verb, e.BookedAt, e.ID, printable(e.Reason))
		if e.Correction {
			b.WriteString("; a correction of what had been booked before")
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
