package schema

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DecodeEvent reads and validates one event as a CloudEvents 1.0 JSON object.
//
// It is strict where leniency would change a figure: a key that is there twice,
// an unknown key in data (a misspelt field would otherwise count as unknown), a
// time without a zone. Extension attributes beside data are allowed and ignored.
func DecodeEvent(raw []byte) (*Event, error) {
	var w wireEvent
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, jsonFault("", err)
	}
	e, err := w.event()
	if err != nil {
		var f *Error
		if errors.As(err, &f) && f.ID == "" {
			f.ID = clip(w.Source + "/" + w.ID)
		}
		return nil, err
	}
	return e, e.Validate()
}

type wireEvent struct {
	SpecVersion     string         `json:"specversion"`
	Type            string         `json:"type"`
	Source          string         `json:"source"`
	ID              string         `json:"id"`
	Time            jsontext.Value `json:"time,omitzero"`
	Sequence        jsontext.Value `json:"sequence,omitzero"`
	DataContentType string         `json:"datacontenttype,omitzero"`
	Data            jsontext.Value `json:"data,omitzero"`
}

type wireUsage struct {
	Unit        *string           `json:"unit"`
	Start       jsontext.Value    `json:"start"`
	End         jsontext.Value    `json:"end"`
	Instance    *string           `json:"instance,omitzero"`
	Project     *string           `json:"project,omitzero"`
	Node        *string           `json:"node,omitzero"`
	Platform    *string           `json:"platform,omitzero"`
	Region      *string           `json:"region,omitzero"`
	Model       *string           `json:"model,omitzero"`
	Utilization jsontext.Value    `json:"utilization,omitzero"`
	ActiveMs    jsontext.Value    `json:"active_ms,omitzero"`
	IdleMs      jsontext.Value    `json:"idle_ms,omitzero"`
	MemoryUsed  jsontext.Value    `json:"memory_used_bytes,omitzero"`
	MemoryTotal jsontext.Value    `json:"memory_total_bytes,omitzero"`
	EnergyMj    jsontext.Value    `json:"energy_mj,omitzero"`
	Share       jsontext.Value    `json:"share,omitzero"`
	Labels      map[string]string `json:"labels,omitzero"`
}

type wireLease struct {
	Instance *string           `json:"instance"`
	At       jsontext.Value    `json:"at"`
	State    *string           `json:"state"`
	Project  *string           `json:"project,omitzero"`
	Platform *string           `json:"platform,omitzero"`
	Region   *string           `json:"region,omitzero"`
	Model    *string           `json:"model,omitzero"`
	Gpus     jsontext.Value    `json:"gpus,omitzero"`
	SKU      *string           `json:"sku,omitzero"`
	Plan     *string           `json:"plan,omitzero"`
	Tenancy  *string           `json:"tenancy,omitzero"`
	DCTier   *string           `json:"dc_tier,omitzero"`
	Workload *string           `json:"workload,omitzero"`
	Labels   map[string]string `json:"labels,omitzero"`
}

type wireMeter struct {
	Instance *string        `json:"instance,omitzero"`
	Project  *string        `json:"project,omitzero"`
	Meter    *string        `json:"meter"`
	Start    jsontext.Value `json:"start"`
	End      jsontext.Value `json:"end"`
	Quantity jsontext.Value `json:"quantity"`
}

type wireOutage struct {
	Platform *string        `json:"platform"`
	Region   *string        `json:"region,omitzero"`
	Instance *string        `json:"instance,omitzero"`
	Start    jsontext.Value `json:"start"`
	End      jsontext.Value `json:"end"`
	Reason   *string        `json:"reason,omitzero"`
}

type wireCorrection struct {
	Corrects    wireIdentity   `json:"corrects"`
	Action      *string        `json:"action"`
	Replacement jsontext.Value `json:"replacement,omitzero"`
	Actor       *string        `json:"actor"`
	Reason      *string        `json:"reason,omitzero"`
}

type wireIdentity struct {
	Source string `json:"source"`
	ID     string `json:"id"`
}

func (w *wireEvent) event() (*Event, error) {
	if w.SpecVersion != "1.0" {
		return nil, fault(KindInvalid, "specversion", "%q, expected \"1.0\"", clip(w.SpecVersion))
	}
	if w.Type == "" {
		return nil, fault(KindMissing, "type", "required and absent")
	}
	if _, known := Kinds[w.Type]; !known {
		return nil, fault(KindUnknownType, "type", "%q is not a type that this version knows", clip(w.Type))
	}
	if len(w.Data) == 0 || w.Data.Kind() == 'n' {
		return nil, fault(KindMissing, "data", "required and absent")
	}
	r := reader{}
	h := Header{Source: w.Source, ID: w.ID}
	if len(w.Time) > 0 && w.Time.Kind() != 'n' {
		h.TimeMs = r.time("time", w.Time)
	}
	h.Sequence = r.sequence(w.Sequence)
	e := &Event{}
	var err error
	switch w.Type {
	case TypeUsage:
		e.Usage, err = r.usage(h, w.Data)
	case TypeLease:
		e.Lease, err = r.lease(h, w.Data)
	case TypeMeter:
		e.Meter, err = r.meter(h, w.Data)
	case TypeOutage:
		e.Outage, err = r.outage(h, w.Data)
	case TypeCorrection:
		e.Correction, err = r.correction(h, w.Data)
	}
	if err != nil {
		return nil, err
	}
	if r.err != nil {
		return nil, r.err
	}
	return e, nil
}

// reader turns JSON values into fields and keeps the first fault.
type reader struct{ err *Error }

func (r *reader) fail(f *Error) {
	if r.err == nil {
		r.err = f
	}
}

func strict(data jsontext.Value, into any) error {
	if err := json.Unmarshal(data, into, json.RejectUnknownMembers(true)); err != nil {
		return jsonFault("data", err)
	}
	return nil
}

func (r *reader) usage(h Header, data jsontext.Value) (*Usage, error) {
	var w wireUsage
	if err := strict(data, &w); err != nil {
		return nil, err
	}
	return &Usage{
		Header: h, Unit: text0(w.Unit),
		StartMs: r.time("data.start", w.Start), EndMs: r.time("data.end", w.End),
		Instance: text0(w.Instance), Project: text0(w.Project), Node: text0(w.Node),
		Platform: text0(w.Platform), Region: text0(w.Region), Model: text0(w.Model),
		Utilization:      r.number("data.utilization", w.Utilization, 6, "a ratio from 0 to 1, or null when unknown"),
		ActiveMs:         r.number("data.active_ms", w.ActiveMs, 0, "whole milliseconds"),
		IdleMs:           r.number("data.idle_ms", w.IdleMs, 0, "whole milliseconds"),
		MemoryUsedBytes:  r.number("data.memory_used_bytes", w.MemoryUsed, 0, "whole bytes"),
		MemoryTotalBytes: r.number("data.memory_total_bytes", w.MemoryTotal, 0, "whole bytes"),
		EnergyMj:         r.number("data.energy_mj", w.EnergyMj, 0, "whole millijoules"),
		Share:            r.number("data.share", w.Share, 9, "a decimal above 0 and at most 1"),
		Labels:           labelsOf(w.Labels),
	}, nil
}

func (r *reader) lease(h Header, data jsontext.Value) (*Lease, error) {
	var w wireLease
	if err := strict(data, &w); err != nil {
		return nil, err
	}
	return &Lease{
		Header: h, Instance: text0(w.Instance), AtMs: r.time("data.at", w.At), State: text0(w.State),
		Project: text0(w.Project), Platform: text0(w.Platform), Region: text0(w.Region), Model: text0(w.Model),
		Gpus: r.number("data.gpus", w.Gpus, 0, "a whole number of GPUs"),
		SKU:  text0(w.SKU), Plan: text0(w.Plan), Tenancy: text0(w.Tenancy), DCTier: text0(w.DCTier),
		Workload: text0(w.Workload), Labels: labelsOf(w.Labels),
	}, nil
}

func (r *reader) meter(h Header, data jsontext.Value) (*Meter, error) {
	var w wireMeter
	if err := strict(data, &w); err != nil {
		return nil, err
	}
	return &Meter{
		Header: h, Instance: text0(w.Instance), Project: text0(w.Project), Meter: text0(w.Meter),
		StartMs: r.time("data.start", w.Start), EndMs: r.time("data.end", w.End),
		Quantity: r.decimal("data.quantity", w.Quantity),
	}, nil
}

func (r *reader) outage(h Header, data jsontext.Value) (*Outage, error) {
	var w wireOutage
	if err := strict(data, &w); err != nil {
		return nil, err
	}
	return &Outage{
		Header: h, Platform: text0(w.Platform), Region: text0(w.Region), Instance: text0(w.Instance),
		StartMs: r.time("data.start", w.Start), EndMs: r.time("data.end", w.End), Reason: text0(w.Reason),
	}, nil
}

func (r *reader) correction(h Header, data jsontext.Value) (*Correction, error) {
	var w wireCorrection
	if err := strict(data, &w); err != nil {
		return nil, err
	}
	c := &Correction{
		Header: h, CorrectsSource: w.Corrects.Source, CorrectsID: w.Corrects.ID,
		Action: text0(w.Action), Actor: text0(w.Actor), Reason: text0(w.Reason),
	}
	if len(w.Replacement) > 0 && w.Replacement.Kind() != 'n' {
		var inner wireEvent
		if err := json.Unmarshal(w.Replacement, &inner); err != nil {
			return nil, jsonFault("data.replacement", err)
		}
		if inner.Type == TypeCorrection {
			return nil, fault(KindInvalid, "data.replacement", "a correction may not be replaced by a correction")
		}
		e, err := inner.event()
		if err != nil {
			return nil, fault(KindOf(err), "data.replacement", "%v", err)
		}
		c.Replacement = e
	}
	return c, nil
}

// time reads RFC 3339 with a zone. Digits below the millisecond are an error:
// cutting them off could move an instant into the neighbouring window.
func (r *reader) time(field string, v jsontext.Value) int64 {
	switch {
	case len(v) == 0 || v.Kind() == 'n':
		r.fail(fault(KindMissing, field, "required and absent"))
		return 0
	case v.Kind() != '"':
		r.fail(fault(KindInvalid, field, "%s is not RFC 3339 text such as \"2026-03-01T10:00:00Z\"; a bare number does not say its unit", clip(string(v))))
		return 0
	}
	s := unquote(v)
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || !rfc3339Shape(s) {
		r.fail(fault(KindInvalid, field, "%q is not an RFC 3339 time with a zone, such as 2026-03-01T10:00:00Z, in the years 2000 to 2100", clip(s)))
		return 0
	}
	if _, fraction, _ := strings.Cut(s, "."); finerThanMilli(fraction) {
		r.fail(fault(KindInvalid, field, "%q is finer than a millisecond", clip(s)))
	}
	ms := t.UnixMilli()
	if f := instant(field, ms); f != nil {
		r.fail(f)
	}
	return ms
}

// rfc3339Shape refuses what the standard library lets pass: one-digit hours and a
// comma before the fraction.
func rfc3339Shape(s string) bool {
	return len(s) >= len("2006-01-02T15:04:05Z") && s[13] == ':' && s[16] == ':' && strings.IndexByte(".Z+-", s[19]) >= 0
}

// finerThanMilli says whether any digit after the third is not 0. It looks at the
// text because parsing drops what is below a nanosecond.
func finerThanMilli(fraction string) bool {
	for i := 0; i < len(fraction) && fraction[i] >= '0' && fraction[i] <= '9'; i++ {
		if i >= 3 && fraction[i] != '0' {
			return true
		}
	}
	return false
}

// number reads a JSON number, or a decimal in quotes, as 10^-scale units; null
// and absent are unknown.
func (r *reader) number(field string, v jsontext.Value, scale int, want string) Maybe {
	if len(v) == 0 || v.Kind() == 'n' {
		return Maybe{}
	}
	var s string
	switch v.Kind() {
	case '0':
		s = string(v)
	case '"':
		s = unquote(v)
	default:
		r.fail(fault(KindInvalid, field, "%s is not %s", clip(string(v)), want))
		return Maybe{}
	}
	n, ok := ParseFixed(s, scale)
	if ok && scale == 0 && !isWhole(s) {
		ok = false
	}
	if !ok {
		r.fail(fault(KindInvalid, field, "%q is not %s", clip(s), want))
		return Maybe{}
	}
	return Some(n)
}

// isWhole says whether a number that ParseFixed takes has no fraction.
func isWhole(s string) bool {
	_, fraction, _ := strings.Cut(s, ".")
	return strings.Trim(fraction, "0") == "" && !strings.ContainsAny(s, "eE")
}

func (r *reader) decimal(field string, v jsontext.Value) string {
	switch {
	case len(v) == 0 || v.Kind() == 'n':
		return ""
	case v.Kind() == '0':
		return string(v)
	case v.Kind() == '"':
		return unquote(v)
	}
	r.fail(fault(KindInvalid, field, "%s is not an integer or a decimal in quotes", clip(string(v))))
	return ""
}

func (r *reader) sequence(v jsontext.Value) uint64 {
	if len(v) == 0 || v.Kind() == 'n' {
		return 0
	}
	s := string(v)
	if v.Kind() == '"' {
		s = unquote(v)
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		r.fail(fault(KindInvalid, "sequence", "%s is not a whole number from 1", clip(s)))
	}
	return n
}

func unquote(v jsontext.Value) string {
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return string(v)
	}
	return string(b)
}

func text0(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func labelsOf(m map[string]string) Labels {
	if len(m) == 0 {
		return nil
	}
	labels := make(Labels, 0, len(m))
	for k, v := range m {
		labels = append(labels, Label{k, v})
	}
	labels.Sort()
	return labels
}

// jsonFault says in our words what the JSON library found.
func jsonFault(prefix string, err error) error {
	var (
		semantic  *json.SemanticError
		syntactic *jsontext.SyntacticError
		f         *Error
	)
	switch {
	case errors.As(err, &semantic):
		field := fieldOf(prefix, semantic.JSONPointer)
		switch {
		case errors.Is(err, json.ErrUnknownName):
			f = fault(KindInvalid, clip(field), "unknown key; %s", suggestion(field[strings.LastIndexByte(field, '.')+1:]))
		case semantic.GoType != nil:
			f = fault(KindInvalid, clip(field), "%s where %s is expected", jsonKind(semantic.JSONKind), wantedKind(semantic.GoType))
		default:
			f = fault(KindInvalid, clip(field), "%s", clipText(strings.TrimPrefix(err.Error(), "json: ")))
		}
	case errors.As(err, &syntactic):
		what := "broken JSON"
		if errors.Is(err, jsontext.ErrDuplicateName) {
			what = "a key is there twice"
		}
		f = fault(KindMalformed, clip(fieldOf(prefix, syntactic.JSONPointer)), "%s at byte %d: %s", what, syntactic.ByteOffset, clipText(strings.TrimPrefix(syntactic.Err.Error(), "jsontext: ")))
	default:
		f = fault(KindMalformed, prefix, "%s", clipText(err.Error()))
	}
	f.err = err
	return f
}

func fieldOf(prefix string, pointer jsontext.Pointer) string {
	return strings.Trim(prefix+strings.ReplaceAll(string(pointer), "/", "."), ".")
}

func suggestion(name string) string {
	if near := nearest(name); near != "" {
		return "did you mean " + near + "?"
	}
	return "see the event format for the known keys"
}

func jsonKind(k jsontext.Kind) string {
	switch k {
	case '0':
		return "a number"
	case '"':
		return "text"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 'n':
		return "null"
	default:
		return "true or false"
	}
}

func wantedKind(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "something else"
	}
}

func clipText(s string) string {
	if len(s) > 400 {
		s = s[:400] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

var dataKeys = []string{
	"unit", "start", "end", "instance", "project", "node", "platform", "region", "model", "utilization", "active_ms",
	"idle_ms", "memory_used_bytes", "memory_total_bytes", "energy_mj", "share", "labels", "at", "state", "gpus", "sku",
	"plan", "tenancy", "dc_tier", "workload", "meter", "quantity", "reason", "corrects", "action", "replacement", "actor",
}

// nearest returns the known key that is closest to name, or "".
func nearest(name string) string {
	best, bestDistance := "", max(2, len(name)/3)+1
	for _, k := range dataKeys {
		if d := distance(name, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance; both texts are short.
func distance(a, b string) int {
	if len(a) > MaxLabelKeyBytes {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
