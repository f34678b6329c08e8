package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// appendIncidents writes "incidents". The span is null when any time is touched,
// and its end while it is not known; the same goes for the closing.
func appendIncidents(b []byte, list []schema.Incident) []byte {
	b = append(appendName(b, "incidents"), '[')
	for i := range list {
		n := &list[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		for _, f := range [...]struct{ name, text string }{{"kind", n.Kind}, {"key", n.Key}, {"tenant", n.Tenant}, {"detail", n.Detail}} {
			b = appendText(appendName(b, f.name), f.text)
		}
		b = strconv.AppendInt(appendName(b, "count"), n.Count, 10)
		to := n.ToMs
		if to >= schema.MaxTimeMs {
			to = 0
		}
		for _, f := range [...]struct {
			name string
			ms   int64
		}{{"from", n.FromMs}, {"to", to}, {"opened_at", n.OpenedAtMs}, {"closed_at", n.ClosedAtMs}} {
			b = appendName(b, f.name)
			if f.ms == 0 {
				b = append(b, "null"...)
			} else {
				b = appendText(b, instantIn(utc, f.ms))
			}
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// incidentText lists incidents for people.
func incidentText(list []schema.Incident) string {
	var b strings.Builder
	for i := range list {
		n := &list[i]
		fmt.Fprintf(&b, "  %s since %s: %s\n", n.Kind, instantIn(utc, n.OpenedAtMs), printable(n.Detail))
	}
	return b.String()
}
