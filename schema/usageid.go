package schema

import (
	"time"
	"unsafe"
)

// appendUsageID writes what [UsageID] returns. It formats by hand because it
// runs once for every event on its way in and out.
func appendUsageID(b []byte, unit string, startMs int64) []byte {
	b = append(b, unit...)
	b = append(b, '/')
	return appendTime(b, startMs)
}

func appendTime(b []byte, ms int64) []byte {
	t := time.UnixMilli(ms).UTC()
	year, month, day := t.Date()
	if year < 1000 || year > 9999 {
		return t.AppendFormat(b, timeLayout)
	}
	hour, minute, second := t.Clock()
	milli := t.Nanosecond() / int(time.Millisecond)
	b = append2(append2(b, year/100), year%100)
	b = append2(append(b, '-'), int(month))
	b = append2(append(b, '-'), day)
	b = append2(append(b, 'T'), hour)
	b = append2(append(b, ':'), minute)
	b = append2(append(b, ':'), second)
	b = append(b, '.', byte('0'+milli/100))
	return append(append2(b, milli%100), 'Z')
}

func append2(b []byte, v int) []byte { return append(b, byte('0'+v/10), byte('0'+v%10)) }

// bytesAsString gives b as a string without copying. The caller must never
// write to those bytes again.
func bytesAsString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
