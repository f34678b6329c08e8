// Package schema is the language of gpumeter: the events that sources publish,
// their identity, validation and wire forms, the subjects they travel on, the
// kinds of error, and the storage schema as numbered SQL files.
//
// It imports nothing else of the project; every stage imports it.
//
// Units are part of the contract and never change on the way:
//
//   - time: integer milliseconds since the Unix epoch, UTC; intervals are
//     half-open [Start, End);
//   - utilization: millionths of full activity (0 to 1,000,000);
//   - share of a unit: billionths (1 to 1,000,000,000);
//   - energy: millijoules; memory: bytes.
//
// A quantity that a source could not read is unknown and is carried as a
// [Maybe] without a value. Unknown is never zero.
package schema
