// Package pricing turns GPU time into money: a price book read from YAML, the
// price of a unit at an instant, exact costs and the one place where amounts
// are rounded.
//
// Units: time in integer milliseconds UTC, prices in the currency that they come
// with per GPU-hour, GPU and term, or [Unit] of a meter, amounts as exact rationals
// of that currency. There is no binary
// floating point on any path; an amount stays a rational until [RoundParts].
//
// A unit without a matching price is unpriced. Nothing falls back to another
// list, to an older price or to zero.
package pricing
