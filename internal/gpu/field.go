package gpu

import (
	"fmt"
	"math"

	"github.com/gpumeter/gpumeter/schema"
)

// signal is what a metric tells a meter, whichever exporter and spelling it
// came from.
type signal uint8

const (
	sigNone signal = iota
	sigSM
	sigEngine
	sigUtil
	sigEncoder
	sigDecoder
	sigMemUsed
	sigMemFree
	sigMemReserved
	sigMemTotal
	sigEnergy
	sigPower
	sigXID
)

// measure is how a value is written, and with that what is plausible.
type measure uint8

const (
	percent measure = iota // 0 to 100
	ratio                  // 0 to 1
	mebibytes
	octets
	millijoules
	joules
	watts
	code
)

// field is one metric. Several spellings share an id; a second spelling in the
// same scrape is a repetition of the first. Ids of DCGM fields are DCGM's own.
type field struct {
	id      int
	signal  signal
	measure measure
}

// fields lists the metrics that matter under every name they have had. DCGM 4.6
// renamed most of its fields; the new names of percentages end in RATIO and
// still run to 100.
var fields = map[string]field{
	"DCGM_FI_DEV_GPU_UTIL":       {203, sigUtil, percent},
	"DCGM_FI_DEV_GPU_UTIL_RATIO": {203, sigUtil, percent},
	"DCGM_FI_DEV_ENC_UTIL":       {206, sigEncoder, percent},
	"DCGM_FI_DEV_ENC_UTIL_RATIO": {206, sigEncoder, percent},
	"DCGM_FI_DEV_DEC_UTIL":       {207, sigDecoder, percent},
	"DCGM_FI_DEV_DEC_UTIL_RATIO": {207, sigDecoder, percent},

	"DCGM_FI_PROF_GR_ENGINE_ACTIVE":     {1001, sigEngine, ratio},
	"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": {1001, sigEngine, ratio},
	"DCGM_FI_PROF_SM_ACTIVE":            {1002, sigSM, ratio},
	"DCGM_FI_PROF_SM_UTIL_RATIO":        {1002, sigSM, ratio},

	"DCGM_FI_DEV_FB_TOTAL":    {250, sigMemTotal, mebibytes},
	"DCGM_FI_DEV_FB_FREE":     {251, sigMemFree, mebibytes},
	"DCGM_FI_DEV_FB_USED":     {252, sigMemUsed, mebibytes},
	"DCGM_FI_DEV_FB_RESERVED": {253, sigMemReserved, mebibytes},

	"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": {156, sigEnergy, millijoules},
	"DCGM_FI_DEV_POWER_USAGE":              {155, sigPower, watts},
	"DCGM_FI_DEV_BOARD_POWER_WATTS":        {155, sigPower, watts},
	"DCGM_FI_DEV_XID_ERRORS":               {230, sigXID, code},
	"DCGM_FI_DEV_XID_ERROR":                {230, sigXID, code},

	"nvidia_smi_utilization_gpu_ratio":     {-1, sigUtil, ratio},
	"nvidia_smi_utilization_encoder_ratio": {-2, sigEncoder, ratio},
	"nvidia_smi_utilization_decoder_ratio": {-3, sigDecoder, ratio},
	"nvidia_smi_memory_used_bytes":         {-4, sigMemUsed, octets},
	"nvidia_smi_memory_free_bytes":         {-5, sigMemFree, octets},
	"nvidia_smi_memory_reserved_bytes":     {-6, sigMemReserved, octets},
	"nvidia_smi_memory_total_bytes":        {-7, sigMemTotal, octets},
	"nvidia_smi_mig_memory_used_bytes":     {-4, sigMemUsed, octets},
	"nvidia_smi_mig_memory_free_bytes":     {-5, sigMemFree, octets},
	"nvidia_smi_mig_memory_reserved_bytes": {-6, sigMemReserved, octets},
	"nvidia_smi_mig_memory_total_bytes":    {-7, sigMemTotal, octets},
	"nvidia_smi_energy_joules_total":       {-8, sigEnergy, joules},
	"nvidia_smi_power_draw_watts":          {-9, sigPower, watts},
}

func init() {
	// One profiling field for each of the eight decoder engines.
	for i := range 8 {
		f := field{1017 + i, sigDecoder, ratio}
		fields[fmt.Sprintf("DCGM_FI_PROF_NVDEC%d_ACTIVE", i)] = f
		fields[fmt.Sprintf("DCGM_FI_PROF_NVDEC_UTIL_%d_RATIO", i)] = f
	}
}

// Blanks: constants that mean "no value". DCGM tests with >=, because each base
// has three successors that say why.
const (
	blank32   = 1<<31 - 16 // int32 fields and everything counted in them
	blankReal = 1 << 47    // double fields; 64-bit integer blanks lie above
	minusOne  = 1<<32 - 1  // -1 as NVML casts it into 32 bits; the 64-bit one lies above blankReal
)

// Bounds of what hardware can say. A reading outside is a fault of the exporter.
const (
	maxRatioNoise = 1.05  // averaging over uneven windows overshoots 1 by a little
	maxWatts      = 3_000 // of one board
	maxBytes      = 1 << 44
)

// convert turns a value into the unit of readings: millionths, bytes,
// millijoules, milliwatts or a code. A second result that is not empty says why
// there is none.
func (f field) convert(v float64) (int64, string) {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, "not a number"
	case v == -1 || v == minusOne || v >= blankReal:
		return 0, "blank"
	case v < 0:
		return 0, "negative"
	}
	switch f.measure {
	case percent:
		return bounded(v, v/100, 1, schema.UtilizationOne)
	case ratio:
		return bounded(v, v, maxRatioNoise, schema.UtilizationOne)
	case mebibytes:
		if v >= blank32 {
			return 0, "blank"
		}
		return scaled(v*(1<<20), maxBytes)
	case octets:
		return scaled(v, maxBytes)
	case watts:
		return bounded(v, v, maxWatts, 1000)
	case joules:
		return scaled(v*1000, blankReal)
	case millijoules:
		return scaled(v, blankReal)
	}
	return scaled(v, blank32)
}

// bounded scales a gauge of a bounded range. Ratios stop at 1 after the noise
// that the bound allows.
func bounded(raw, v, most float64, unit int64) (int64, string) {
	switch {
	case raw >= blank32:
		return 0, "blank"
	case v > most:
		return 0, "implausible"
	}
	n := int64(math.Round(v * float64(unit)))
	if unit == schema.UtilizationOne {
		n = min(n, unit)
	}
	return n, ""
}

func scaled(v, most float64) (int64, string) {
	if v >= most {
		return 0, "implausible"
	}
	return int64(math.Round(v)), ""
}
