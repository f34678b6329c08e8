package schema

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// decodeCase is a case of testdata/decode.txt, whose head explains the form.
type decodeCase struct {
	name, raw, want string
}

func readDecodeCases(t testing.TB) []decodeCase {
	t.Helper()
	file, err := os.ReadFile("testdata/decode.txt")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(file)) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	var cases []decodeCase
	for _, block := range strings.Split(strings.Join(lines, "\n"), "\n\n") {
		part := strings.Split(strings.Trim(block, "\n"), "\n")
		if len(part) == 1 && part[0] == "" {
			continue
		}
		want, ok := strings.CutPrefix(part[len(part)-1], "=> ")
		if len(part) < 3 || !ok {
			t.Fatalf("case %q does not end with =>", block)
		}
		d := documentOf(part[1])
		for _, edit := range part[2 : len(part)-1] {
			if err := d.edit(edit); err != nil {
				t.Fatalf("case %q: %v", part[0], err)
			}
		}
		cases = append(cases, decodeCase{part[0], d.String(), want})
	}
	return cases
}

func TestDecodeEvent(t *testing.T) {
	cases := readDecodeCases(t)
	if len(cases) < 100 {
		t.Fatalf("read %d cases, the file is cut", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			// The key of an escaped member was quoted once too often above.
			raw := strings.ReplaceAll(c.raw, `\\u0075nit`, `\u0075nit`)
			_, err := DecodeEvent([]byte(raw))
			checkFault(t, err, c.want)
			// What one event does, it does as the only element of a batch.
			d := Decode(ContentTypeBatch, []byte("["+raw+"]"))
			if c.want == "ok" && len(d.Rejects) != 0 || c.want != "ok" && len(d.Rejects) != 1 {
				t.Errorf("as a batch of one: %d rejects", len(d.Rejects))
			}
		})
	}
}

// checkFault compares err with "ok" or "KIND FIELD: PART OF THE MESSAGE".
func checkFault(t *testing.T, err error, want string) {
	t.Helper()
	if want == "ok" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	head, text, ok := strings.Cut(want, ": ")
	kind, field, ok2 := strings.Cut(head, " ")
	if !ok || !ok2 {
		t.Fatalf("the case says %q", want)
	}
	var f *Error
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want %s", err, want)
	}
	if string(f.Kind) != kind || field != "" && f.Field != field || !strings.Contains(f.Msg, text) {
		t.Errorf("got kind %q field %q message %q, want %s", f.Kind, f.Field, f.Msg, want)
	}
	if !utf8.ValidString(f.Error()) {
		t.Errorf("the message is not valid UTF-8: %q", f.Error())
	}
}

// Bounds are tried at the bound and one above it.
func TestDecodeBounds(t *testing.T) {
	quoted := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	labels := func(n int) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`"k` + strings.Repeat("i", i+1) + `":"v"`)
		}
		return "{" + b.String() + "}"
	}
	for _, c := range []struct {
		kind, path, most, more, field string
	}{
		{"usage", "source", quoted(512), quoted(513), "source"},
		{"usage", "id", quoted(512), quoted(513), "id"},
		{"usage", "data.unit", quoted(512), quoted(513), "data.unit"},
		{"usage", "data.instance", quoted(512), quoted(513), "data.instance"},
		{"usage", "data.model", quoted(512), quoted(513), "data.model"},
		{"usage", "data.labels", labels(64), labels(65), "data.labels"},
		{"usage", "data.labels", `{` + quoted(256) + `:""}`, `{` + quoted(257) + `:""}`, "data.labels"},
		{"usage", "data.labels", `{"k":` + quoted(4096) + `}`, `{"k":` + quoted(4097) + `}`, "data.labels.k"},
		{"usage", "data.labels", `{"k":""}`, `{"k":` + quoted(10<<20) + `}`, "data.labels.k"},
		{"lease", "data.workload", quoted(512), quoted(513), "data.workload"},
		{"meter", "data.meter", quoted(512), quoted(513), "data.meter"},
		{"outage", "data.reason", quoted(4096), quoted(4097), "data.reason"},
		{"correction", "data.reason", quoted(4096), quoted(4097), "data.reason"},
		{"correction", "data.actor", quoted(512), quoted(513), "data.actor"},
	} {
		for raw, want := range map[string]string{c.most: "ok", c.more: "too_large " + c.field + ": at most"} {
			d := documentOf(c.kind)
			if err := d.edit(c.path + " = " + raw); err != nil {
				t.Fatal(err)
			}
			_, err := DecodeEvent([]byte(d.String()))
			checkFault(t, err, want)
			if err != nil && len(err.Error()) > 12_000 {
				t.Errorf("%s: an error text of %d bytes", c.path, len(err.Error()))
			}
		}
	}
}

func TestDecodeMessage(t *testing.T) {
	one := documentOf("usage").String()
	bad := documentOf("usage")
	if err := bad.edit("data.utilization = 42"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, contentType, payload string
		usage, other               int
		rejects                    []string // "PLACE KIND"
	}{
		{"event", ContentTypeEvent, one, 1, 0, nil},
		{"event without a content type", "", " \r\n" + one, 1, 0, nil},
		{"batch without a content type", "", "\t[" + one + "]", 1, 0, nil},
		{"content type with a parameter", ContentTypeEvent + "; charset=utf-8", one, 1, 0, nil},
		{"content type in capitals", "Application/CloudEvents+JSON;charset=UTF-8", one, 1, 0, nil},
		{"one bad element takes no other with it", ContentTypeBatch, "[" + one + "," + bad.String() + ",5,null," + documentOf("lease").String() + "," + one + "]", 2, 1,
			[]string{"1 invalid_value", "2 invalid_value", "3 invalid_value"}},
		{"empty batch", ContentTypeBatch, "[]", 0, 0, []string{"-1 missing_field"}},
		{"batch that is an object", ContentTypeBatch, one, 0, 0, []string{"-1 malformed"}},
		{"event that is a batch", ContentTypeEvent, "[" + one + "]", 0, 0, []string{"0 invalid_value"}},
		{"cut batch", ContentTypeBatch, "[" + one, 0, 0, []string{"-1 malformed"}},
		{"two events one after the other", ContentTypeEvent, one + one, 0, 0, []string{"0 malformed"}},
		{"nothing", "", "", 0, 0, []string{"0 malformed"}},
		{"unknown content type", "text/plain", one, 0, 0, []string{"-1 malformed"}},
		{"compact of nothing", ContentTypeCompact, "", 0, 0, []string{"-1 missing_field"}},
		{"compact that is JSON", ContentTypeCompact, one, 0, 0, []string{"-1 malformed"}},
		{"deep nesting", ContentTypeEvent, `{"x":` + strings.Repeat("[", 900_000), 0, 0, []string{"0 malformed"}},
		{"too long", ContentTypeEvent, strings.Repeat(" ", MaxMessageBytes) + one, 0, 0, []string{"-1 too_large"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decode(c.contentType, []byte(c.payload))
			var rejects []string
			for _, r := range d.Rejects {
				rejects = append(rejects, strings.Join([]string{itoa(r.Place), string(KindOf(r.Err))}, " "))
			}
			if len(d.Usage) != c.usage || len(d.Other) != c.other || strings.Join(rejects, ",") != strings.Join(c.rejects, ",") {
				t.Errorf("%d usage, %d other, rejects %q; want %d, %d, %q", len(d.Usage), len(d.Other), rejects, c.usage, c.other, c.rejects)
			}
			for _, r := range d.Rejects {
				if r.Place == -1 && !bytes.Equal(r.Raw, []byte(c.payload)) {
					t.Error("a message that is refused as a whole is kept as it came")
				}
			}
		})
	}
}

func itoa(i int) string { return Some(int64(i)).String() }

func TestKindOfForeignError(t *testing.T) {
	if got := KindOf(errors.New("x")); got != KindMalformed {
		t.Errorf("kind of a foreign error: %q", got)
	}
	wrapped := errors.Join(errors.New("x"), fault(KindTooLarge, "f", "m"))
	if got := KindOf(wrapped); got != KindTooLarge {
		t.Errorf("kind of a wrapped error: %q", got)
	}
	cause := errors.New("cause")
	f := fault(KindMalformed, "f", "m")
	f.err, f.ID = cause, "s/i"
	if !errors.Is(f, cause) || f.Error() != "malformed: f: m (event s/i)" {
		t.Errorf("error %v", f)
	}
}
