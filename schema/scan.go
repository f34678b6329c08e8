package schema

import "cmp"

// UsageScan asks for the rows of a UsageQuery in an order, so that whoever reads
// them needs no memory for all groups at once.
type UsageScan struct {
	UsageQuery
	// Order is what rows are ordered by. Rows that are equal in it may come in any
	// order, and may have to be added up.
	Order []OrderKey
	// After leaves out the rows up to and including those that are equal to it;
	// nil leaves out none. It has one value for each key of Order.
	After []OrderValue
}

// OrderKey is a key to order by: a dimension, or a number that each piece has.
type OrderKey struct {
	By    int     // position in the query's By; used when Ranks is nil
	Ranks []int64 // one for each piece
}

// OrderValue is a value of an OrderKey: the text of a dimension, in order of its
// bytes, or the rank of a piece.
type OrderValue struct {
	Text string
	Rank int64
}

// Compare compares two values of one key.
func (v OrderValue) Compare(o OrderValue) int {
	return cmp.Or(cmp.Compare(v.Rank, o.Rank), cmp.Compare(v.Text, o.Text))
}

// Values returns what a row is ordered by, in into, which is grown if need be.
func (s *UsageScan) Values(r *UsageRow, into []OrderValue) []OrderValue {
	into = into[:0]
	for _, k := range s.Order {
		if k.Ranks != nil {
			into = append(into, OrderValue{Rank: k.Ranks[r.Piece]})
		} else {
			into = append(into, OrderValue{Text: r.Keys[k.By]})
		}
	}
	return into
}

// CompareOrder compares values of the same keys.
func CompareOrder(a, b []OrderValue) int {
	for i := range a {
		if c := a[i].Compare(b[i]); c != 0 {
			return c
		}
	}
	return 0
}
