package pricing

import (
	"math/big"
	"strings"
)

// Unit is what a metered quantity is priced by. A GB is 10^9 bytes and a GiB 2^30:
// a TiB of transfer costs 10 % more by the one than by the other.
type Unit string

// Units: one of whatever is counted, bytes, bytes kept for a time, and time of vCPUs.
const (
	UnitOne      Unit = "unit"
	UnitGB       Unit = "GB"
	UnitGiB      Unit = "GiB"
	UnitTB       Unit = "TB"
	UnitTiB      Unit = "TiB"
	UnitGBHour   Unit = "GB_hour"
	UnitGiBHour  Unit = "GiB_hour"
	UnitGBMonth  Unit = "GB_month"  // of 720 h
	UnitGiBMonth Unit = "GiB_month" // of 720 h
	UnitTBMonth  Unit = "TB_month"  // of 720 h
	UnitVCPUHour Unit = "vCPU_hour" // of a meter in vCPU-seconds: cpu_core_seconds
)

var unitSizes = map[Unit]int64{
	UnitOne: 1,
	UnitGB:  1_000_000_000, UnitGiB: 1 << 30, UnitTB: 1_000_000_000_000, UnitTiB: 1 << 40,
	UnitGBHour: 1_000_000_000 * 3600, UnitGiBHour: (1 << 30) * 3600,
	UnitGBMonth: 1_000_000_000 * 3600 * 720, UnitGiBMonth: (1 << 30) * 3600 * 720, UnitTBMonth: 1_000_000_000_000 * 3600 * 720,
	UnitVCPUHour: 3600,
}

var (
	unitsOfBytes       = []string{string(UnitGB), string(UnitGiB), string(UnitTB), string(UnitTiB)}
	unitsOfByteSeconds = []string{string(UnitGBHour), string(UnitGiBHour), string(UnitGBMonth), string(UnitGiBMonth), string(UnitTBMonth)}
	unitsOfCores       = []string{string(UnitVCPUHour)}
)

func (Unit) values() []string { return unitsOf("") }

// unitsOf returns the units that a meter can be priced by, going by what its name says
// that it counts. A name that says nothing may have any.
func unitsOf(meter string) []string {
	units := []string{string(UnitOne)}
	switch {
	case strings.HasSuffix(meter, "_byte_seconds"):
		return append(units, unitsOfByteSeconds...)
	case strings.HasSuffix(meter, "_bytes"):
		return append(units, unitsOfBytes...)
	case strings.HasSuffix(meter, "_core_seconds"):
		return append(units, unitsOfCores...)
	}
	return append(append(append(units, unitsOfBytes...), unitsOfByteSeconds...), unitsOfCores...)
}

// MeterPrice is the price of a metered quantity, such as egress_bytes per GB or
// storage_byte_seconds per GiB_month.
type MeterPrice struct {
	Meter string   `yaml:"meter,required"`
	Per   Unit     `yaml:"per,required"`
	Price *big.Rat `yaml:"price,required"`
}

// Cost returns the exact price of a quantity in the meter's own unit: bytes, or
// bytes times seconds.
func (m *MeterPrice) Cost(quantity *big.Rat) *big.Rat {
	x := new(big.Rat).Quo(quantity, big.NewRat(unitSizes[m.Per], 1))
	return x.Mul(x, m.Price)
}

// Spread is how far apart prices of the same thing are: (highest - lowest) / highest
// (F9). It is nil without two prices.
func Spread(prices []*big.Rat) *big.Rat {
	if len(prices) < 2 {
		return nil
	}
	low, high := prices[0], prices[0]
	for _, p := range prices[1:] {
		if p.Cmp(low) < 0 {
			low = p
		}
		if p.Cmp(high) > 0 {
			high = p
		}
	}
	if high.Sign() == 0 {
		return new(big.Rat)
	}
	x := new(big.Rat).Sub(high, low)
	return x.Quo(x, high)
}

// Quote is a fixed price for a bounded job (M9).
//
// It pays for all GPU time of the project on the contract's platform while it lasts,
// or for the first gpu_hours of it; what goes beyond is billed like any other.
type Quote struct {
	ID       string   `yaml:"id,required"`
	Project  string   `yaml:"project,required"`
	Fee      *big.Rat `yaml:"fee,required"`
	GPUHours *big.Rat `yaml:"gpu_hours"`
	From     Instant  `yaml:"from"` // left out: the contract's
	To       Instant  `yaml:"to"`

	Line int
}

// PerHour is what a GPU-hour of the job cost in the end; nil as long as nothing was
// metered.
func (q *Quote) PerHour(gpuMs int64) *big.Rat {
	if gpuMs <= 0 {
		return nil
	}
	return new(big.Rat).Quo(q.Fee, big.NewRat(gpuMs, hourMs))
}
