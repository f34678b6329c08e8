package pricing

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
)

// BookChange is a time in which two price books have different prices for the same
// kind of thing.
type BookChange struct {
	SKU      string   // of an offer, whatever its model; empty = of a model or a meter
	Model    string   // AnyModel: every one that neither book names
	Plan     string   // empty = on demand, and plans that have no price of their own
	Meter    string   // of a metered quantity; empty = of GPUs
	Platform string   // empty: every one that no entry of the same kind names
	Region   string   // empty: every one that no entry of the same kind names
	FromMs   int64    // Always: from ever on
	ToMs     int64    // exclusive; Forever: until further notice
	Old, New *big.Rat // nil = no price
	OldUnit  string   // of Old: currency and what it is for, such as USD per GPU-hour
	NewUnit  string
}

// DiffBooks returns where the prices of two books differ: by SKU, model, plan or meter,
// platform, region and time. A nil book has no prices; a price in another currency, or
// for another term, is another price. Entries that are written in another way and price
// the same are no difference.
//
// Each kind of name is compared by itself: what an item costs changes only where a price
// of its SKU, of its model under its plan, or of its model on demand does.
func DiffBooks(old, new *Book) []BookChange {
	var list []BookChange
	for _, axis := range axesOf(old, new) {
		d := newDiffer(old, new, axis)
		for _, name := range slices.Sorted(maps.Keys(d.named)) {
			if !d.touched[name] && !d.touched[AnyModel] {
				continue
			}
			platforms, regions := d.names(name)
			for _, platform := range platforms {
				for _, region := range regions {
					list = d.class(list, name, platform, region)
				}
			}
		}
	}
	return list
}

// axis is a kind of names that prices are found by.
type axis struct {
	kind string // sku, model or meter
	plan string
}

func axesOf(books ...*Book) []axis {
	known := map[axis]bool{}
	for _, b := range books {
		if b == nil {
			continue
		}
		for i := range b.Entries {
			known[axisOf(&b.Entries[i])] = true
		}
		if len(b.Meters) > 0 {
			known[axis{kind: "meter"}] = true
		}
	}
	list := slices.Collect(maps.Keys(known))
	slices.SortFunc(list, func(a, b axis) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.plan, b.plan)) })
	return list
}

func axisOf(e *Entry) axis {
	if e.SKU != "" {
		return axis{"sku", e.Plan}
	}
	return axis{"model", e.Plan}
}

// priced is a price of an axis: an amount of a unit, such as USD per GPU-hour.
type priced struct {
	amount *big.Rat
	unit   string
}

func (e *Entry) priced() priced {
	if e.Term != "" {
		return priced{e.PerGPU, e.Currency + " per GPU-" + string(e.Term)}
	}
	return priced{e.PerGPUHour, e.Currency + " per " + perGPUHour}
}

func (m *MeterEntry) priced() priced { return priced{m.Price, m.Currency + " per " + string(m.Per)} }

// offer is an entry as an axis sees it.
type offer struct {
	kind         unitKind
	fromMs, toMs int64
	priced
}

func (a axis) offers(b *Book) (list []offer) {
	if b == nil {
		return nil
	}
	if a.kind == "meter" {
		for i := range b.Meters {
			m := &b.Meters[i]
			list = append(list, offer{unitKind{m.Meter, m.Platform, m.Region}, m.FromMs, m.ToMs, m.priced()})
		}
		return list
	}
	for i := range b.Entries {
		if e := &b.Entries[i]; axisOf(e) == a {
			name := e.Model
			if a.kind == "sku" {
				name = e.SKU
			}
			list = append(list, offer{unitKind{name, e.Platform, e.Region}, e.FromMs, e.ToMs, e.priced()})
		}
	}
	return list
}

// at is the price that a name has on the axis alone.
func (a axis) at(b *Book, name, platform, region string, atMs int64) priced {
	if b == nil {
		return priced{}
	}
	if a.kind == "meter" {
		if m, ok := b.Meter(name, platform, region, atMs); ok {
			return m.priced()
		}
		return priced{}
	}
	k := key{sku: name, plan: a.plan}
	if a.kind == "model" {
		k = key{model: name, plan: a.plan}
	}
	e := b.narrowest(k, platform, region, atMs)
	if e == nil && a.kind == "model" {
		e = b.narrowest(key{model: AnyModel, plan: a.plan}, platform, region, atMs)
	}
	if e == nil {
		return priced{}
	}
	return e.priced()
}

// unitKind is what an entry is for: SKU, model or meter; platform, region.
type unitKind [3]string

type differ struct {
	axis
	old, new *Book
	ends     map[unitKind][]int64         // where entries of either book begin or end
	changed  map[unitKind]bool            // entries that the books do not share
	touched  map[string]bool              // models of those
	named    map[string]map[unitKind]bool // what entries are for, by model; AnyModel is always there
}

func newDiffer(old, new *Book, a axis) *differ {
	d := &differ{a, old, new, map[unitKind][]int64{}, map[unitKind]bool{}, map[string]bool{}, map[string]map[unitKind]bool{}}
	if a.kind == "model" {
		d.named[AnyModel] = map[unitKind]bool{}
	}
	count := map[string]int{}
	at := map[string]unitKind{}
	for sign, b := range map[int]*Book{-1: old, 1: new} {
		for _, o := range a.offers(b) {
			d.ends[o.kind] = append(d.ends[o.kind], o.fromMs, o.toMs)
			if d.named[o.kind[0]] == nil {
				d.named[o.kind[0]] = map[unitKind]bool{}
			}
			d.named[o.kind[0]][o.kind] = true
			id := fmt.Sprintf("%q %d %d %s %s", o.kind, o.fromMs, o.toMs, o.amount.RatString(), o.unit)
			count[id] += sign
			at[id] = o.kind
		}
	}
	for id, n := range count {
		if n != 0 {
			d.changed[at[id]], d.touched[at[id][0]] = true, true
		}
	}
	return d
}

// names returns the platforms and regions that entries of a name tell apart.
func (d *differ) names(name string) (platforms, regions []string) {
	byPlatform, byRegion := map[string]bool{"": true}, map[string]bool{"": true}
	for _, m := range [...]string{name, AnyModel} {
		for p := range d.named[m] {
			byPlatform[p[1]], byRegion[p[2]] = true, true
		}
	}
	return slices.Sorted(maps.Keys(byPlatform)), slices.Sorted(maps.Keys(byRegion))
}

// class adds the changes of one kind of unit. Only the entries that could price it are
// looked at: most kinds of a long list have none that changed.
func (d *differ) class(list []BookChange, name, platform, region string) []BookChange {
	cuts := []int64{Always, Forever}
	changed := false
	for _, m := range [...]string{name, AnyModel} {
		for _, p := range [...]unitKind{{m, platform, region}, {m, platform, ""}, {m, "", region}, {m, "", ""}} {
			cuts, changed = append(cuts, d.ends[p]...), changed || d.changed[p]
		}
	}
	if !changed {
		return list
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	first, asked := len(list), name
	if name == AnyModel {
		asked = "" // no entry names it
	}
	for i, from := range cuts[:len(cuts)-1] {
		c := d.of(name, platform, region)
		c.FromMs, c.ToMs = from, cuts[i+1]
		was, is := d.at(d.old, asked, platform, region, from), d.at(d.new, asked, platform, region, from)
		c.Old, c.OldUnit, c.New, c.NewUnit = was.amount, was.unit, is.amount, is.unit
		if sameAmount(c.Old, c.New) && c.OldUnit == c.NewUnit {
			continue
		}
		if n := len(list); n > first && list[n-1].ToMs == from && sameAmount(list[n-1].Old, c.Old) && sameAmount(list[n-1].New, c.New) && list[n-1].OldUnit == c.OldUnit && list[n-1].NewUnit == c.NewUnit {
			list[n-1].ToMs = c.ToMs
			continue
		}
		list = append(list, c)
	}
	return list
}

// of is a change of a name on the axis.
func (a axis) of(name, platform, region string) BookChange {
	c := BookChange{Plan: a.plan, Platform: platform, Region: region}
	switch a.kind {
	case "sku":
		c.SKU = name
	case "meter":
		c.Meter = name
	default:
		c.Model = name
	}
	return c
}

func sameAmount(a, b *big.Rat) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Cmp(b) == 0
}

// Touches says whether the change is within [fromMs, toMs).
func (c *BookChange) Touches(fromMs, toMs int64) bool { return c.FromMs < toMs && c.ToMs > fromMs }

// Text says what changes, in one line.
func (c *BookChange) Text() string {
	amount := func(x *big.Rat, unit string) string {
		if x == nil {
			return "no price"
		}
		return Exact(x) + " " + unit
	}
	s := c.Model
	switch {
	case c.SKU != "":
		s = "sku " + c.SKU
	case c.Meter != "":
		s = "meter " + c.Meter
	case c.Model == AnyModel:
		s = "every other model"
	}
	if c.Plan != "" {
		s += ", plan " + c.Plan
	}
	return fmt.Sprintf("%s, platform %s, region %s: %s instead of %s, from %s to %s", s, cmp.Or(c.Platform, "any other"), cmp.Or(c.Region, "any other"),
		amount(c.New, c.NewUnit), amount(c.Old, c.OldUnit), ChangeInstant(c.FromMs), ChangeInstant(c.ToMs))
}

// ChangeInstant writes an end of a change.
func ChangeInstant(ms int64) string {
	if ms == Forever {
		return "further notice"
	}
	return instantText(ms)
}
