package clickhouse

import (
	"encoding/binary"
	"strings"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/gpumeter/gpumeter/schema"
)

func newText() *textColumn { return &textColumn{} }

func nullable[T any](m schema.Maybe, convert func(int64) T) proto.Nullable[T] {
	if !m.Known {
		return proto.Null[T]()
	}
	return proto.NewNullable(convert(m.Value))
}

func toUint32(v int64) uint32 { return uint32(v) }
func toUint64(v int64) uint64 { return uint64(v) }

// positionColumns are the last columns of every raw table.
type positionColumns struct {
	stream   textColumn
	epoch    proto.ColUInt64
	sequence proto.ColUInt64
	place    proto.ColUInt32
	storedAt *proto.ColDateTime64
	first    proto.ColInt64
}

func (c *positionColumns) init() proto.Input {
	c.storedAt = new(proto.ColDateTime64).WithPrecision(9)
	return proto.Input{
		{Name: "stream", Data: &c.stream}, {Name: "epoch", Data: &c.epoch}, {Name: "stream_sequence", Data: &c.sequence},
		{Name: "place", Data: &c.place}, {Name: "stored_at", Data: c.storedAt}, {Name: "first", Data: &c.first},
	}
}

func (c *positionColumns) add(at *schema.Position) {
	c.stream.Append(at.Stream)
	c.epoch.Append(at.Epoch)
	c.sequence.Append(at.StreamSequence)
	c.place.Append(at.Place)
	c.storedAt.AppendRaw(proto.DateTime64(at.StoredAtNs))
	c.first.Append(-at.StoredAtNs)
}

type usageColumns struct {
	input proto.Input

	tenant, source, project, node, platform, region, model textColumn
	span                                                   proto.ColUInt8
	minute                                                 proto.ColDateTime
	unitHash, sequence                                     proto.ColUInt64
	unit, id, instance, labels                             proto.ColStr
	start, end                                             *proto.ColDateTime64
	time                                                   *proto.ColNullable[proto.DateTime64]
	payload                                                proto.ColFixedStr16
	utilization, share                                     *proto.ColNullable[uint32]
	activeMs, idleMs, memoryUsed, memoryTotal, energy      *proto.ColNullable[uint64]
	position                                               positionColumns

	lastUnit string
	lastHash uint64
}

func (c *usageColumns) init() {
	c.start, c.end = new(proto.ColDateTime64).WithPrecision(3), new(proto.ColDateTime64).WithPrecision(3)
	c.time = proto.NewColNullable[proto.DateTime64](new(proto.ColDateTime64).WithPrecision(3).Raw())
	c.utilization, c.share = new(proto.ColUInt32).Nullable(), new(proto.ColUInt32).Nullable()
	for _, col := range []**proto.ColNullable[uint64]{&c.activeMs, &c.idleMs, &c.memoryUsed, &c.memoryTotal, &c.energy} {
		*col = new(proto.ColUInt64).Nullable()
	}
	c.input = append(proto.Input{
		{Name: "tenant", Data: &c.tenant}, {Name: "span", Data: &c.span}, {Name: "minute", Data: &c.minute},
		{Name: "unit_hash", Data: &c.unitHash}, {Name: "unit", Data: &c.unit}, {Name: "start", Data: c.start}, {Name: "end", Data: c.end},
		{Name: "source", Data: &c.source}, {Name: "id", Data: &c.id}, {Name: "payload", Data: &c.payload}, {Name: "time", Data: c.time},
		{Name: "sequence", Data: &c.sequence}, {Name: "instance", Data: &c.instance}, {Name: "project", Data: &c.project},
		{Name: "node", Data: &c.node}, {Name: "platform", Data: &c.platform}, {Name: "region", Data: &c.region}, {Name: "model", Data: &c.model},
		{Name: "utilization", Data: c.utilization}, {Name: "active_ms", Data: c.activeMs}, {Name: "idle_ms", Data: c.idleMs},
		{Name: "memory_used_bytes", Data: c.memoryUsed}, {Name: "memory_total_bytes", Data: c.memoryTotal},
		{Name: "energy_mj", Data: c.energy}, {Name: "share", Data: c.share}, {Name: "labels", Data: &c.labels},
	}, c.position.init()...)
}

func (c *usageColumns) rows() int { return c.span.Rows() }

func (c *usageColumns) add(at *schema.Position, u *schema.Usage, payload schema.Hash) {
	if u.Unit != c.lastUnit {
		c.lastUnit, c.lastHash = u.Unit, schema.UnitHash(u.Unit)
	}
	c.tenant.Append(at.Tenant)
	c.span.Append(schema.Span(u.LengthMs()))
	c.minute.AppendRaw(proto.DateTime(schema.Floor(u.StartMs, schema.MinuteMs) / 1000))
	c.unitHash.Append(c.lastHash)
	c.unit.Append(u.Unit)
	c.start.AppendRaw(proto.DateTime64(u.StartMs))
	c.end.AppendRaw(proto.DateTime64(u.EndMs))
	c.source.Append(u.Source)
	c.id.Append(u.ID)
	c.payload = append(c.payload, payload)
	if u.TimeMs == 0 {
		c.time.Append(proto.Null[proto.DateTime64]())
	} else {
		c.time.Append(proto.NewNullable(proto.DateTime64(u.TimeMs)))
	}
	c.sequence.Append(u.Sequence)
	c.instance.Append(u.Instance)
	c.project.Append(u.Project)
	c.node.Append(u.Node)
	c.platform.Append(u.Platform)
	c.region.Append(u.Region)
	c.model.Append(u.Model)
	c.utilization.Append(nullable(u.Utilization, toUint32))
	c.activeMs.Append(nullable(u.ActiveMs, toUint64))
	c.idleMs.Append(nullable(u.IdleMs, toUint64))
	c.memoryUsed.Append(nullable(u.MemoryUsedBytes, toUint64))
	c.memoryTotal.Append(nullable(u.MemoryTotalBytes, toUint64))
	c.energy.Append(nullable(u.EnergyMj, toUint64))
	c.share.Append(nullable(u.Share, toUint32))
	c.labels.Append(schema.LabelsJSON(u.Labels))
	c.position.add(at)
}

// cellColumns are the columns of a usage table.
type cellColumns struct {
	input proto.Input

	tenant, project, node, platform, region, model textColumn
	window                                         proto.ColDateTime
	unit, instance, labels                         proto.ColStr
	owner                                          proto.ColFixedStr16
	unitHash, version                              proto.ColUInt64
	amounts                                        [11]proto.ColUInt64 // in the order of amountColumns

	// Cells of one unit and owner follow one another, window after window.
	last    schema.Cell
	lastKey schema.Hash
	scratch []byte
}

func newCellColumns() *cellColumns {
	c := &cellColumns{}
	c.input = proto.Input{
		{Name: "tenant", Data: &c.tenant}, {Name: "window", Data: &c.window}, {Name: "unit_hash", Data: &c.unitHash}, {Name: "owner", Data: &c.owner},
		{Name: "unit", Data: &c.unit}, {Name: "instance", Data: &c.instance}, {Name: "project", Data: &c.project}, {Name: "node", Data: &c.node},
		{Name: "platform", Data: &c.platform}, {Name: "region", Data: &c.region}, {Name: "model", Data: &c.model}, {Name: "labels", Data: &c.labels},
	}
	for k, name := range strings.Split(amountColumns, ", ") {
		c.input = append(c.input, proto.InputColumn{Name: name, Data: &c.amounts[k]})
	}
	c.input = append(c.input, proto.InputColumn{Name: "version", Data: &c.version})
	return c
}

func (c *cellColumns) add(tenant string, cell *schema.Cell) {
	if cell.Unit != c.last.Unit || cell.Owner != c.last.Owner {
		c.lastKey, c.scratch = cell.Key(c.scratch)
		c.last = *cell
	}
	c.tenant.Append(tenant)
	c.window.AppendRaw(proto.DateTime(cell.WindowMs / 1000))
	c.unitHash.Append(schema.UnitHash(cell.Unit))
	c.owner = append(c.owner, c.lastKey)
	c.unit.Append(cell.Unit)
	c.instance.Append(cell.Instance)
	c.project.Append(cell.Project)
	c.node.Append(cell.Node)
	c.platform.Append(cell.Platform)
	c.region.Append(cell.Region)
	c.model.Append(cell.Model)
	c.labels.Append(cell.Labels)
	for k, v := range [...]int64{
		cell.ActiveMs, cell.IdleMs, cell.UnknownMs, cell.UtilizationMs, cell.UtilizationSum,
		cell.MemoryMs, cell.MemoryByteMs, cell.EnergyMj, cell.EnergyMs, cell.OverlapMs, cell.OversubscribedMs,
	} {
		c.amounts[k].Append(uint64(v))
	}
	c.version.Append(cell.Version)
}

type otherColumns struct {
	input proto.Input

	tenant, source      textColumn
	instance, id, event proto.ColStr
	at                  *proto.ColDateTime64
	payload             proto.ColFixedStr16
	time                *proto.ColNullable[proto.DateTime64]
	sequence            proto.ColUInt64
	position            positionColumns
}

func (c *otherColumns) init() {
	c.at = new(proto.ColDateTime64).WithPrecision(3)
	c.time = proto.NewColNullable[proto.DateTime64](new(proto.ColDateTime64).WithPrecision(3).Raw())
	c.input = append(proto.Input{
		{Name: "tenant", Data: &c.tenant}, {Name: "instance", Data: &c.instance}, {Name: "at", Data: c.at},
		{Name: "source", Data: &c.source}, {Name: "id", Data: &c.id}, {Name: "payload", Data: &c.payload}, {Name: "time", Data: c.time},
		{Name: "sequence", Data: &c.sequence}, {Name: "event", Data: &c.event},
	}, c.position.init()...)
}

func (c *otherColumns) add(at *schema.Position, e *schema.Event, instance string, atMs int64) {
	h := e.Header()
	c.tenant.Append(at.Tenant)
	c.instance.Append(instance)
	c.at.AppendRaw(proto.DateTime64(atMs))
	c.source.Append(h.Source)
	c.id.Append(h.ID)
	c.payload = append(c.payload, e.PayloadHash())
	if h.TimeMs == 0 {
		c.time.Append(proto.Null[proto.DateTime64]())
	} else {
		c.time.Append(proto.NewNullable(proto.DateTime64(h.TimeMs)))
	}
	c.sequence.Append(h.Sequence)
	c.event.AppendBytes(schema.EncodeEvent(e))
	c.position.add(at)
}

type quarantineColumns struct {
	input proto.Input

	tenant, stream, kind, source      textColumn
	storedAt, redrivenAt, dueAt       *proto.ColDateTime64
	epoch, sequence, aheadMs          proto.ColUInt64
	place                             proto.ColInt32
	subject, contentType, reason, raw proto.ColStr
}

func (c *quarantineColumns) init() {
	c.storedAt = new(proto.ColDateTime64).WithPrecision(9)
	c.redrivenAt, c.dueAt = new(proto.ColDateTime64).WithPrecision(3), new(proto.ColDateTime64).WithPrecision(3)
	c.input = proto.Input{
		{Name: "tenant", Data: &c.tenant}, {Name: "stored_at", Data: c.storedAt}, {Name: "stream", Data: &c.stream},
		{Name: "epoch", Data: &c.epoch}, {Name: "stream_sequence", Data: &c.sequence}, {Name: "place", Data: &c.place},
		{Name: "subject", Data: &c.subject}, {Name: "content_type", Data: &c.contentType}, {Name: "kind", Data: &c.kind},
		{Name: "reason", Data: &c.reason}, {Name: "raw", Data: &c.raw}, {Name: "redriven_at", Data: c.redrivenAt},
		{Name: "due_at", Data: c.dueAt}, {Name: "source", Data: &c.source}, {Name: "ahead_ms", Data: &c.aheadMs},
	}
}

func (c *quarantineColumns) add(at *schema.Position, subject, contentType string, r *schema.Reject) {
	c.tenant.Append(at.Tenant)
	c.storedAt.AppendRaw(proto.DateTime64(at.StoredAtNs))
	c.stream.Append(at.Stream)
	c.epoch.Append(at.Epoch)
	c.sequence.Append(at.StreamSequence)
	c.place.Append(int32(r.Place))
	c.subject.Append(subject)
	c.contentType.Append(contentType)
	c.kind.Append(string(schema.KindOf(r.Err)))
	c.reason.Append(r.Err.Error())
	c.raw.AppendBytes(r.Raw)
	c.redrivenAt.AppendRaw(0)
	var held schema.Held
	if r.Held != nil {
		held = *r.Held
	}
	c.dueAt.AppendRaw(proto.DateTime64(held.DueMs))
	c.source.Append(held.Source)
	c.aheadMs.Append(uint64(held.AheadMs))
}

// textColumn is a LowCardinality(String) column. It keeps the dictionary while
// it is filled and looks up only what differs from the row before, where the
// library's column keeps every value and builds the dictionary on sending.
type textColumn struct {
	positions map[string]uint32
	index     proto.ColStr
	keys      []uint32
	last      string
	lastKey   uint32
}

var (
	_ proto.ColInput     = (*textColumn)(nil)
	_ proto.StateEncoder = (*textColumn)(nil)
	_ proto.Resettable   = (*textColumn)(nil)
)

// Append adds a row.
func (c *textColumn) Append(s string) {
	if s != c.last || len(c.keys) == 0 {
		if c.positions == nil {
			c.positions = make(map[string]uint32)
		}
		key, ok := c.positions[s]
		if !ok {
			s = strings.Clone(s) // it may be a part of a whole message
			key = uint32(c.index.Rows())
			c.index.Append(s)
			c.positions[s] = key
		}
		c.last, c.lastKey = s, key
	}
	c.keys = append(c.keys, c.lastKey)
}

// Type names the column's type.
func (c *textColumn) Type() proto.ColumnType { return "LowCardinality(String)" }

// Rows returns the number of rows.
func (c *textColumn) Rows() int { return len(c.keys) }

// Reset empties the column.
func (c *textColumn) Reset() {
	clear(c.positions)
	c.index.Reset()
	c.keys, c.last, c.lastKey = c.keys[:0], "", 0
}

// Constants of the native format: a dictionary sent with the block itself.
const (
	lowCardinalityVersion = 1
	lowCardinalityFlags   = 1<<9 | 1<<10 // own dictionary, replace it
)

// EncodeState writes the version of the column's format.
func (c *textColumn) EncodeState(b *proto.Buffer) { b.PutInt64(lowCardinalityVersion) }

// EncodeColumn writes dictionary and keys.
func (c *textColumn) EncodeColumn(b *proto.Buffer) {
	if len(c.keys) == 0 {
		return
	}
	n := c.index.Rows()
	width := int64(0) // log2 of the key's bytes
	switch {
	case n > 1<<16:
		width = 2
	case n > 1<<8:
		width = 1
	}
	b.PutInt64(lowCardinalityFlags | width)
	b.PutInt64(int64(n))
	c.index.EncodeColumn(b)
	b.PutInt64(int64(len(c.keys)))
	for _, k := range c.keys {
		switch width {
		case 0:
			b.Buf = append(b.Buf, byte(k))
		case 1:
			b.Buf = binary.LittleEndian.AppendUint16(b.Buf, uint16(k))
		default:
			b.Buf = binary.LittleEndian.AppendUint32(b.Buf, k)
		}
	}
}

// WriteColumn writes the column to a stream.
func (c *textColumn) WriteColumn(w *proto.Writer) { w.ChainBuffer(c.EncodeColumn) }
