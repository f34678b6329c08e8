// Package report answers questions about usage: what was spent, what was
// wasted, how busy units were, and which events a figure comes from.
//
// It computes over a [Store] and a price book and keeps nothing. The same
// question over the same events gives the same bytes; asked "as of" an instant
// it sees only what the stream had stored by then, so it can be asked again.
//
// Times are integer milliseconds in half-open spans [from, to), amounts exact
// rationals until they are rounded once to six decimals, so that the rows of
// every column add up to its total. Unknown is null, never zero.
package report
