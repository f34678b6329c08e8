package schema

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Generators of events that Validate accepts, for the property tests.

func genName() *rapid.Generator[string] {
	return rapid.StringN(1, 40, MaxNameBytes).Filter(func(s string) bool {
		return s != "" && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
	})
}

func genOptional() *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), rapid.SampledFrom([]string{"i1", "项目", "a.b/c", `q"\`}), genName())
}

func genInstant() *rapid.Generator[int64] { return rapid.Int64Range(MinTimeMs, MaxTimeMs-1) }

func genInterval(t *rapid.T) (start, end int64) {
	start = rapid.Int64Range(MinTimeMs, MaxTimeMs-2).Draw(t, "start")
	return start, start + rapid.Int64Range(1, min(MaxIntervalMs, MaxTimeMs-1-start)).Draw(t, "length")
}

func genMaybe(low, high int64) *rapid.Generator[Maybe] {
	return rapid.Custom(func(t *rapid.T) Maybe {
		if rapid.Bool().Draw(t, "unknown") {
			return Maybe{}
		}
		return Some(rapid.Int64Range(low, high).Draw(t, "value"))
	})
}

func genLabels() *rapid.Generator[Labels] {
	return rapid.Custom(func(t *rapid.T) Labels {
		m := rapid.MapOfN(genName().Filter(func(s string) bool { return len(s) <= MaxLabelKeyBytes }), genOptional(), 0, 4).Draw(t, "labels")
		return labelsOf(m)
	})
}

func genHeader(t *rapid.T) Header {
	h := Header{Source: genName().Draw(t, "source"), ID: genName().Draw(t, "id")}
	if rapid.Bool().Draw(t, "timed") {
		h.TimeMs = genInstant().Draw(t, "time")
	}
	if rapid.Bool().Draw(t, "counted") {
		h.Sequence = rapid.Uint64Range(1, math.MaxUint64).Draw(t, "sequence")
	}
	return h
}

func genUsage() *rapid.Generator[Usage] {
	return rapid.Custom(func(t *rapid.T) Usage {
		u := Usage{Header: genHeader(t), Unit: genName().Draw(t, "unit")}
		u.StartMs, u.EndMs = genInterval(t)
		if rapid.Bool().Draw(t, "usual id") {
			u.ID = UsageID(u.Unit, u.StartMs)
			if len(u.ID) > MaxNameBytes {
				u.ID = "other"
			}
		}
		for _, s := range []*string{&u.Instance, &u.Project, &u.Node, &u.Platform, &u.Region, &u.Model} {
			*s = genOptional().Draw(t, "text")
		}
		u.Utilization = genMaybe(0, UtilizationOne).Draw(t, "utilization")
		u.ActiveMs = genMaybe(0, u.LengthMs()).Draw(t, "active")
		u.IdleMs = genMaybe(0, u.LengthMs()-u.ActiveMs.Value).Draw(t, "idle")
		u.MemoryUsedBytes = genMaybe(0, 1<<41).Draw(t, "used")
		u.MemoryTotalBytes = genMaybe(0, 1<<41).Draw(t, "total")
		u.EnergyMj = genMaybe(0, 10_000*u.LengthMs()).Draw(t, "energy")
		u.Share = genMaybe(1, ShareOne).Draw(t, "share")
		u.Labels = genLabels().Draw(t, "labels")
		return u
	})
}

// genEvent makes an event of any type; a correction's replacement is of another.
func genEvent(replacement bool) *rapid.Generator[Event] {
	return rapid.Custom(func(t *rapid.T) Event {
		kinds := []string{TypeUsage, TypeLease, TypeMeter, TypeOutage}
		if !replacement {
			kinds = append(kinds, TypeCorrection)
		}
		switch rapid.SampledFrom(kinds).Draw(t, "type") {
		case TypeUsage:
			u := genUsage().Draw(t, "usage")
			return Event{Usage: &u}
		case TypeLease:
			l := &Lease{
				Header: genHeader(t), Instance: genName().Draw(t, "instance"), AtMs: genInstant().Draw(t, "at"),
				State: rapid.SampledFrom(LeaseStates).Draw(t, "state"), Gpus: genMaybe(0, 1_000_000).Draw(t, "gpus"),
				Labels: genLabels().Draw(t, "labels"),
			}
			for _, s := range []*string{&l.Project, &l.Platform, &l.Region, &l.Model, &l.SKU, &l.Plan, &l.Tenancy, &l.DCTier, &l.Workload} {
				*s = genOptional().Draw(t, "text")
			}
			return Event{Lease: l}
		case TypeMeter:
			m := &Meter{Header: genHeader(t), Instance: genName().Draw(t, "instance"), Project: genOptional().Draw(t, "project"), Meter: genName().Draw(t, "meter")}
			m.StartMs, m.EndMs = genInterval(t)
			m.Quantity = rapid.StringMatching(`(0|[1-9][0-9]{0,28})(\.[0-9]{1,9})?`).Draw(t, "quantity")
			return Event{Meter: m}
		case TypeOutage:
			o := &Outage{Header: genHeader(t), Platform: genName().Draw(t, "platform"), Region: genOptional().Draw(t, "region"),
				Instance: genOptional().Draw(t, "instance"), Reason: genOptional().Draw(t, "reason")}
			o.StartMs, o.EndMs = genInterval(t)
			return Event{Outage: o}
		default:
			c := &Correction{
				Header: genHeader(t), CorrectsSource: genName().Draw(t, "corrects source"), CorrectsID: genName().Draw(t, "corrects id"),
				Action: "retract", Actor: genName().Draw(t, "actor"), Reason: genOptional().Draw(t, "reason"),
			}
			if rapid.Bool().Draw(t, "replace") {
				e := genEvent(true).Draw(t, "replacement")
				// It speaks for the same source, under an id of its own.
				h := e.Header()
				h.Source, h.ID = c.Source, "r/"+h.ID[:min(len(h.ID), MaxNameBytes-utf8.UTFMax-2)]
				h.ID = strings.ToValidUTF8(h.ID, "")
				if h.Identity() != (Identity{c.CorrectsSource, c.CorrectsID}) {
					c.Action, c.Replacement = "replace", &e
				}
			}
			return Event{Correction: c}
		}
	})
}

// document is a JSON event under construction: raw values by path, in order, so
// that a test can also write what no encoder would.
type document struct{ top, data []member }

type member struct{ key, raw string }

func documentOf(kind string) *document {
	d := &document{top: []member{
		{"specversion", `"1.0"`}, {"type", `"gpumeter.` + kind + `.v1"`}, {"source", `"agent/node-7"`}, {"id", `"e1"`},
	}}
	span := []member{{"start", `"2026-03-01T10:00:00Z"`}, {"end", `"2026-03-01T10:01:00Z"`}}
	switch kind {
	case "usage":
		d.data = append([]member{{"unit", `"GPU-1"`}}, span...)
	case "lease":
		d.data = []member{{"instance", `"i1"`}, {"at", `"2026-03-01T10:00:00Z"`}, {"state", `"running"`}}
	case "meter":
		d.data = append([]member{{"instance", `"i1"`}, {"meter", `"egress_bytes"`}, {"quantity", `"12"`}}, span...)
	case "outage":
		d.data = append([]member{{"platform", `"self"`}}, span...)
	case "correction":
		d.data = []member{{"corrects", `{"source":"agent/node-7","id":"e0"}`}, {"action", `"retract"`}, {"actor", `"ann"`}}
	default:
		panic("no event type " + kind)
	}
	return d
}

// edit applies "path = raw" (set), "+path = raw" (once more) or "-path" (remove).
func (d *document) edit(line string) error {
	path, raw, isSet := strings.Cut(line, " = ")
	list := &d.top
	add, remove := strings.HasPrefix(path, "+"), strings.HasPrefix(path, "-")
	path = strings.TrimLeft(path, "+-")
	if key, ok := strings.CutPrefix(path, "data."); ok {
		list, path = &d.data, key
	}
	if isSet == remove {
		return fmt.Errorf("%q is neither a value nor a removal", line)
	}
	for i := range *list {
		if (*list)[i].key != path || add {
			continue
		}
		if remove {
			*list = append((*list)[:i:i], (*list)[i+1:]...)
		} else {
			(*list)[i].raw = raw
		}
		return nil
	}
	if remove {
		return fmt.Errorf("%q is not there", path)
	}
	*list = append(*list, member{path, raw})
	return nil
}

func (d *document) String() string {
	object := func(list []member) string {
		var parts []string
		for _, m := range list {
			parts = append(parts, fmt.Sprintf("%q:%s", m.key, m.raw))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	top := d.top
	for _, m := range top {
		if m.key == "data" {
			return object(top) // the case brings its own
		}
	}
	if d.data != nil {
		top = append(top[:len(top):len(top)], member{"data", object(d.data)})
	}
	return object(top)
}
