package schema

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEventRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := genEvent(false).Draw(t, "event")
		if err := e.Validate(); err != nil {
			t.Fatalf("the generator made an invalid event: %v", err)
		}
		raw := EncodeEvent(&e)
		checkCloudEvent(t, raw)
		got, err := DecodeEvent(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if !reflect.DeepEqual(&e, got) {
			t.Fatalf("%s\nwas %+v\nis  %+v", raw, e, got)
		}
		if got.PayloadHash() != e.PayloadHash() {
			t.Fatal("another payload hash after a round trip")
		}
		if !bytes.Equal(EncodeEvent(got), raw) {
			t.Fatal("other bytes after a round trip")
		}
	})
}

// checkCloudEvent checks what CloudEvents 1.0 demands of attributes in its section
// "Naming Conventions" and in its JSON format: lower-case letters and digits, and
// nothing that is null.
func checkCloudEvent(t *rapid.T, raw []byte) {
	var attributes map[string]json.RawMessage
	if err := json.Unmarshal(raw, &attributes); err != nil {
		t.Fatal(err)
	}
	for name, value := range attributes {
		if !attributeName.MatchString(name) || string(value) == "null" {
			t.Fatalf("%q: %s is no attribute of a CloudEvent", name, value)
		}
	}
}

var attributeName = regexp.MustCompile("^[a-z0-9]+$")

func TestCompactRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(genUsage(), 1, 12).Draw(t, "events")
		for i := range events {
			events[i].Source = events[0].Source
		}
		payload, err := EncodeCompact(events)
		if err != nil {
			t.Fatal(err)
		}
		d := Decode(ContentTypeCompact, payload)
		if len(d.Rejects) > 0 {
			t.Fatalf("refused: %v", d.Rejects[0].Err)
		}
		if len(d.Usage) != len(events) {
			t.Fatalf("%d events of %d", len(d.Usage), len(events))
		}
		for i, got := range d.Usage {
			if got.Place != uint32(i) || !reflect.DeepEqual(got.Event, events[i]) {
				t.Fatalf("event %d at place %d\nwas %+v\nis  %+v", i, got.Place, events[i], got.Event)
			}
			// The two wire forms must mean the same event: an agent may send one
			// and a re-drive the other.
			viaJSON, err := DecodeEvent(EncodeEvent(&Event{Usage: &events[i]}))
			if err != nil {
				t.Fatal(err)
			}
			a, _ := got.Event.PayloadHash(nil)
			if b := viaJSON.PayloadHash(); a != b {
				t.Fatalf("payload hash %x as compact and %x as JSON", a, b)
			}
		}
		again, err := EncodeCompact(events)
		if err != nil || !bytes.Equal(again, payload) {
			t.Fatalf("the same events gave other bytes (%v)", err)
		}
	})
}

func TestEncodeCompactRefuses(t *testing.T) {
	if _, err := EncodeCompact(nil); KindOf(err) != KindMissing {
		t.Errorf("no events: %v", err)
	}
	a, b := golden()["usage"].Usage, golden()["usage"].Usage
	other := *b
	other.Source = "agent/other"
	if _, err := EncodeCompact([]Usage{*a, other}); KindOf(err) != KindInvalid {
		t.Errorf("two sources: %v", err)
	}
}

// Two events that differ in anything but time and sequence have two hashes, and
// so two message ids; the same event sent again has the same.
func TestHashSeesEveryField(t *testing.T) {
	for name, e := range golden() {
		base := e.PayloadHash()
		var fields int
		var walk func(path string, v reflect.Value)
		walk = func(path string, v reflect.Value) {
			switch v.Kind() {
			case reflect.Struct:
				if v.Type() == reflect.TypeFor[Maybe]() {
					old := v.Interface().(Maybe)
					for _, m := range []Maybe{{}, Some(0), Some(old.Value + 1)} {
						if m != old {
							v.Set(reflect.ValueOf(m))
							fields++
							if e.PayloadHash() == base {
								t.Errorf("%s: %s set to %v does not change the hash", name, path, m)
							}
						}
					}
					v.Set(reflect.ValueOf(old))
					return
				}
				for i := range v.NumField() {
					walk(path+"."+v.Type().Field(i).Name, v.Field(i))
				}
			case reflect.Pointer:
				if !v.IsNil() {
					walk(path, v.Elem())
				}
			case reflect.Slice:
				for i := range v.Len() {
					walk(path+"["+strconv.Itoa(i)+"]", v.Index(i))
				}
				if v.Len() > 0 {
					old := reflect.ValueOf(v.Interface())
					v.SetLen(v.Len() - 1)
					if e.PayloadHash() == base {
						t.Errorf("%s: one less of %s does not change the hash", name, path)
					}
					v.Set(old)
				}
			case reflect.String:
				change(t, name, path, v, reflect.ValueOf(v.String()+"x"), e, base)
				fields++
			case reflect.Int64:
				change(t, name, path, v, reflect.ValueOf(v.Int()+1), e, base)
				fields++
			case reflect.Uint64:
				change(t, name, path, v, reflect.ValueOf(v.Uint()+1), e, base)
				fields++
			default:
				t.Fatalf("%s: a field of kind %s that this test does not know", path, v.Kind())
			}
		}
		walk("", reflect.ValueOf(e).Elem())
		if fields < 6 {
			t.Errorf("%s: only %d fields were tried", name, fields)
		}
		if e.PayloadHash() != base {
			t.Fatalf("%s was not restored", name)
		}
	}
}

func change(t *testing.T, name, path string, v, to reflect.Value, e *Event, base Hash) {
	t.Helper()
	old := reflect.ValueOf(v.Interface())
	v.Set(to)
	same := e.PayloadHash() == base
	v.Set(old)
	// A retry may carry another time and sequence; source and id are identity
	// and not payload. Those of a replacement are what the correction says.
	own := strings.Count(path, ".Header.") == 1 && !strings.Contains(path, ".Replacement.") ||
		strings.HasSuffix(path, ".Header.TimeMs") || strings.HasSuffix(path, ".Header.Sequence")
	if same != own {
		t.Errorf("%s: changing %s leaves the hash the same: %v, want %v", name, path, same, own)
	}
}

// Fields that stand next to each other must not run into one another.
func TestHashKeepsFieldsApart(t *testing.T) {
	a, b := *golden()["usage"].Usage, *golden()["usage"].Usage
	a.Instance, a.Project = "ab", "c"
	b.Instance, b.Project = "a", "bc"
	ha, scratch := a.PayloadHash(nil)
	hb, _ := b.PayloadHash(scratch)
	if ha == hb {
		t.Error(`("ab","c") and ("a","bc") have one hash`)
	}
	x, y := Header{Source: "ab", ID: "c"}, Header{Source: "a", ID: "bc"}
	if MessageID("t", &x, ha) == MessageID("t", &y, ha) {
		t.Error("two identities have one message id")
	}
	if MessageID("t", &x, ha) == MessageID("u", &x, ha) {
		t.Error("two tenants have one message id: the stream would drop the second's event")
	}
	if MessageID("t", &x, ha) == MessageID("t", &x, hb) {
		t.Error("conflicting contents have one message id: the stream would hide the conflict")
	}
	retry := x
	retry.TimeMs, retry.Sequence = 5, 6
	if MessageID("t", &x, ha) != MessageID("t", &retry, ha) {
		t.Error("a retry with a new time has another message id")
	}
}

// golden has one event of each type with every field filled in.
func golden() map[string]*Event {
	head := Header{Source: "agent/node-7", ID: "e1", TimeMs: 1_772_359_260_000, Sequence: 7}
	labels := Labels{{"team", "vision"}, {"tier", "1"}}
	const start, end = 1_772_359_200_000, 1_772_359_260_000
	outage := &Outage{Header: Header{Source: "agent/node-8", ID: "o1"}, Platform: "self", Region: "eu", Instance: "i1", StartMs: start, EndMs: end, Reason: "power"}
	return map[string]*Event{
		"usage": {Usage: &Usage{
			Header: head, Unit: "GPU-1", StartMs: start, EndMs: end, Instance: "i1", Project: "a", Node: "node-7", Platform: "self",
			Region: "eu", Model: "H100", Utilization: Some(420_000), ActiveMs: Some(30_000), IdleMs: Some(20_000), MemoryUsedBytes: Some(1 << 30),
			MemoryTotalBytes: Some(80 << 30), EnergyMj: Some(42_000), Share: Some(250_000_000), Labels: labels,
		}},
		"usage, nothing known": {Usage: &Usage{Header: head, Unit: "GPU-1", StartMs: start, EndMs: end}},
		"lease": {Lease: &Lease{
			Header: head, Instance: "i1", AtMs: start, State: "running", Project: "a", Platform: "self", Region: "eu", Model: "H100",
			Gpus: Some(8), SKU: "h100x8", Plan: "monthly", Tenancy: "dedicated", DCTier: "3", Workload: "training", Labels: labels,
		}},
		"meter":                {Meter: &Meter{Header: head, Instance: "i1", Project: "a", Meter: "egress_bytes", StartMs: start, EndMs: end, Quantity: "12.5"}},
		"outage":               {Outage: outage},
		"correction":           {Correction: &Correction{Header: head, CorrectsSource: "agent/node-7", CorrectsID: "e0", Action: "retract", Actor: "ann", Reason: "twice"}},
		"correction, replaced": {Correction: &Correction{Header: Header{Source: "agent/node-8", ID: "e1", TimeMs: head.TimeMs, Sequence: 7}, CorrectsSource: "agent/node-8", CorrectsID: "o0", Action: "replace", Actor: "ann", Reason: "late", Replacement: &Event{Outage: outage}}},
	}
}

// The hashes are stored with every event and decide whether two copies are the
// same. Changing how they are made turns every redelivery of an old event into
// a conflict, so a new value here needs a migration of the stored ones.
func TestGoldenHashes(t *testing.T) {
	want := map[string][2]string{
		"correction":           {"f28afc50305447fd2060a846dd01252a", "ZVK_SfaqDLMzXRIaIaVmYw"},
		"correction, replaced": {"649718e617c329e8a6d3b6588c5b947a", "jeTpEY9mfENUm9RVN2UI6A"},
		"lease":                {"b8f33535116ffb2885e67f19249144ff", "yJ7ldR27gl7MZmvmqofFcQ"},
		"meter":                {"74adf99335656f45d0d8c08b869e1f87", "wp_IlF6y1MdDJ0kvIi3Orw"},
		"outage":               {"e37150a8ea109e62eef2ce11955e5ad3", "hmodo2QgS5bqgBijQnQQZw"},
		"usage":                {"6106f7488915835cefd98000138fffe4", "DAYc_y0z044m6fOrcjA6Xg"},
		"usage, nothing known": {"21fd9ebbdcfd6a836d81b7fcc2fa13f7", "zfChp0X7F3MHJwN_IgyQyw"},
	}
	for name, e := range golden() {
		want := want[name]
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		h := e.PayloadHash()
		if got := hex.EncodeToString(h[:]); got != want[0] {
			t.Errorf("%s: payload hash %s, want %s", name, got, want[0])
		}
		if got := MessageID("default", e.Header(), h); got != want[1] {
			t.Errorf("%s: message id %s, want %s", name, got, want[1])
		}
	}
}

// A cell's key is stored too.
func TestGoldenKeys(t *testing.T) {
	c := Cell{Unit: "GPU-1", WindowMs: 5, Owner: Owner{Instance: "i1", Project: "a", Node: "n", Platform: "p", Region: "r", Model: "m", Labels: `{"k":"v"}`}}
	h, _ := c.Key(nil)
	if got := hex.EncodeToString(h[:]); got != "7ff71fbf88a8b802f7216981ae4fe2a1" {
		t.Errorf("cell key %s", got)
	}
	if got := UnitHash("GPU-1"); got != 8587255266046510345 {
		t.Errorf("unit hash %d", got)
	}
}

func TestSubjectRoundTrip(t *testing.T) {
	token := regexp.MustCompile(`^[A-Za-z0-9~_-]+$`)
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z~.*> /]{0,6}`), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(t *rapid.T) {
		a := Address{Tenant: text.Draw(t, "tenant"), Source: text.Draw(t, "source"), Kind: rapid.SampledFrom([]string{"usage", "lease", "mixed"}).Draw(t, "kind")}
		got, err := ParseSubject(a.Subject())
		if err != nil || got != a {
			t.Fatalf("%q became %q: %+v %v", a, a.Subject(), got, err)
		}
		x, y := text.Draw(t, "x"), text.Draw(t, "y")
		if x != y && Token(x) == Token(y) {
			t.Fatalf("%q and %q share the token %q", x, y, Token(x))
		}
		if !token.MatchString(Token(x)) {
			t.Fatalf("%q is no subject token", Token(x))
		}
	})
}

func TestParseSubjectRefuses(t *testing.T) {
	for _, s := range []string{
		"", "gpumeter.v1", "gpumeter.v1.a.b", "gpumeter.v1.a.b.c.d", "gpumeter.v2.a.b.usage", "xgpumeter.v1.a.b.usage", "gpumeter.v1..b.usage",
		"gpumeter.v1.a~2.b.usage", "gpumeter.v1.a~.b.usage", "gpumeter.v1.a~61.b.usage", "gpumeter.v1.a~2f.b.usage", "gpumeter.v1.a/b.c.usage",
		"gpumeter.v1.~~.b.usage", "gpumeter.v1.a b.c.usage", "gpumeter.v1.é.c.usage",
	} {
		if a, err := ParseSubject(s); KindOf(err) != KindMisdirected || err == nil {
			t.Errorf("%q: %+v %v", s, a, err)
		}
	}
}

func TestParseFixedAgainstBig(t *testing.T) {
	number := rapid.StringMatching(`-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?`)
	rapid.Check(t, func(t *rapid.T) {
		s := number.Draw(t, "number")
		scale := rapid.SampledFrom([]int{0, 3, 6, 9}).Draw(t, "scale")
		got, ok := ParseFixed(s, scale)
		exponent := 0
		if i := strings.IndexAny(s, "eE"); i >= 0 {
			exponent, _ = strconv.Atoi(s[i+1:])
		}
		if exponent > 30 || exponent < -400 {
			if ok {
				t.Fatalf("%s is beyond the exponents that are taken", s)
			}
			return
		}
		want, fits := bigFixed(s, scale)
		if ok != fits || ok && got != want {
			t.Fatalf("ParseFixed(%s, %d) = %d %v, want %d %v", s, scale, got, ok, want, fits)
		}
	})
}

// bigFixed does what ParseFixed does, by exact fractions.
func bigFixed(s string, scale int) (int64, bool) {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return 0, false
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
	negative := r.Sign() < 0
	r.Abs(r).Add(r, big.NewRat(1, 2))
	q := new(big.Int).Quo(r.Num(), r.Denom()) // half and more go up
	if !q.IsInt64() {
		return 0, false
	}
	if negative {
		return -q.Int64(), true
	}
	return q.Int64(), true
}

func TestParseFixedRefuses(t *testing.T) {
	for _, s := range []string{"", "-", ".", ".5", "5.", "1e", "e5", "+1", "1 ", " 1", "0x1", "1_0", "NaN", "Inf", "1e+", "--1", "1e1e1", "1..2", "٣"} {
		if v, ok := ParseFixed(s, 3); ok {
			t.Errorf("%q was read as %d", s, v)
		}
	}
}

func TestDecimalText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, scale := rapid.Int64Range(-1<<62, 1<<62).Draw(t, "v"), rapid.IntRange(0, 12).Draw(t, "scale")
		if got, ok := ParseFixed(decimalText(v, scale), scale); !ok || got != v {
			t.Fatalf("%d became %q and then %d", v, decimalText(v, scale), got)
		}
	})
	if FormatUtilization(420_000) != "0.42" || FormatShare(ShareOne) != "1" {
		t.Error("ratios are written another way")
	}
}

// The hand-made formatting must be what the standard library writes.
func TestUsageID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit, ms := genName().Draw(t, "unit"), rapid.Int64Range(-1<<47, 1<<47).Draw(t, "ms")
		if got, want := string(appendUsageID(nil, unit, ms)), UsageID(unit, ms); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name                  string
		u                     Usage
		active, idle, unknown int64
	}{
		{"at the threshold", Usage{Utilization: Some(10_000)}, 60, 0, 0},
		{"below the threshold", Usage{Utilization: Some(9_999)}, 0, 60, 0},
		{"known zero", Usage{Utilization: Some(0)}, 0, 60, 0},
		{"unknown", Usage{}, 0, 0, 60},
		{"given parts win over the mean", Usage{Utilization: Some(1_000_000), ActiveMs: Some(0), IdleMs: Some(50)}, 0, 50, 10},
		{"only active given", Usage{ActiveMs: Some(20)}, 20, 0, 40},
		{"only idle given", Usage{IdleMs: Some(20)}, 0, 20, 40},
	} {
		c.u.EndMs = 60
		if a, i, n := c.u.Split(10_000); a != c.active || i != c.idle || n != c.unknown {
			t.Errorf("%s: %d %d %d, want %d %d %d", c.name, a, i, n, c.active, c.idle, c.unknown)
		}
	}
}

func TestWindows(t *testing.T) {
	for _, c := range []struct{ ms, length, want int64 }{{0, 60, 0}, {59, 60, 0}, {60, 60, 60}, {-1, 60, -60}, {-60, 60, -60}} {
		if got := Floor(c.ms, c.length); got != c.want {
			t.Errorf("Floor(%d, %d) = %d, want %d", c.ms, c.length, got, c.want)
		}
	}
	// A class must reach back at least as far as its longest interval.
	for _, c := range []struct {
		length int64
		want   uint8
	}{{1, 0}, {MinuteMs, 0}, {MinuteMs + 1, 1}, {HourMs, 1}, {HourMs + 1, 2}, {24 * HourMs, 2}, {24*HourMs + 1, 3}, {MaxIntervalMs, 3}} {
		if got := Span(c.length); got != c.want || c.length > SpanMs[got] {
			t.Errorf("Span(%d) = %d, want %d", c.length, got, c.want)
		}
	}
}

func TestSumsAdd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, want := Sums{}, new(big.Int)
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			s := Sums{ActiveMs: 1, IdleMs: 2, FreeMs: 1, UnknownMs: 4}
			if rapid.Bool().Draw(t, "known") {
				s.UtilizationSum = big.NewInt(rapid.Int64().Draw(t, "sum"))
				want.Add(want, s.UtilizationSum)
			}
			before := s.UtilizationSum
			total.Add(&s)
			if before != nil && before.Cmp(s.UtilizationSum) != 0 {
				t.Fatal("adding changed what was added")
			}
		}
		got := total.UtilizationSum
		if got == nil {
			got = new(big.Int)
		}
		if got.Cmp(want) != 0 || total.AllocatedMs() != 7*total.ActiveMs {
			t.Fatalf("sum %v, want %v; allocated %d", got, want, total.AllocatedMs())
		}
	})
	a := Amounts{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	a.Add(&Amounts{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	if a != (Amounts{2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}) {
		t.Errorf("amounts add up to %+v", a)
	}
}

func TestLabelsJSON(t *testing.T) {
	if got := LabelsJSON(nil); got != "" {
		t.Errorf("no labels are %q", got)
	}
	if got := LabelsJSON(Labels{{"a", `x"y`}, {"b", ""}}); got != `{"a":"x\"y","b":""}` {
		t.Errorf("labels are %s", got)
	}
}

func TestHeaderOfNothing(t *testing.T) {
	var e Event
	if e.Type() != "" || e.Header() == nil || KindOf(e.Validate()) != KindMissing {
		t.Error("an event without data is not refused")
	}
}

func TestFarTimes(t *testing.T) {
	for ms, want := range map[int64]string{1_772_359_200_000_000: "an instant in the year 58133", -1 << 50: "an instant in the year", 0: "1970-01-01T00:00:00.000Z"} {
		if got := farTime(ms); !strings.HasPrefix(got, want) {
			t.Errorf("%d is %s", ms, got)
		}
	}
	if time.UnixMilli(MinTimeMs).UTC().Year() != 2000 || time.UnixMilli(MaxTimeMs).UTC().Year() != 2100 {
		t.Error("the bounds of time are not those years")
	}
}
