package pricing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// validity is when an entry applies, and where it stands in its file.
type validity struct {
	fromMs, toMs int64
	line, col    int
}

func (e *Entry) valid() validity      { return validity{e.FromMs, e.ToMs, e.Line, e.col} }
func (m *MeterEntry) valid() validity { return validity{m.FromMs, m.ToMs, m.Line, m.col} }

type dated[E any] interface {
	*E
	valid() validity
}

// indexed puts entries into lists by key, each in the order of time. same says what
// entries with one key have in common; two of them may not be valid at once.
func indexed[E any, P dated[E], K comparable](entries []E, key func(P) K, same func(P) string) (map[K][]P, []*Fault) {
	index := map[K][]P{}
	for i := range entries {
		k := key(&entries[i])
		index[k] = append(index[k], &entries[i])
	}
	var faults []*Fault
	for _, list := range index {
		slices.SortFunc(list, func(x, y P) int {
			a, b := x.valid(), y.valid()
			return cmp.Or(cmp.Compare(a.fromMs, b.fromMs), cmp.Compare(a.line, b.line), cmp.Compare(a.col, b.col))
		})
		for i := 1; i < len(list); i++ {
			if a, b := list[i-1].valid(), list[i].valid(); b.fromMs < a.toMs {
				faults = append(faults, overlap(a, b, same(list[i])))
			}
		}
	}
	return index, faults
}

func overlap(a, b validity, same string) *Fault {
	later := a
	if cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.col, b.col)) < 0 {
		later = b
	}
	return &Fault{Line: later.line, Col: later.col, Msg: fmt.Sprintf(
		"the entries of lines %d and %d are both valid from %s for the same %s; end the earlier one with valid_to",
		min(a.line, b.line), max(a.line, b.line), instantText(b.fromMs), same)}
}

// at returns the entry of the list that is valid at the instant, or nil.
func at[E any, P dated[E]](list []P, atMs int64) P {
	i, found := slices.BinarySearchFunc(list, atMs, func(e P, ms int64) int { return cmp.Compare(e.valid().fromMs, ms) })
	if !found {
		i--
	}
	if i < 0 || atMs >= list[i].valid().toMs {
		return nil
	}
	return list[i]
}

// hash digests the entries in a canonical order. Every text is preceded by its
// length, so that no two books share a digest by moving a boundary. What a book does
// not use adds nothing: books keep their digest when the format grows.
func (b *Book) hash() string {
	lines := make([]string, 0, len(b.Entries)+len(b.Meters))
	for i := range b.Entries {
		lines = append(lines, b.Entries[i].digested(b.Currency))
	}
	for i := range b.Meters {
		m := &b.Meters[i]
		lines = append(lines, fmt.Sprintf("meter %s%s%s%s%s%s %d %d", sized(m.Meter), sized(m.Platform), sized(m.Region),
			sized(string(m.Per)), sized(m.Currency), m.Price.RatString(), m.FromMs, m.ToMs))
	}
	slices.Sort(lines)
	h := sha256.New()
	fmt.Fprintf(h, "gpumeter prices 1\n%s\n", b.Currency)
	for _, l := range lines {
		fmt.Fprintf(h, "%d:%s\n", len(l), l)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (e *Entry) digested(currency string) string {
	price := e.PerGPUHour
	if price == nil {
		price = e.PerGPU
	}
	s := fmt.Sprintf("%s%s%s%s %d %d", sized(e.Model), sized(e.Platform), sized(e.Region), price.RatString(), e.FromMs, e.ToMs)
	var more strings.Builder
	add := func(name, value string) {
		if value != "" {
			more.WriteString(" " + name + "=" + sized(value))
		}
	}
	add("sku", e.SKU)
	add("plan", e.Plan)
	add("term", string(e.Term))
	if e.Currency != currency {
		add("currency", e.Currency)
	}
	if e.PerNode != nil {
		add("node", e.PerNode.RatString()+"/"+big.NewInt(e.GpusPerNode).String())
	}
	return s + more.String()
}

func sized(s string) string { return fmt.Sprintf("%d:%s", len(s), s) }
