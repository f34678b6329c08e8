package schema

import (
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/gpumeter/gpumeter/schema/usagepb"
)

// twoEvents is a batch that is taken, for tests to spoil.
func twoEvents() *usagepb.UsageBatch {
	return &usagepb.UsageBatch{
		Source: "agent/node-7", Count: 2, Text: []string{"GPU-1", "GPU-2", "k", "v"},
		Unit: []uint32{1, 2}, StartMs: []int64{1_772_359_200_000, 0}, LengthMs: []uint64{60_000, 60_000},
		LabelSets: []*usagepb.LabelSet{{Key: []uint32{3}, Value: []uint32{4}}}, Labels: []uint32{1, 0},
	}
}

func TestCompactHostile(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*usagepb.UsageBatch)
		want  string // "" = both taken, "PLACE KIND", for the whole message also the field
	}{
		{"as it should be", func(*usagepb.UsageBatch) {}, ""},
		{"no count", func(p *usagepb.UsageBatch) { p.Count = 0 }, "-1 missing_field count"},
		{"count of four billion", func(p *usagepb.UsageBatch) { p.Count = 1<<32 - 1 }, "-1 malformed count"},
		{"count above the columns", func(p *usagepb.UsageBatch) { p.Count = 3 }, "-1 malformed unit"},
		{"count below the columns", func(p *usagepb.UsageBatch) { p.Count = 1 }, "-1 malformed unit"},
		{"short column", func(p *usagepb.UsageBatch) { p.EnergyMj = []uint64{1} }, "-1 malformed energy_mj"},
		{"long column", func(p *usagepb.UsageBatch) { p.Sequence = []uint64{1, 2, 3} }, "-1 malformed sequence"},
		{"text beyond the last", func(p *usagepb.UsageBatch) { p.Unit[1] = 5 }, "-1 malformed unit"},
		{"text of the highest number", func(p *usagepb.UsageBatch) { p.Model = []uint32{1<<32 - 1, 0} }, "-1 malformed model"},
		{"label set beyond the last", func(p *usagepb.UsageBatch) { p.Labels[0] = 2 }, "-1 malformed labels"},
		{"label text beyond the last", func(p *usagepb.UsageBatch) { p.LabelSets[0].Value[0] = 9 }, "-1 malformed label_sets"},
		{"label without a value", func(p *usagepb.UsageBatch) { p.LabelSets[0].Value = nil }, "-1 malformed label_sets"},
		{"65 labels", func(p *usagepb.UsageBatch) {
			p.LabelSets[0].Key, p.LabelSets[0].Value = make([]uint32, 65), make([]uint32, 65)
		}, "-1 malformed label_sets"},
		{"label key twice", func(p *usagepb.UsageBatch) {
			p.LabelSets[0] = &usagepb.LabelSet{Key: []uint32{3, 3}, Value: []uint32{4, 4}}
		}, "-1 malformed label_sets"},
		{"label keys out of order", func(p *usagepb.UsageBatch) {
			p.LabelSets[0] = &usagepb.LabelSet{Key: []uint32{4, 3}, Value: []uint32{3, 3}}
		}, "-1 malformed label_sets"},
		{"no source", func(p *usagepb.UsageBatch) { p.Source = "" }, "0 missing_field,1 missing_field"},
		{"no unit", func(p *usagepb.UsageBatch) { p.Unit[0] = 0 }, "0 missing_field"},
		{"empty interval", func(p *usagepb.UsageBatch) { p.LengthMs[1] = 0 }, "1 invalid_value"},
		{"no lengths", func(p *usagepb.UsageBatch) { p.LengthMs = nil }, "0 invalid_value,1 invalid_value"},
		{"length that wraps around", func(p *usagepb.UsageBatch) { p.LengthMs[0] = 1<<64 - 1 }, "0 invalid_value"},
		{"start that wraps around", func(p *usagepb.UsageBatch) { p.StartMs[1] = 1<<63 - 1 }, "1 invalid_value"},
		{"start in the year 58101", func(p *usagepb.UsageBatch) { p.StartMs[0] *= 1000 }, "0 invalid_value,1 invalid_value"},
		{"number that wraps to negative", func(p *usagepb.UsageBatch) { p.EnergyMj = []uint64{1<<64 - 1, 0} }, "0 invalid_value"},
		{"utilization above one", func(p *usagepb.UsageBatch) { p.UtilizationMillionths = []uint64{0, 1_000_002} }, "1 invalid_value"},
		{"share zero", func(p *usagepb.UsageBatch) { p.ShareBillionths = []uint64{1, 0} }, "0 invalid_value"},
		{"unit too long", func(p *usagepb.UsageBatch) { p.Text[1] = strings.Repeat("x", 513) }, "1 too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := twoEvents()
			c.spoil(p)
			payload, err := proto.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			d := Decode(ContentTypeCompact, payload)
			var got []string
			for _, r := range d.Rejects {
				s := itoa(r.Place) + " " + string(KindOf(r.Err))
				if r.Place < 0 {
					s += " " + r.Err.(*Error).Field
				} else if _, err := DecodeEvent(r.Raw); err == nil {
					t.Errorf("place %d is kept as an event that would be taken: %s", r.Place, r.Raw)
				}
				got = append(got, s)
			}
			if strings.Join(got, ",") != c.want {
				t.Errorf("rejects %q, want %q", got, c.want)
			}
			if len(d.Usage)+len(d.Rejects) != 2 && (len(d.Rejects) != 1 || d.Rejects[0].Place != -1) {
				t.Errorf("%d taken and %d refused of 2", len(d.Usage), len(d.Rejects))
			}
		})
	}
}

func TestCompactGarbage(t *testing.T) {
	good, err := proto.Marshal(twoEvents())
	if err != nil {
		t.Fatal(err)
	}
	for cut := range good {
		// A message that ends between two fields is a shorter message, so what
		// is asked is that it is neither a crash nor more events than were sent.
		if d := Decode(ContentTypeCompact, good[:cut]); len(d.Usage)+len(d.Rejects) > 2 {
			t.Errorf("%d of %d bytes made %d events", cut, len(good), len(d.Usage)+len(d.Rejects))
		}
	}
	d := Decode(ContentTypeCompact, []byte{0x0a, 0x02, 0xff, 0xfe, 0x10, 0x01}) // a source that is not UTF-8
	if len(d.Rejects) != 1 || KindOf(d.Rejects[0].Err) != KindMalformed {
		t.Errorf("invalid UTF-8: %+v", d)
	}
}

// One megabyte can name one long text half a million times. Were every mention
// written out, whether accepted or quarantined, it would fill the memory of a
// consumer, which would get the same message again after its restart.
func TestCompactIsNoBomb(t *testing.T) {
	const n = 300_000
	ones := make([]uint32, n)
	zero, sixty := make([]int64, n), make([]uint64, n)
	for i := range ones {
		ones[i], sixty[i] = 1, 60
	}
	zero[0] = 1_772_359_200_000
	keys := &usagepb.LabelSet{}
	text := []string{strings.Repeat("v", MaxLabelValueBytes)}
	for i := range MaxLabels {
		text = append(text, "k"+string(rune('0'+i)))
		keys.Key, keys.Value = append(keys.Key, uint32(i+2)), append(keys.Value, 1)
	}
	for name, p := range map[string]*usagepb.UsageBatch{
		"long source":    {Source: strings.Repeat("s", 600_000), Count: n},
		"long unit":      {Source: "s", Count: n, Text: []string{strings.Repeat("u", 500_000)}, Unit: ones},
		"count alone":    {Source: "s", Count: 900_000, Text: []string{strings.Repeat("u", 900_000)}},
		"label sets":     {Source: "s", Count: 100_000, Text: append(text, "u"), Unit: fill(100_000, uint32(len(text)+1)), StartMs: zero[:100_000], LengthMs: sixty[:100_000], Labels: ones[:100_000], LabelSets: []*usagepb.LabelSet{keys}},
		"long instances": {Source: "s", Count: 200_000, Text: []string{strings.Repeat("i", 512)}, Unit: ones[:200_000], StartMs: zero[:200_000], LengthMs: sixty[:200_000], Instance: ones[:200_000]},
	} {
		t.Run(name, func(t *testing.T) {
			payload, err := proto.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			if len(payload) > MaxMessageBytes {
				t.Fatalf("the message has %d bytes", len(payload))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d := Decode(ContentTypeCompact, payload)
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 200<<20 {
				t.Errorf("%d bytes took %d MiB", len(payload), used>>20)
			}
			if len(d.Rejects) != 1 || KindOf(d.Rejects[0].Err) != KindTooLarge {
				t.Errorf("%d taken, %d refused", len(d.Usage), len(d.Rejects))
			}
		})
	}
}

func fill[T any](n int, v T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = v
	}
	return list
}
