package pricing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
)

// Arithmetic writes how a line comes about, a step in each text, so that a person can do
// it again on paper. Times are in seconds, amounts exact.
func (l *Line) Arithmetic() []string {
	switch {
	case l.Category == CategoryCredit:
		return []string{l.Reason, "given back: " + amount(l.Billed) + quantityText(l)}
	case l.Category == CategoryPurchase:
		return append(l.priceText(), fmt.Sprintf("bought for %s to %s: %d x %s = %s", instantText(l.FromMs), instantText(l.ToMs), l.Segment.Gpus, amount(l.Price), amount(l.Billed)))
	case l.Commitment != "":
		return l.useText()
	case l.Meter != MeterGPU:
		return append(l.priceText(), l.meterText())
	}
	steps := []string{l.timeText()}
	if l.Billed == nil {
		return append(steps, "there is no price for "+unitText(&l.Segment))
	}
	if l.BillableMs == 0 {
		return append(steps, "nothing is billed, so it costs 0")
	}
	steps = append(steps, l.priceText()...)
	steps = append(steps, fmt.Sprintf("cost: %s / 3600 x %d x %s = %s", seconds(l.BillableMs), l.Segment.Gpus, amount(l.Price), amount(l.Cost)))
	return append(steps, l.billedText()...)
}

func amount(x *big.Rat) string {
	if x == nil {
		return "unknown"
	}
	return Exact(x)
}

func seconds(ms int64) string { return Exact(big.NewRat(ms, 1000)) + " s" }

func unitText(s *Segment) string {
	parts := []string{s.Model}
	for _, p := range [...][2]string{{"on ", s.Platform}, {"in ", s.Region}, {"plan ", s.Plan}} {
		if p[1] != "" {
			parts = append(parts, p[0]+p[1])
		}
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

func (l *Line) timeText() string {
	b := "metered " + seconds(l.MeteredMs)
	if l.ExcludedMs != 0 {
		b += fmt.Sprintf(" - excluded %s (%s)", seconds(l.ExcludedMs), l.Reason)
	}
	if l.MinimumMs != 0 {
		b += " + " + seconds(l.MinimumMs) + " up to the minimum"
	}
	if l.RoundingMs != 0 {
		b += " + " + seconds(l.RoundingMs) + " by rounding"
	}
	return b + " = billable " + seconds(l.BillableMs)
}

func (l *Line) priceText() []string {
	if l.List == nil {
		return []string{"there is no price for it"}
	}
	steps := []string{fmt.Sprintf("list price: %s %s per %s (%s)", amount(l.List), l.Currency, l.Per, l.source())}
	for i := range l.Steps {
		steps = append(steps, l.Steps[i].Text())
	}
	return steps
}

func (l *Line) source() string {
	where := "version " + short(l.Version)
	if l.Contract != "" {
		where = "contract " + l.Contract + ", " + where
	}
	if l.Line > 0 {
		where += fmt.Sprintf(", line %d", l.Line)
	}
	return where
}

func short(hash string) string { return hash[:min(12, len(hash))] }

func (l *Line) billedText() []string {
	if l.Billed.Cmp(l.Cost) == 0 {
		return nil
	}
	if l.Settlements > 1 {
		n := big.NewRat(l.Settlements, 1)
		return []string{fmt.Sprintf("billed: %d settlements of %s, each rounded by the platform to %s: %s", l.Settlements,
			amount(new(big.Rat).Quo(l.Cost, n)), amount(new(big.Rat).Quo(l.Billed, n)), amount(l.Billed))}
	}
	return []string{"billed, as the platform rounds what it settles at once: " + amount(l.Billed)}
}

func (l *Line) meterText() string {
	if l.Billed == nil {
		return fmt.Sprintf("%s of %s, without a price", amount(l.Quantity), l.Meter)
	}
	if l.List == nil {
		return l.Reason
	}
	return fmt.Sprintf("cost: %s of %s / %d x %s = %s", amount(l.Quantity), l.Meter, unitSizes[Unit(l.Per)], amount(l.Price), amount(l.Cost))
}

func quantityText(l *Line) string {
	if l.Quantity == nil {
		return ""
	}
	return ", as " + amount(l.Quantity) + " GPU-hours"
}

func (l *Line) useText() []string {
	what := "used by " + l.Instance
	if l.Status == StatusUnused {
		what = "unused: " + l.Reason
	}
	steps := []string{
		fmt.Sprintf("%s, %s x %d GPUs of %s at %s per %s (%s)", what, seconds(l.BillableMs), l.Segment.Gpus, l.Commitment, amount(l.Price), l.Per, l.source()),
		"its part of the purchase: " + amount(l.Effective),
	}
	if l.Status == StatusUsed {
		steps = append(steps, "at list price it would have cost "+amount(l.ListCost))
	}
	return steps
}

// Digest names a line by all that it says, but for the document that its price is
// written in: a new version of that with the same price in it charges nothing anew. Two
// lines that say the same are the same line, whenever they were computed.
func (l *Line) Digest() string {
	h := sha256.New()
	text := func(parts ...string) {
		for _, p := range parts {
			fmt.Fprintf(h, "%d:%s", len(p), p)
		}
	}
	rat := func(list ...*big.Rat) {
		for _, x := range list {
			if x == nil {
				text("-")
			} else {
				text(x.RatString())
			}
		}
	}
	s := &l.Segment
	text("gpumeter line 1", string(l.Category), string(l.Status), l.Meter, l.Instance, l.Commitment, l.Contract, l.Reason, l.Currency, l.Per, l.Evidence)
	text(s.State, s.Project, s.Platform, s.Region, s.Model, s.Plan, s.Tenancy, s.DCTier, s.Workload, s.SKU, s.Labels)
	fmt.Fprintf(h, "%d %d %d %d %d %d %d %d %d %t", l.FromMs, l.ToMs, s.Gpus, l.Settlements, l.MeteredMs, l.ExcludedMs, l.MinimumMs, l.RoundingMs, l.BillableMs, l.Rework)
	rat(l.Quantity, l.List, l.Price, l.ListCost, l.Cost, l.Billed, l.Effective)
	for i := range l.Steps {
		st := &l.Steps[i]
		text(st.ID, st.Stage.String(), string(st.Kind), fmt.Sprint(st.Additive))
		rat(st.Value, st.Before, st.After)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
