package audit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// sliceMs is how much of an hour is computed at once, to bound memory.
const sliceMs = 5 * schema.MinuteMs

// hours reads some hours in two ways, and computes them anew from their events:
// those touched since, some by chance, and those with an open incident. What
// disagrees twice in a row is an incident: between storing rows and marking their
// windows the two differ for a moment.
func (p *pass) hours(ctx context.Context) error {
	list, err := p.o.Store.PickHours(ctx, p.o.Rand.Uint64(), pickedHours)
	if err != nil {
		return err
	}
	if n := len(p.touched); n > touchedHours {
		p.touched = p.touched[n-touchedHours:]
	}
	list = append(list, p.touched...)
	for _, kind := range []string{schema.IncidentStorage, schema.IncidentDerived} {
		for _, n := range p.ledger.ofKind(kind) {
			if h, ok := hourOf(&n); ok {
				list = append(list, h)
			}
		}
	}
	for key := range p.suspects {
		_, text, _ := strings.Cut(key, "\x00")
		tenant, at, _ := strings.Cut(text, "\x00")
		if h, ok := hourOf(&schema.Incident{Tenant: tenant, Key: at}); ok {
			list = append(list, h)
		}
	}
	done, suspects := map[schema.TenantHour]bool{}, map[string]bool{}
	for _, h := range list {
		if done[h] {
			continue
		}
		done[h] = true
		if err := p.hour(ctx, h, suspects); err != nil {
			return err
		}
	}
	p.suspects = suspects
	return nil
}

func hourOf(n *schema.Incident) (schema.TenantHour, bool) {
	at, err := time.Parse(time.RFC3339, n.Key)
	return schema.TenantHour{Tenant: n.Tenant, HourMs: at.UnixMilli()}, err == nil
}

func (p *pass) hour(ctx context.Context, h schema.TenantHour, suspects map[string]bool) error {
	for _, check := range []struct {
		kind, what string
		f          func(context.Context, schema.TenantHour) (string, error)
	}{
		{schema.IncidentStorage, "two ways of reading the same rows disagree: %s; have the database's disk and version looked at", p.o.Store.ReadBothWays},
		{schema.IncidentDerived, "usage that is kept differs from what its events give: %s; gpumeter rebuild computes it anew", p.derived},
	} {
		marked, err := p.o.Store.Marked(ctx, h)
		if err != nil || marked {
			return err // it is about to be computed
		}
		differs, err := check.f(ctx, h)
		if err != nil {
			return err
		}
		if differs != "" {
			if marked, err = p.o.Store.Marked(ctx, h); err != nil || marked {
				return err
			}
		}
		p.judge(h, check.kind, check.what, differs, suspects)
	}
	return nil
}

func (p *pass) judge(h schema.TenantHour, kind, what, differs string, suspects map[string]bool) {
	n := schema.Incident{
		Tenant: h.Tenant, Kind: kind, Key: time.UnixMilli(h.HourMs).UTC().Format(time.RFC3339), Count: 1, FromMs: h.HourMs, ToMs: h.HourMs + schema.HourMs, Detail: fmt.Sprintf(what, differs),
	}
	old, open := p.ledger.standing[nameOf(&n)]
	open = open && old.ClosedAtMs == 0
	key := strings.Join([]string{kind, h.Tenant, n.Key}, "\x00")
	switch {
	case differs == "" && open:
		p.ledger.ended(old, "it agrees again")
	case differs == "":
	case open || p.suspects[key]:
		p.ledger.found(n, 0)
		suspects[key] = true
	default:
		suspects[key] = true
	}
}

// Suspects says how many hours disagreed in the last pass; the next pass decides.
func (a *Auditor) Suspects() int {
	a.passing.Lock()
	defer a.passing.Unlock()
	return len(a.suspects)
}

// cellKey names a cell.
type cellKey struct {
	unit     string
	windowMs int64
	schema.Owner
}

// derived computes an hour from its events and says where what is kept differs
// ("" = nowhere).
func (p *pass) derived(ctx context.Context, h schema.TenantHour) (string, error) {
	coarse, err := p.o.Store.Coarse(ctx, h)
	if err != nil {
		return "", err
	}
	sums := map[cellKey]schema.Amounts{}
	for from := h.HourMs; from < h.HourMs+schema.HourMs; from += sliceMs {
		fresh, err := p.o.Compute(ctx, h.Tenant, from, from+sliceMs)
		if err != nil {
			return "", err
		}
		kept, err := p.o.Store.KeptMinutes(ctx, h.Tenant, from, from+sliceMs)
		if err != nil {
			return "", err
		}
		want := map[cellKey]schema.Amounts{}
		for i := range fresh {
			c := &fresh[i]
			if c.ActiveMs+c.IdleMs+c.UnknownMs == 0 {
				continue
			}
			want[cellKey{c.Unit, c.WindowMs, c.Owner}] = c.Amounts
			k := cellKey{c.Unit, h.HourMs, c.Owner}
			sum := sums[k]
			sum.Add(&c.Amounts)
			sums[k] = sum
		}
		if differs := compare(want, kept, coarse); differs != "" {
			return "minute of " + differs, nil
		}
	}
	kept, err := p.o.Store.KeptHour(ctx, h)
	if err != nil {
		return "", err
	}
	if differs := compare(sums, kept, false); differs != "" {
		return "hour of " + differs, nil
	}
	return "", nil
}

// compare names the first cell that differs. It empties want. Of some cells nothing
// may be kept.
func compare(want map[cellKey]schema.Amounts, kept []schema.Cell, some bool) string {
	for i := range kept {
		c := &kept[i]
		k := cellKey{c.Unit, c.WindowMs, c.Owner}
		w, ok := want[k]
		if !ok || w != c.Amounts {
			return fmt.Sprintf("%s at %s: kept %s, its events give %s", c.Unit, schema.FormatTime(c.WindowMs), amountsText(c.Amounts), amountsText(w))
		}
		delete(want, k)
	}
	for k, w := range want {
		if some {
			break
		}
		return fmt.Sprintf("%s at %s: nothing is kept, its events give %s", k.unit, schema.FormatTime(k.windowMs), amountsText(w))
	}
	return ""
}

func amountsText(a schema.Amounts) string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	return n(a.ActiveMs) + " ms active, " + n(a.IdleMs) + " idle, " + n(a.UnknownMs) + " unknown"
}
