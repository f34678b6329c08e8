package schema

import (
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/gpumeter/gpumeter/schema/usagepb"
)

// Content types of a message on the stream.
const (
	ContentTypeEvent   = "application/cloudevents+json"
	ContentTypeBatch   = "application/cloudevents-batch+json"
	ContentTypeCompact = "application/vnd.gpumeter.usage-batch+protobuf"
)

// EncodeCompact writes usage events of one source in the compact form. The same
// events always give the same bytes.
func EncodeCompact(events []Usage) ([]byte, error) {
	if len(events) == 0 {
		return nil, fault(KindMissing, "", "a batch without events")
	}
	e := encoder{positions: make(map[string]uint32, 16), labelSets: map[string]uint32{}}
	e.pb.Source = events[0].Source
	e.pb.Count = uint32(len(events))
	e.grow(len(events))
	for i := range events {
		if events[i].Source != e.pb.Source {
			return nil, fault(KindInvalid, "source", "a compact batch is of one source, not of %q and %q", e.pb.Source, events[i].Source)
		}
		e.add(&events[i])
	}
	e.dropDefaults()
	return proto.MarshalOptions{Deterministic: true}.Marshal(&e.pb)
}

type encoder struct {
	pb        usagepb.UsageBatch
	positions map[string]uint32
	labelSets map[string]uint32
	startMs   int64
	last      [6]string // the previous event's texts, which mostly repeat
	lastRef   [6]uint32
	scratch   []byte
}

func (e *encoder) grow(n int) {
	p := &e.pb
	for _, c := range []*[]uint32{&p.Id, &p.Unit, &p.Instance, &p.Project, &p.Node, &p.Platform, &p.Region, &p.Model, &p.Labels} {
		*c = make([]uint32, 0, n)
	}
	for _, c := range []*[]uint64{&p.LengthMs, &p.UtilizationMillionths, &p.ActiveMs, &p.IdleMs, &p.MemoryUsedBytes, &p.MemoryTotalBytes, &p.EnergyMj, &p.ShareBillionths, &p.Sequence} {
		*c = make([]uint64, 0, n)
	}
	p.StartMs, p.TimeMs = make([]int64, 0, n), make([]int64, 0, n)
}

func (e *encoder) add(u *Usage) {
	p := &e.pb
	id := uint32(0)
	e.scratch = appendUsageID(e.scratch[:0], u.Unit, u.StartMs)
	if u.ID != string(e.scratch) {
		id = e.text(u.ID)
	}
	p.Id = append(p.Id, id)
	p.Unit = append(p.Unit, e.text(u.Unit))
	p.StartMs = append(p.StartMs, u.StartMs-e.startMs)
	e.startMs = u.StartMs
	p.LengthMs = append(p.LengthMs, uint64(u.LengthMs()))
	p.Instance = append(p.Instance, e.column(0, u.Instance))
	p.Project = append(p.Project, e.column(1, u.Project))
	p.Node = append(p.Node, e.column(2, u.Node))
	p.Platform = append(p.Platform, e.column(3, u.Platform))
	p.Region = append(p.Region, e.column(4, u.Region))
	p.Model = append(p.Model, e.column(5, u.Model))
	p.UtilizationMillionths = append(p.UtilizationMillionths, pack(u.Utilization))
	p.ActiveMs = append(p.ActiveMs, pack(u.ActiveMs))
	p.IdleMs = append(p.IdleMs, pack(u.IdleMs))
	p.MemoryUsedBytes = append(p.MemoryUsedBytes, pack(u.MemoryUsedBytes))
	p.MemoryTotalBytes = append(p.MemoryTotalBytes, pack(u.MemoryTotalBytes))
	p.EnergyMj = append(p.EnergyMj, pack(u.EnergyMj))
	p.ShareBillionths = append(p.ShareBillionths, pack(u.Share))
	// An absent time is written as the one difference that gives 0 back.
	p.TimeMs = append(p.TimeMs, u.TimeMs-u.EndMs)
	p.Sequence = append(p.Sequence, u.Sequence)
	p.Labels = append(p.Labels, e.labels(u.Labels))
}

func (e *encoder) column(i int, s string) uint32 {
	if s != e.last[i] || e.lastRef[i] == 0 {
		e.last[i], e.lastRef[i] = s, e.text(s)
	}
	return e.lastRef[i]
}

func (e *encoder) text(s string) uint32 {
	if s == "" {
		return 0
	}
	ref, ok := e.positions[s]
	if !ok {
		e.pb.Text = append(e.pb.Text, s)
		ref = uint32(len(e.pb.Text))
		e.positions[s] = ref
	}
	return ref
}

func (e *encoder) labels(labels Labels) uint32 {
	if len(labels) == 0 {
		return 0
	}
	key := string(appendLabels(nil, labels))
	ref, ok := e.labelSets[key]
	if !ok {
		set := &usagepb.LabelSet{}
		for _, l := range labels {
			set.Key = append(set.Key, e.text(l.Key))
			set.Value = append(set.Value, e.text(l.Value))
		}
		e.pb.LabelSets = append(e.pb.LabelSets, set)
		ref = uint32(len(e.pb.LabelSets))
		e.labelSets[key] = ref
	}
	return ref
}

// dropDefaults leaves out the columns in which every event has its default.
func (e *encoder) dropDefaults() {
	p := &e.pb
	for _, c := range []*[]uint32{&p.Id, &p.Unit, &p.Instance, &p.Project, &p.Node, &p.Platform, &p.Region, &p.Model, &p.Labels} {
		dropZeros(c)
	}
	for _, c := range []*[]uint64{&p.LengthMs, &p.UtilizationMillionths, &p.ActiveMs, &p.IdleMs, &p.MemoryUsedBytes, &p.MemoryTotalBytes, &p.EnergyMj, &p.ShareBillionths, &p.Sequence} {
		dropZeros(c)
	}
	dropZeros(&p.StartMs)
	dropZeros(&p.TimeMs)
}

func dropZeros[T comparable](c *[]T) {
	var zero T
	for _, v := range *c {
		if v != zero {
			return
		}
	}
	*c = nil
}

func pack(m Maybe) uint64 {
	if !m.Known {
		return 0
	}
	return uint64(m.Value) + 1
}

func unpack(v uint64) Maybe {
	if v == 0 {
		return Maybe{}
	}
	return Maybe{Value: int64(v - 1), Known: true}
}

// decodeCompact reads a compact batch. The events are read and not yet validated.
func decodeCompact(payload []byte) ([]Usage, error) {
	var p usagepb.UsageBatch
	if err := proto.Unmarshal(payload, &p); err != nil {
		f := fault(KindMalformed, "", "not a compact usage batch: %v", err)
		f.err = err
		return nil, f
	}
	d := decoder{pb: &p, n: int(p.Count)}
	if err := d.check(len(payload)); err != nil {
		return nil, err
	}
	events := make([]Usage, d.n)
	for i := range events {
		if err := d.read(i, &events[i]); err != nil {
			return nil, err
		}
	}
	return events, nil
}

type decoder struct {
	pb      *usagepb.UsageBatch
	n       int
	startMs int64
	sets    []Labels
	ids     []byte
	// expanded is how many bytes the events read so far have when every mention
	// of a text is written out, as storage and quarantine do.
	expanded int
}

// maxExpandedBytes bounds the events of one batch written out. A full message of
// an agent comes to some 20 MiB; one text mentioned by every event of a hostile
// one would come to hundreds of gigabytes.
const maxExpandedBytes = 64 << 20

func (d *decoder) expand(bytes int) error {
	if d.expanded += bytes; d.expanded > maxExpandedBytes {
		return fault(KindTooLarge, "", "the %d events are more than %d MiB when written out; send fewer in a message", d.n, maxExpandedBytes>>20)
	}
	return nil
}

// check bounds everything by the size of the payload before anything of that
// size is allocated, so that a small message cannot ask for much memory.
func (d *decoder) check(payload int) error {
	p := d.pb
	if d.n == 0 {
		return fault(KindMissing, "count", "a batch without events")
	}
	// Every event has at least a unit and a start, a byte each.
	if d.n > payload {
		return fault(KindMalformed, "count", "%d events cannot be in %d bytes", d.n, payload)
	}
	if err := d.expand(d.n * int(unsafe.Sizeof(Usage{}))); err != nil {
		return err
	}
	d.expanded = 0
	for _, c := range []struct {
		name string
		n    int
	}{
		{"id", len(p.Id)}, {"unit", len(p.Unit)}, {"start_ms", len(p.StartMs)}, {"length_ms", len(p.LengthMs)},
		{"instance", len(p.Instance)}, {"project", len(p.Project)}, {"node", len(p.Node)}, {"platform", len(p.Platform)},
		{"region", len(p.Region)}, {"model", len(p.Model)}, {"utilization_millionths", len(p.UtilizationMillionths)},
		{"active_ms", len(p.ActiveMs)}, {"idle_ms", len(p.IdleMs)}, {"memory_used_bytes", len(p.MemoryUsedBytes)},
		{"memory_total_bytes", len(p.MemoryTotalBytes)}, {"energy_mj", len(p.EnergyMj)}, {"share_billionths", len(p.ShareBillionths)},
		{"time_ms", len(p.TimeMs)}, {"sequence", len(p.Sequence)}, {"labels", len(p.Labels)},
	} {
		if c.n != 0 && c.n != d.n {
			return fault(KindMalformed, c.name, "column has %d entries for %d events", c.n, d.n)
		}
	}
	for _, set := range p.LabelSets {
		if len(set.Key) != len(set.Value) || len(set.Key) > MaxLabels {
			return fault(KindMalformed, "label_sets", "%d keys and %d values", len(set.Key), len(set.Value))
		}
		labels := make(Labels, len(set.Key))
		for i := range set.Key {
			var err error
			if labels[i].Key, err = d.text("label_sets", set.Key[i]); err != nil {
				return err
			}
			if labels[i].Value, err = d.text("label_sets", set.Value[i]); err != nil {
				return err
			}
			if i > 0 && labels[i-1].Key >= labels[i].Key {
				return fault(KindMalformed, "label_sets", "labels are not sorted or %q is there twice", clip(labels[i].Key))
			}
		}
		d.sets = append(d.sets, labels)
	}
	return nil
}

func (d *decoder) read(i int, u *Usage) error {
	p := d.pb
	u.Source = p.Source
	if err := d.expand(len(p.Source)); err != nil {
		return err
	}
	for _, c := range [...]struct {
		name   string
		column []uint32
		into   *string
	}{
		{"id", p.Id, &u.ID}, {"unit", p.Unit, &u.Unit}, {"instance", p.Instance, &u.Instance}, {"project", p.Project, &u.Project},
		{"node", p.Node, &u.Node}, {"platform", p.Platform, &u.Platform}, {"region", p.Region, &u.Region}, {"model", p.Model, &u.Model},
	} {
		if c.column == nil || c.column[i] == 0 {
			continue
		}
		s, err := d.text(c.name, c.column[i])
		if err != nil {
			return err
		}
		if err := d.expand(len(s)); err != nil {
			return err
		}
		*c.into = s
	}
	d.startMs += at(p.StartMs, i)
	u.StartMs = d.startMs
	u.EndMs = u.StartMs + int64(at(p.LengthMs, i))
	u.Utilization = unpack(at(p.UtilizationMillionths, i))
	u.ActiveMs = unpack(at(p.ActiveMs, i))
	u.IdleMs = unpack(at(p.IdleMs, i))
	u.MemoryUsedBytes = unpack(at(p.MemoryUsedBytes, i))
	u.MemoryTotalBytes = unpack(at(p.MemoryTotalBytes, i))
	u.EnergyMj = unpack(at(p.EnergyMj, i))
	u.Share = unpack(at(p.ShareBillionths, i))
	u.TimeMs = u.EndMs + at(p.TimeMs, i)
	u.Sequence = at(p.Sequence, i)
	if ref := at(p.Labels, i); ref != 0 {
		if int(ref) > len(d.sets) {
			return fault(KindMalformed, "labels", "no label set %d", ref)
		}
		u.Labels = d.sets[ref-1]
		for _, l := range u.Labels {
			if err := d.expand(len(l.Key) + len(l.Value)); err != nil {
				return err
			}
		}
	}
	if u.ID == "" {
		u.ID = d.usageID(u, d.n-i)
	}
	return nil
}

// usageID cuts the ids of a whole batch out of a few large allocations, each for
// as many of the events that are left as a block holds.
func (d *decoder) usageID(u *Usage, left int) string {
	const block = 64 << 10
	size := len(u.Unit) + 1 + len(timeLayout)
	if cap(d.ids)-len(d.ids) < size {
		d.ids = make([]byte, 0, max(size, min(block, size*left)))
	}
	from := len(d.ids)
	d.ids = appendUsageID(d.ids, u.Unit, u.StartMs)
	return bytesAsString(d.ids[from:])
}

func (d *decoder) text(column string, ref uint32) (string, error) {
	if ref == 0 {
		return "", nil
	}
	if int(ref) > len(d.pb.Text) {
		return "", fault(KindMalformed, column, "no text %d", ref)
	}
	return d.pb.Text[ref-1], nil
}

func at[T any](column []T, i int) (v T) {
	if column == nil {
		return v
	}
	return column[i]
}
