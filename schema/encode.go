package schema

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// EncodeEvent writes an event as CloudEvents 1.0 JSON. The same event always
// gives the same bytes.
func EncodeEvent(e *Event) []byte {
	w := wireOf(e)
	b, err := json.Marshal(&w, json.Deterministic(true))
	if err != nil {
		// Only invalid UTF-8 can do this, and only an event that Validate
		// refuses can hold it; it is quarantined, so its text is mended.
		b, _ = json.Marshal(&w, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	}
	return b
}

func wireOf(e *Event) wireEvent {
	h := e.Header()
	w := wireEvent{SpecVersion: "1.0", Type: e.Type(), Source: h.Source, ID: h.ID}
	if h.TimeMs != 0 {
		w.Time = timeValue(h.TimeMs)
	}
	if h.Sequence != 0 {
		w.Sequence = jsontext.Value(`"` + strconv.FormatUint(h.Sequence, 10) + `"`)
	}
	var data any
	switch {
	case e.Usage != nil:
		u := e.Usage
		data = &wireUsage{
			Unit: &u.Unit, Start: timeValue(u.StartMs), End: timeValue(u.EndMs), Instance: &u.Instance, Project: &u.Project,
			Node: &u.Node, Platform: &u.Platform, Region: &u.Region, Model: &u.Model, Utilization: numberValue(u.Utilization, 6),
			ActiveMs: numberValue(u.ActiveMs, 0), IdleMs: numberValue(u.IdleMs, 0), MemoryUsed: numberValue(u.MemoryUsedBytes, 0),
			MemoryTotal: numberValue(u.MemoryTotalBytes, 0), EnergyMj: numberValue(u.EnergyMj, 0),
			Share: quotedValue(u.Share, 9), Labels: mapOf(u.Labels),
		}
	case e.Lease != nil:
		l := e.Lease
		data = &wireLease{
			Instance: &l.Instance, At: timeValue(l.AtMs), State: &l.State, Project: some(l.Project), Platform: some(l.Platform),
			Region: some(l.Region), Model: some(l.Model), Gpus: numberValue(l.Gpus, 0), SKU: some(l.SKU), Plan: some(l.Plan),
			Tenancy: some(l.Tenancy), DCTier: some(l.DCTier), Workload: some(l.Workload), Labels: mapOf(l.Labels),
		}
	case e.Meter != nil:
		m := e.Meter
		data = &wireMeter{
			Instance: some(m.Instance), Project: some(m.Project), Meter: &m.Meter, Start: timeValue(m.StartMs), End: timeValue(m.EndMs),
			Quantity: textValue(m.Quantity),
		}
	case e.Outage != nil:
		o := e.Outage
		data = &wireOutage{
			Platform: &o.Platform, Region: some(o.Region), Instance: some(o.Instance),
			Start: timeValue(o.StartMs), End: timeValue(o.EndMs), Reason: some(o.Reason),
		}
	case e.Correction != nil:
		c := e.Correction
		wc := &wireCorrection{
			Corrects: wireIdentity{Source: c.CorrectsSource, ID: c.CorrectsID},
			Action:   &c.Action, Actor: &c.Actor, Reason: some(c.Reason),
		}
		if c.Replacement != nil {
			wc.Replacement = EncodeEvent(c.Replacement)
		}
		data = wc
	}
	w.Data, _ = json.Marshal(data, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	return w
}

func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeValue(ms int64) jsontext.Value { return textValue(FormatTime(ms)) }

func textValue(s string) jsontext.Value {
	b, _ := jsontext.AppendQuote(nil, s)
	return b
}

func numberValue(m Maybe, scale int) jsontext.Value {
	if !m.Known {
		return nil
	}
	return jsontext.Value(decimalText(m.Value, scale))
}

func quotedValue(m Maybe, scale int) jsontext.Value {
	if !m.Known {
		return nil
	}
	return textValue(decimalText(m.Value, scale))
}

func mapOf(labels Labels) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	m := make(map[string]string, len(labels))
	for _, l := range labels {
		m[l.Key] = l.Value
	}
	return m
}
