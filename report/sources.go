package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// SourceFigures is one source of a quality report as JSON shows it.
type SourceFigures struct {
	Source        string `json:"source"`
	Events        int64  `json:"events" doc:"Distinct usage events of the span"`
	Late          int64  `json:"late" doc:"Events that the stream stored more than the grace time after their end"`
	Held          int64  `json:"held" doc:"Events that wait for their time, because they ended in the future when they came"`
	WorstDelayMs  *int64 `json:"worst_delay_ms" doc:"Longest time from the end of an event to its storing; null without events"`
	ClockOffsetMs *int64 `json:"clock_offset_ms" doc:"By how much at least the clock of the source was ahead; 0 when nothing says so, null when no event says when it was made"`
	LastEvent     string `json:"last_event" format:"date-time" doc:"When the stream stored the last of them"`
}

func appendSources(b []byte, r *Report) []byte {
	b = append(appendName(b, "sources"), '[')
	for i := range r.Sources {
		s := &r.Sources[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(appendName(append(b, '{'), "source"), s.Source)
		b = strconv.AppendInt(appendName(b, "events"), s.Events, 10)
		b = strconv.AppendInt(appendName(b, "late"), s.Late, 10)
		b = strconv.AppendInt(appendName(b, "held"), s.Held, 10)
		b = appendMaybe(appendName(b, "worst_delay_ms"), s.WorstDelayMs)
		b = appendMaybe(appendName(b, "clock_offset_ms"), s.ClockOffsetMs)
		b = append(appendText(appendName(b, "last_event"), instantIn(utc, s.LastEventMs)), '}')
	}
	return strconv.AppendInt(appendName(append(b, ']'), "sources_total"), r.SourcesTotal, 10)
}

func appendMaybe(b []byte, m schema.Maybe) []byte {
	if !m.Known {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, m.Value, 10)
}

// sourcesTable writes a line for each source.
func sourcesTable(b *strings.Builder, r *Report) {
	duration := func(m schema.Maybe) string {
		if !m.Known {
			return unknown
		}
		return Duration(m.Value)
	}
	lines := [][]string{{"source", "events", "late", "worst delay", "held", "clock ahead", "last heard"}}
	for i := range r.Sources {
		s := &r.Sources[i]
		lines = append(lines, []string{
			s.Source, strconv.FormatInt(s.Events, 10), strconv.FormatInt(s.Late, 10), duration(s.WorstDelayMs),
			strconv.FormatInt(s.Held, 10), duration(s.ClockOffsetMs), instantIn(r.Zone, s.LastEventMs),
		})
	}
	align(b, 1, lines)
	if more := r.SourcesTotal - int64(len(r.Sources)); more > 0 {
		fmt.Fprintf(b, "and %d more\n", more)
	}
}
