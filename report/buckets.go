package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// MaxPieces bounds the pieces that one report cuts its span into: eleven years
// by the hour. Beyond it a question is answered in several.
const MaxPieces = 100_000

const dayMs = 24 * schema.HourMs

// era is a span during which a zone's offset from UTC does not change. Within
// an era the local clock is plain arithmetic, so hours and days are right at
// every change of the clock without a rule for any of them: days of 23 and 25
// hours, shifts of 30 minutes, a midnight that does not exist or comes twice.
type era struct {
	fromMs, toMs int64 // the whole era, not cut to the report's span
	offsetMs     int64
}

// eras returns the eras that overlap [fromMs, toMs), in order.
func eras(zone *time.Location, fromMs, toMs int64) []era {
	var list []era
	for at := fromMs; at < toMs; {
		t := time.UnixMilli(at).In(zone)
		_, seconds := t.Zone()
		start, end := t.ZoneBounds()
		e := era{fromMs: math.MinInt64, toMs: math.MaxInt64, offsetMs: int64(seconds) * 1000}
		if !start.IsZero() {
			e.fromMs = start.UnixMilli()
		}
		if !end.IsZero() {
			e.toMs = end.UnixMilli()
		}
		at = e.toMs
		if n := len(list); n > 0 && list[n-1].offsetMs == e.offsetMs {
			// Only the zone's abbreviation changed; clocks went on.
			list[n-1].toMs = e.toMs
			continue
		}
		list = append(list, e)
	}
	return list
}

// dayStart returns the first instant whose local date is that of day (read in
// UTC), or is later if the zone skipped that date.
func dayStart(zone *time.Location, day time.Time) int64 {
	midnight := day.UnixMilli()
	// No zone is more than 26 hours away from UTC, a day more for a skipped date.
	for _, e := range eras(zone, midnight-2*dayMs, midnight+3*dayMs) {
		if start := max(e.fromMs, midnight-e.offsetMs); start < e.toMs {
			return start
		}
	}
	return midnight // the last era has no end, so this is not reached
}

// calendar maps instants to the hours, days and months of a zone.
type calendar struct {
	eras []era
	keys []string // the time keys asked for
}

func newCalendar(r *Request) *calendar {
	c := &calendar{}
	for _, key := range r.By {
		if slices.Contains(timeKeys, key) {
			c.keys = append(c.keys, key)
		}
	}
	if len(c.keys) > 0 {
		// An hour at the start of the span may have begun before it.
		c.eras = eras(r.Zone, r.FromMs-schema.HourMs, r.ToMs)
	}
	return c
}

// cuts returns the instants inside (fromMs, toMs) at which a key changes.
func (c *calendar) cuts(fromMs, toMs int64) ([]int64, error) {
	step := int64(0)
	switch {
	case slices.Contains(c.keys, "hour"):
		step = schema.HourMs
	case len(c.keys) > 0:
		step = dayMs
	default:
		return nil, nil
	}
	months := len(c.keys) == 1 && c.keys[0] == "month"
	if !months && (toMs-fromMs)/step > MaxPieces {
		return nil, tooManyPieces((toMs - fromMs) / step)
	}
	var cuts []int64
	for _, e := range c.eras {
		from, to := max(e.fromMs, fromMs), min(e.toMs, toMs)
		if from > fromMs {
			cuts = append(cuts, from)
		}
		first := schema.Floor(from+e.offsetMs, step) - e.offsetMs + step
		for at := first; at < to; at += step {
			if months && time.UnixMilli(at+e.offsetMs).UTC().Day() != 1 {
				continue
			}
			cuts = append(cuts, at)
		}
	}
	return cuts, nil
}

func tooManyPieces(n int64) error {
	return wrong("by", "the span falls into %d pieces, at most %d are allowed; ask for a shorter span or by a longer unit of time", n, MaxPieces)
}

// bucket is the value of a time key and the text that it sorts by: hours at a
// change of the clock are not in the order of their own text.
type bucket struct{ key, order string }

// bucket returns the hour, day or month that holds the instant.
func (c *calendar) bucket(key string, ms int64) bucket {
	i, _ := slices.BinarySearchFunc(c.eras, ms, func(e era, ms int64) int {
		switch {
		case e.toMs <= ms:
			return -1
		case e.fromMs > ms:
			return 1
		}
		return 0
	})
	e := c.eras[i]
	local := time.UnixMilli(ms + e.offsetMs).UTC()
	switch key {
	case "day":
		d := local.Format(time.DateOnly)
		return bucket{d, d}
	case "month":
		m := local.Format("2006-01")
		return bucket{m, m}
	}
	// Where the clock jumps inside an hour, the new hour begins at the jump.
	start := max(schema.Floor(ms+e.offsetMs, schema.HourMs)-e.offsetMs, e.fromMs)
	zone := time.FixedZone("", int(e.offsetMs/1000))
	return bucket{instantIn(zone, start), fmt.Sprintf("%020d", start)}
}

// instantIn writes an instant as RFC 3339 in the zone, without a fraction when
// it is a whole second.
func instantIn(zone *time.Location, ms int64) string {
	return time.UnixMilli(ms).In(zone).Format(time.RFC3339Nano)
}
