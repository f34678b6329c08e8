package schema

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Validate says whether the event may be stored. The error names the first
// field that may not, in the order of the format.
func (e *Event) Validate() error {
	switch {
	case e.Usage != nil:
		return e.Usage.Validate()
	case e.Lease != nil:
		return e.Lease.validate()
	case e.Meter != nil:
		return e.Meter.validate()
	case e.Outage != nil:
		return e.Outage.validate()
	case e.Correction != nil:
		return e.Correction.validate()
	}
	return fault(KindMissing, "type", "event without data")
}

// Validate checks one usage event. It is on the hot path: a valid event costs
// no allocation.
func (u *Usage) Validate() error {
	err := u.Header.validate()
	if err == nil {
		err = u.check()
	}
	if err != nil {
		err.ID = u.Source + "/" + u.ID
		return err
	}
	return nil
}

func (u *Usage) check() *Error {
	if err := required("data.unit", u.Unit); err != nil {
		return err
	}
	if err := interval(u.StartMs, u.EndMs); err != nil {
		return err
	}
	for _, f := range [...]struct{ name, value string }{
		{"data.instance", u.Instance}, {"data.project", u.Project}, {"data.node", u.Node},
		{"data.platform", u.Platform}, {"data.region", u.Region}, {"data.model", u.Model},
	} {
		if err := name(f.name, f.value); err != nil {
			return err
		}
	}
	if m := u.Utilization; m.Known && (m.Value < 0 || m.Value > UtilizationOne) {
		return fault(KindInvalid, "data.utilization", "%s is not between 0 and 1; it is a ratio, not a percentage", decimalText(m.Value, 6))
	}
	if u.ActiveMs.Known || u.IdleMs.Known {
		a, i := u.ActiveMs.Value, u.IdleMs.Value
		if a < 0 || i < 0 {
			return fault(KindInvalid, "data.active_ms", "active_ms %d and idle_ms %d may not be negative", a, i)
		}
		if length := u.LengthMs(); a > length || i > length || a+i > length {
			return fault(KindInvalid, "data.active_ms", "active_ms %d + idle_ms %d is longer than the interval of %d ms", a, i, length)
		}
	}
	for _, f := range [...]struct {
		name string
		m    Maybe
	}{{"data.memory_used_bytes", u.MemoryUsedBytes}, {"data.memory_total_bytes", u.MemoryTotalBytes}, {"data.energy_mj", u.EnergyMj}} {
		if f.m.Known && f.m.Value < 0 {
			return fault(KindInvalid, f.name, "%d is negative", f.m.Value)
		}
	}
	// 10 kW for the whole interval and memory of 2 TiB are far above anything
	// built; beyond them is a blank constant or a unit mistake.
	if m := u.EnergyMj; m.Known && m.Value/10_000 > u.LengthMs() {
		return fault(KindInvalid, "data.energy_mj", "%d mJ in %d ms is more than 10 kW; the unit is millijoules", m.Value, u.LengthMs())
	}
	for i, m := range [...]Maybe{u.MemoryUsedBytes, u.MemoryTotalBytes} {
		if m.Known && m.Value > 1<<41 {
			return fault(KindInvalid, [...]string{"data.memory_used_bytes", "data.memory_total_bytes"}[i], "%d bytes is more than 2 TiB", m.Value)
		}
	}
	if s := u.Share; s.Known && (s.Value <= 0 || s.Value > ShareOne) {
		return fault(KindInvalid, "data.share", "%s is not above 0 and at most 1", decimalText(s.Value, 9))
	}
	return u.Labels.validate()
}

func (h *Header) validate() *Error {
	if err := required("source", h.Source); err != nil {
		return err
	}
	if err := required("id", h.ID); err != nil {
		return err
	}
	if h.TimeMs != 0 {
		return instant("time", h.TimeMs)
	}
	return nil
}

func (l *Lease) validate() error {
	return firstFault(&l.Header,
		l.Header.validate(),
		required("data.instance", l.Instance),
		instant("data.at", l.AtMs),
		oneOf("data.state", l.State, LeaseStates),
		names("data.project", l.Project, "data.platform", l.Platform, "data.region", l.Region, "data.model", l.Model,
			"data.sku", l.SKU, "data.plan", l.Plan, "data.tenancy", l.Tenancy, "data.dc_tier", l.DCTier, "data.workload", l.Workload),
		within("data.gpus", l.Gpus, 0, 1_000_000),
		l.Labels.validate())
}

func (m *Meter) validate() error {
	var owner *Error
	if m.Instance == "" && m.Project == "" {
		owner = fault(KindMissing, "data.instance", "a meter event needs an instance or a project")
	}
	return firstFault(&m.Header,
		m.Header.validate(),
		owner,
		names("data.instance", m.Instance, "data.project", m.Project),
		required("data.meter", m.Meter),
		interval(m.StartMs, m.EndMs),
		quantity("data.quantity", m.Quantity))
}

func (o *Outage) validate() error {
	return firstFault(&o.Header,
		o.Header.validate(),
		required("data.platform", o.Platform),
		names("data.region", o.Region, "data.instance", o.Instance),
		interval(o.StartMs, o.EndMs),
		text("data.reason", o.Reason))
}

func (c *Correction) validate() error {
	var replacement *Error
	switch {
	case c.Action == "replace" && c.Replacement == nil:
		replacement = fault(KindMissing, "data.replacement", "action replace needs a replacement event")
	case c.Action == "retract" && c.Replacement != nil:
		replacement = fault(KindInvalid, "data.replacement", "action retract may not have a replacement")
	case c.Replacement != nil && c.Replacement.Correction != nil:
		replacement = fault(KindInvalid, "data.replacement", "a correction may not be replaced by a correction")
	case c.Replacement != nil:
		replacement = c.checkReplacement()
	}
	return firstFault(&c.Header,
		c.Header.validate(),
		required("data.corrects.source", c.CorrectsSource),
		required("data.corrects.id", c.CorrectsID),
		oneOf("data.action", c.Action, []string{"retract", "replace"}),
		replacement,
		required("data.actor", c.Actor),
		text("data.reason", c.Reason))
}

// checkReplacement checks the event that is to count instead. It is stored as an
// event of its own, so it has to have an identity of its own, and the subject
// that the correction comes on has to be allowed to speak for it.
func (c *Correction) checkReplacement() *Error {
	h := c.Replacement.Header()
	switch err := c.Replacement.Validate(); {
	case err != nil:
		return fault(KindOf(err), "data.replacement", "%v", err)
	case h.Source == c.CorrectsSource && h.ID == c.CorrectsID:
		return fault(KindInvalid, "data.replacement.id", "the replacement has the identity of the event that it replaces; give it one of its own")
	case h.Source != c.Source:
		return fault(KindMisdirected, "data.replacement.source", "%q is not the correction's own source %q", clip(h.Source), clip(c.Source))
	}
	return nil
}

func firstFault(h *Header, faults ...*Error) error {
	for _, f := range faults {
		if f != nil {
			f.ID = h.Source + "/" + h.ID
			return f
		}
	}
	return nil
}

func required(field, value string) *Error {
	if value == "" {
		return fault(KindMissing, field, "required and absent or empty")
	}
	return name(field, value)
}

func names(pairs ...string) *Error {
	for i := 0; i < len(pairs); i += 2 {
		if err := name(pairs[i], pairs[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func name(field, value string) *Error { return bounded(field, value, MaxNameBytes) }

func text(field, value string) *Error { return bounded(field, value, MaxLabelValueBytes) }

func bounded(field, value string, limit int) *Error {
	if len(value) > limit {
		return fault(KindTooLarge, field, "%d bytes, at most %d are allowed", len(value), limit)
	}
	if !utf8.ValidString(value) {
		return fault(KindInvalid, field, "not valid UTF-8")
	}
	if strings.IndexByte(value, 0) >= 0 {
		return fault(KindInvalid, field, "holds a NUL byte")
	}
	return nil
}

func instant(field string, ms int64) *Error {
	if ms < MinTimeMs || ms >= MaxTimeMs {
		return fault(KindInvalid, field, "%s is outside 2000 to 2100; is it in the wrong unit?", farTime(ms))
	}
	return nil
}

func interval(startMs, endMs int64) *Error {
	if err := instant("data.start", startMs); err != nil {
		return err
	}
	if err := instant("data.end", endMs); err != nil {
		return err
	}
	switch {
	case endMs < startMs:
		return fault(KindInvalid, "data.end", "%s is before the start %s", FormatTime(endMs), FormatTime(startMs))
	case endMs == startMs:
		return fault(KindInvalid, "data.end", "the interval is empty: start and end are both %s", FormatTime(startMs))
	case endMs-startMs > MaxIntervalMs:
		return fault(KindInvalid, "data.end", "the interval is longer than 32 days; report it in parts")
	}
	return nil
}

func oneOf(field, value string, allowed []string) *Error {
	if slices.Contains(allowed, value) {
		return nil
	}
	if value == "" {
		return fault(KindMissing, field, "required; one of %s", strings.Join(allowed, ", "))
	}
	return fault(KindInvalid, field, "%q is not one of %s", value, strings.Join(allowed, ", "))
}

func within(field string, m Maybe, low, high int64) *Error {
	if m.Known && (m.Value < low || m.Value > high) {
		return fault(KindInvalid, field, "%d is not between %d and %d", m.Value, low, high)
	}
	return nil
}

// quantity accepts a plain decimal: it must be exact, so no exponent and no
// more than 38 digits, which is what storage holds without loss.
func quantity(field, s string) *Error {
	if s == "" {
		return fault(KindMissing, field, "required and absent")
	}
	if strings.HasPrefix(s, "-") {
		return fault(KindInvalid, field, "%s is negative", clip(s))
	}
	whole, fraction, _ := strings.Cut(s, ".")
	if whole == "" || len(whole)+len(fraction) > 38 || len(fraction) > 9 || !digits(whole) || !digits(fraction) || strings.HasSuffix(s, ".") {
		return fault(KindInvalid, field, "%q is not a plain decimal of at most 38 digits, 9 of them after the point", clip(s))
	}
	return nil
}

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func (l Labels) validate() *Error {
	if len(l) > MaxLabels {
		return fault(KindTooLarge, "data.labels", "%d labels, at most %d are allowed", len(l), MaxLabels)
	}
	for i := range l {
		if l[i].Key == "" {
			return fault(KindInvalid, "data.labels", "a label with an empty key")
		}
		if err := bounded("data.labels", l[i].Key, MaxLabelKeyBytes); err != nil {
			return err
		}
		if err := bounded("data.labels."+clip(l[i].Key), l[i].Value, MaxLabelValueBytes); err != nil {
			return err
		}
		if i > 0 && l[i-1].Key >= l[i].Key {
			return fault(KindInvalid, "data.labels", "labels are not sorted or %q is there twice", clip(l[i].Key))
		}
	}
	return nil
}
