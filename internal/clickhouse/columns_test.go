package clickhouse

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ClickHouse/ch-go/proto"
)

// The two hand-made columns must read what they write at every width of key.
func TestTextColumnRoundTrip(t *testing.T) {
	for _, different := range []int{0, 1, 2, 256, 257, 65_536, 65_537} {
		var out textColumn
		for pass := range 2 { // a column is used again after Reset
			out.Reset()
			var want []string
			for i := range different {
				s := fmt.Sprint("text ", pass, " ", i)
				if i == 1 {
					s = "" // empty is a value like any other
				}
				want = append(want, s, s)
			}
			for i := range min(different, 300) { // and back to early ones
				want = append(want, want[2*i])
			}
			for _, s := range want {
				out.Append(s)
			}
			var b proto.Buffer
			out.EncodeState(&b)
			out.EncodeColumn(&b)
			var in textResult
			r := proto.NewReader(bytes.NewReader(b.Buf))
			if err := in.DecodeState(r); err != nil {
				t.Fatal(err)
			}
			if err := in.DecodeColumn(r, len(want)); err != nil {
				t.Fatalf("%d different texts: %v", different, err)
			}
			if in.Rows() != len(want) || out.Rows() != len(want) {
				t.Fatalf("%d rows written, %d read, want %d", out.Rows(), in.Rows(), len(want))
			}
			for i, s := range want {
				if in.Row(i) != s {
					t.Fatalf("%d different texts: row %d is %q, want %q", different, i, in.Row(i), s)
				}
			}
		}
	}
}

// What comes from the network is checked before it is used as an index.
func TestTextColumnRefuses(t *testing.T) {
	var out textColumn
	out.Append("a")
	var good proto.Buffer
	out.EncodeColumn(&good)
	for name, spoil := range map[string]func(b []byte) []byte{
		"no dictionary":  func(b []byte) []byte { b[1] = 0; return b },
		"unknown width":  func(b []byte) []byte { b[0] = 7; return b },
		"key too high":   func(b []byte) []byte { b[len(b)-1] = 1; return b },
		"too many keys":  func(b []byte) []byte { b[len(b)-9] = 2; return b },
		"huge count":     func(b []byte) []byte { b[15] = 0x7f; return b },
		"cut at the end": func(b []byte) []byte { return b[:len(b)-1] },
		"nothing":        func([]byte) []byte { return nil },
	} {
		var in textResult
		if err := in.DecodeColumn(proto.NewReader(bytes.NewReader(spoil(bytes.Clone(good.Buf)))), 1); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
