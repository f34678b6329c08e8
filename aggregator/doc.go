// Package aggregator turns stored usage events into usage per unit, owner and
// window.
//
// [Compute] is the pure core: the same distinct events always give the same
// amounts, whatever their order, repetition or grouping into calls, and the
// amounts of two neighbouring windows add up exactly to those of the window that
// covers both. [Driver] finds the windows that were touched and has them
// computed again.
package aggregator
