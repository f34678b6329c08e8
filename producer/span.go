package producer

import (
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// span is an event in the making. Its amounts are sums over the samples so far.
type span struct {
	usage       schema.Usage
	activeMs    int64
	idleMs      int64
	utilization mean // millionths
	memory      mean // bytes
}

func newSpan(source string, h *holding, startMs int64) *span {
	s := &span{usage: h.usage}
	u := &s.usage
	u.Source, u.StartMs, u.EndMs = source, startMs, startMs
	u.ID = eventID(h.unit, h.instance, startMs, h.shared)
	return s
}

// eventID is the unit and the start, and for one of several owners the instance:
// their events begin together. An instance that makes the id too long goes in as
// a hash of itself.
func eventID(unit, instance string, startMs int64, shared bool) string {
	id := schema.UsageID(unit, startMs)
	if !shared {
		return id
	}
	if len(id)+1+len(instance) > schema.MaxNameBytes {
		sum := sha256.Sum256([]byte(instance))
		instance = hex.EncodeToString(sum[:16])
	}
	return id + "/" + instance
}

// add extends the span to an instant, through which the sample holds.
func (s *span) add(toMs int64, v sample, energyMj schema.Maybe, threshold int64) {
	length := toMs - s.usage.EndMs
	s.usage.EndMs = toMs
	switch {
	case !v.utilization.Known:
	case v.utilization.Value >= threshold:
		s.activeMs += length
	default:
		s.idleMs += length
	}
	s.utilization.add(v.utilization, length)
	s.memory.add(v.used, length)
	if v.total.Known {
		s.usage.MemoryTotalBytes = v.total
	}
	if energyMj.Known {
		s.usage.EnergyMj = schema.Some(s.usage.EnergyMj.Value + energyMj.Value)
	}
}

// event returns the event as it is when it ends here.
func (s *span) event() schema.Usage {
	u := s.usage
	u.Labels = slices.Clone(u.Labels)
	u.ActiveMs, u.IdleMs = schema.Some(s.activeMs), schema.Some(s.idleMs)
	u.Utilization, u.MemoryUsedBytes = s.utilization.value(), s.memory.value()
	if u.EnergyMj.Value/maxWatts > u.LengthMs() {
		// A short event that got the energy of a longer, unread time.
		u.EnergyMj = schema.Maybe{}
	}
	return u
}

// mean is a mean over time. Bytes times milliseconds can exceed 64 bits.
type mean struct {
	hi, lo uint64
	ms     int64
}

func (m *mean) add(v schema.Maybe, ms int64) {
	if !v.Known {
		return
	}
	hi, lo := bits.Mul64(uint64(v.Value), uint64(ms))
	var carry uint64
	m.lo, carry = bits.Add64(m.lo, lo, 0)
	m.hi, _ = bits.Add64(m.hi, hi, carry)
	m.ms += ms
}

// value rounds half up; it is unknown when no time had a value.
func (m *mean) value() schema.Maybe {
	if m.ms == 0 {
		return schema.Maybe{}
	}
	lo, carry := bits.Add64(m.lo, uint64(m.ms)/2, 0)
	q, _ := bits.Div64(m.hi+carry, lo, uint64(m.ms))
	return schema.Some(int64(q))
}
