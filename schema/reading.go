package schema

// Reading is what a source of readings says about one unit at one instant. The
// producer turns the readings of an interval into one usage event.
//
// A unit that several owners share gives one Reading per owner, each with the
// owner's share.
type Reading struct {
	Unit     string // accounting unit: GPU-<uuid>, or GPU-<uuid>/gi/<n> for a MIG GPU instance
	Board    string // the board that carries it; several MIG units name the same one
	Model    string // as the driver names it; a MIG unit's model ends in " MIG <profile>"
	Node     string
	Instance string // who holds the unit; empty = nobody
	Project  string
	Labels   Labels
	Share    Maybe // billionths; unknown = not given

	// Utilization is the greatest of the available activity signals, in
	// millionths. Unknown when none is available; then Reason says why.
	Utilization      Maybe
	Reason           string
	MemoryUsedBytes  Maybe
	MemoryTotalBytes Maybe

	// BoardEnergyMj is the board's energy counter. Every unit of the board
	// repeats it; the producer counts its increase once and divides it among
	// the board's units by EnergyWeight (the compute slices of a MIG unit; 0
	// counts as 1).
	BoardEnergyMj Maybe
	EnergyWeight  int64
}
