package pricing

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
)

// BookChange is a time in which two price books have different prices for the same
// kind of unit.
type BookChange struct {
	Model    string   // AnyModel: every one that neither book names
	Platform string   // empty: every one that no entry of Model or AnyModel names
	Region   string   // empty: every one that no entry of Model or AnyModel names
	FromMs   int64    // Always: from ever on
	ToMs     int64    // exclusive; Forever: until further notice
	Old, New *big.Rat // per GPU-hour, in the currency of its book; nil = no price
}

// DiffBooks returns where the prices of two books differ, by model, platform, region
// and time. A nil book has no prices; a price in another currency is another price.
// Entries that are written in another way and price the same are no difference.
func DiffBooks(old, new *Book) []BookChange {
	d := newDiffer(old, new)
	var list []BookChange
	for _, model := range slices.Sorted(maps.Keys(d.named)) {
		if !d.touched[model] && !d.touched[AnyModel] {
			continue
		}
		platforms, regions := d.names(model)
		for _, platform := range platforms {
			for _, region := range regions {
				list = d.class(list, model, platform, region)
			}
		}
	}
	return list
}

// unitKind is what an entry is for: model, platform, region.
type unitKind [3]string

type differ struct {
	old, new *Book
	ends     map[unitKind][]int64         // where entries of either book begin or end
	changed  map[unitKind]bool            // entries that the books do not share
	touched  map[string]bool              // models of those
	named    map[string]map[unitKind]bool // what entries are for, by model; AnyModel is always there
}

func newDiffer(old, new *Book) *differ {
	d := &differ{old, new, map[unitKind][]int64{}, map[unitKind]bool{}, map[string]bool{}, map[string]map[unitKind]bool{AnyModel: {}}}
	count := map[string]int{}
	at := map[string]unitKind{}
	for sign, b := range map[int]*Book{-1: old, 1: new} {
		if b == nil {
			continue
		}
		for i := range b.Entries {
			e := &b.Entries[i]
			p := unitKind{e.Model, e.Platform, e.Region}
			d.ends[p] = append(d.ends[p], e.FromMs, e.ToMs)
			if d.named[e.Model] == nil {
				d.named[e.Model] = map[unitKind]bool{}
			}
			d.named[e.Model][p] = true
			id := fmt.Sprintf("%q %d %d %s %s", p, e.FromMs, e.ToMs, e.PerGPUHour.RatString(), b.Currency)
			count[id] += sign
			at[id] = p
		}
	}
	for id, n := range count {
		if n != 0 {
			d.changed[at[id]], d.touched[at[id][0]] = true, true
		}
	}
	return d
}

// names returns the platforms and regions that entries of a model tell apart.
func (d *differ) names(model string) (platforms, regions []string) {
	byPlatform, byRegion := map[string]bool{"": true}, map[string]bool{"": true}
	for _, m := range [...]string{model, AnyModel} {
		for p := range d.named[m] {
			byPlatform[p[1]], byRegion[p[2]] = true, true
		}
	}
	return slices.Sorted(maps.Keys(byPlatform)), slices.Sorted(maps.Keys(byRegion))
}

// class adds the changes of one kind of unit. Only the entries that could price it are
// looked at: most kinds of a long list have none that changed.
func (d *differ) class(list []BookChange, model, platform, region string) []BookChange {
	cuts := []int64{Always, Forever}
	changed := false
	for _, m := range [...]string{model, AnyModel} {
		for _, p := range [...]unitKind{{m, platform, region}, {m, platform, ""}, {m, "", region}, {m, "", ""}} {
			cuts, changed = append(cuts, d.ends[p]...), changed || d.changed[p]
		}
	}
	if !changed {
		return list
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	first := len(list)
	for i, from := range cuts[:len(cuts)-1] {
		c := BookChange{Model: model, Platform: platform, Region: region, FromMs: from, ToMs: cuts[i+1]}
		c.Old, c.New = d.price(d.old, &c), d.price(d.new, &c)
		if sameAmount(c.Old, c.New) && (c.Old == nil || d.old.Currency == d.new.Currency) {
			continue
		}
		if n := len(list); n > first && list[n-1].ToMs == from && sameAmount(list[n-1].Old, c.Old) && sameAmount(list[n-1].New, c.New) {
			list[n-1].ToMs = c.ToMs
			continue
		}
		list = append(list, c)
	}
	return list
}

func (d *differ) price(b *Book, c *BookChange) *big.Rat {
	model := c.Model
	if model == AnyModel {
		model = "" // no entry names it
	}
	if p, ok := b.Price(model, c.Platform, c.Region, c.FromMs); ok {
		return p.PerGPUHour
	}
	return nil
}

func sameAmount(a, b *big.Rat) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Cmp(b) == 0
}

// Touches says whether the change is within [fromMs, toMs).
func (c *BookChange) Touches(fromMs, toMs int64) bool { return c.FromMs < toMs && c.ToMs > fromMs }

// Text says what changes, in one line; the currencies are those of the two books.
func (c *BookChange) Text(oldCurrency, newCurrency string) string {
	amount := func(x *big.Rat, currency string) string {
		if x == nil {
			return "no price"
		}
		return Exact(x) + " " + currency
	}
	s := c.Model
	if c.Model == AnyModel {
		s = "every other model"
	}
	return fmt.Sprintf("%s, platform %s, region %s: %s instead of %s, from %s to %s", s, cmp.Or(c.Platform, "any other"), cmp.Or(c.Region, "any other"),
		amount(c.New, newCurrency), amount(c.Old, oldCurrency), ChangeInstant(c.FromMs), ChangeInstant(c.ToMs))
}

// ChangeInstant writes an end of a change.
func ChangeInstant(ms int64) string {
	if ms == Forever {
		return "further notice"
	}
	return instantText(ms)
}
