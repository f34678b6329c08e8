package clickhouse

import (
	"fmt"
	"slices"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/gpumeter/gpumeter/schema"
)

// eventSelect lists the columns that eventColumns reads, in its order.
const eventSelect = "unit_hash, unit, toUnixTimestamp64Milli(start) AS start_ms, toUnixTimestamp64Milli(`end`) AS end_ms, " +
	"source, id, payload, instance, project, node, platform, region, model, utilization, active_ms, idle_ms, " +
	"memory_used_bytes, energy_mj, share, labels, toUnixTimestamp64Nano(stored_at) AS stored_ns, stream_sequence, place"

// eventColumns reads raw_usage back, as much of it as computing needs.
type eventColumns struct {
	unitHash, sequence                           proto.ColUInt64
	unit, id, instance, labels                   proto.ColStr
	startMs, endMs, storedNs                     proto.ColInt64
	source, project, node, platform, region, mdl textResult
	payload                                      proto.ColFixedStr16
	utilization, share                           *proto.ColNullable[uint32]
	activeMs, idleMs, memoryUsed, energy         *proto.ColNullable[uint64]
	place                                        proto.ColUInt32
}

func (c *eventColumns) results() proto.Results {
	c.utilization, c.share = new(proto.ColUInt32).Nullable(), new(proto.ColUInt32).Nullable()
	for _, col := range []**proto.ColNullable[uint64]{&c.activeMs, &c.idleMs, &c.memoryUsed, &c.energy} {
		*col = new(proto.ColUInt64).Nullable()
	}
	return proto.Results{
		{Name: "unit_hash", Data: &c.unitHash}, {Name: "unit", Data: &c.unit}, {Name: "start_ms", Data: &c.startMs}, {Name: "end_ms", Data: &c.endMs},
		{Name: "source", Data: &c.source}, {Name: "id", Data: &c.id}, {Name: "payload", Data: &c.payload}, {Name: "instance", Data: &c.instance},
		{Name: "project", Data: &c.project}, {Name: "node", Data: &c.node}, {Name: "platform", Data: &c.platform}, {Name: "region", Data: &c.region},
		{Name: "model", Data: &c.mdl}, {Name: "utilization", Data: c.utilization}, {Name: "active_ms", Data: c.activeMs}, {Name: "idle_ms", Data: c.idleMs},
		{Name: "memory_used_bytes", Data: c.memoryUsed}, {Name: "energy_mj", Data: c.energy}, {Name: "share", Data: c.share}, {Name: "labels", Data: &c.labels},
		{Name: "stored_ns", Data: &c.storedNs}, {Name: "stream_sequence", Data: &c.sequence}, {Name: "place", Data: &c.place},
	}
}

func (c *eventColumns) event(i int, tenant string, e *schema.StoredEvent) {
	e.Tenant = tenant
	e.StartMs, e.EndMs = c.startMs[i], c.endMs[i]
	e.Source, e.ID = c.source.Row(i), c.id.Row(i)
	e.Payload = c.payload[i]
	e.Instance, e.Project, e.Node = c.instance.Row(i), c.project.Row(i), c.node.Row(i)
	e.Platform, e.Region, e.Model = c.platform.Row(i), c.region.Row(i), c.mdl.Row(i)
	e.Utilization, e.Share = maybe32(c.utilization, i), maybe32(c.share, i)
	e.ActiveMs, e.IdleMs = maybe64(c.activeMs, i), maybe64(c.idleMs, i)
	e.MemoryUsedBytes, e.EnergyMj = maybe64(c.memoryUsed, i), maybe64(c.energy, i)
	e.LabelsText = c.labels.Row(i)
	e.StoredAtNs, e.StreamSequence, e.Place = c.storedNs[i], c.sequence[i], c.place[i]
}

func maybe32(c *proto.ColNullable[uint32], i int) schema.Maybe {
	v := c.Row(i)
	return schema.Maybe{Value: int64(v.Value), Known: v.Set}
}

func maybe64(c *proto.ColNullable[uint64], i int) schema.Maybe {
	v := c.Row(i)
	return schema.Maybe{Value: int64(v.Value), Known: v.Set}
}

// unitGroups sorts events by unit. The events lie in pages, which are used again,
// and a chain per unit says which are its own, in the order of reading.
type unitGroups struct {
	pages [][]schema.StoredEvent
	n     int
	next  []int32
	units []unitChain
	byKey map[uint64]int32 // hash to position in units, probing on: two units may share a hash
}

type unitChain struct{ head, tail int32 }

const eventsPerPage = 4096

func newUnitGroups() *unitGroups { return &unitGroups{byKey: map[uint64]int32{}} }

func (g *unitGroups) at(i int32) *schema.StoredEvent {
	return &g.pages[i/eventsPerPage][i%eventsPerPage]
}

// reset empties the groups and keeps the pages.
func (g *unitGroups) reset() {
	clear(g.byKey)
	g.n, g.next, g.units = 0, g.next[:0], g.units[:0]
}

func (g *unitGroups) add(c *eventColumns, rows int, tenant string) {
	g.next = slices.Grow(g.next, rows)
	for i := range rows {
		if g.n == len(g.pages)*eventsPerPage {
			g.pages = append(g.pages, make([]schema.StoredEvent, eventsPerPage))
		}
		at := int32(g.n)
		e := g.at(at)
		*e = schema.StoredEvent{}
		c.event(i, tenant, e)
		g.n++
		g.next = append(g.next, -1)
		g.chain(at, c.unitHash[i], c.unit.RowBytes(i))
	}
}

// chain appends event at to the chain of its unit.
func (g *unitGroups) chain(at int32, key uint64, unit []byte) {
	for ; ; key++ {
		u, ok := g.byKey[key]
		if !ok {
			g.at(at).Unit = string(unit)
			g.byKey[key] = int32(len(g.units))
			g.units = append(g.units, unitChain{at, at})
			return
		}
		chain := &g.units[u]
		if name := g.at(chain.head).Unit; name == string(unit) {
			g.at(at).Unit = name
			g.next[chain.tail], chain.tail = at, at
			return
		}
	}
}

// each calls visit with the events of one unit after the other. The slice is
// only valid during the call.
func (g *unitGroups) each(visit func(events []schema.StoredEvent) error) error {
	var list []schema.StoredEvent
	for _, u := range g.units {
		list = list[:0]
		for i := u.head; i >= 0; i = g.next[i] {
			list = append(list, *g.at(i))
		}
		if err := visit(list); err != nil {
			return err
		}
	}
	return nil
}

// textResult reads a LowCardinality(String) column and makes one string per
// dictionary entry, where the library's column makes one per row.
type textResult struct {
	values []string
	index  proto.ColStr
	keys   []uint32
	state  proto.ColLowCardinality[string]
}

var (
	_ proto.ColResult    = (*textResult)(nil)
	_ proto.StateDecoder = (*textResult)(nil)
)

func (c *textResult) Row(i int) string { return c.values[c.keys[i]] }

// Type names the column's type.
func (c *textResult) Type() proto.ColumnType { return "LowCardinality(String)" }

// Rows returns the number of rows.
func (c *textResult) Rows() int { return len(c.keys) }

// Reset empties the column.
func (c *textResult) Reset() { c.values, c.keys = c.values[:0], c.keys[:0]; c.index.Reset() }

// DecodeState checks the version of the column's format.
func (c *textResult) DecodeState(r *proto.Reader) error { return c.state.DecodeState(r) }

// DecodeColumn reads dictionary and keys.
func (c *textResult) DecodeColumn(r *proto.Reader, rows int) error {
	c.Reset()
	if rows == 0 {
		return nil
	}
	flags, err := r.Int64()
	if err != nil {
		return err
	}
	if flags&(1<<9) == 0 {
		return fmt.Errorf("low cardinality flags %#x: no dictionary in the block", flags)
	}
	n, err := r.Int64()
	if err != nil {
		return err
	}
	if n < 0 || n > 1<<31 {
		return fmt.Errorf("low cardinality dictionary of %d entries", n)
	}
	if err := c.index.DecodeColumn(r, int(n)); err != nil {
		return err
	}
	for i := range int(n) {
		c.values = append(c.values, c.index.Row(i))
	}
	k, err := r.Int64()
	if err != nil {
		return err
	}
	if k != int64(rows) {
		return fmt.Errorf("low cardinality: %d keys for %d rows", k, rows)
	}
	if err := c.decodeKeys(r, flags&0xff, rows); err != nil {
		return err
	}
	for _, key := range c.keys {
		if int64(key) >= n {
			return fmt.Errorf("low cardinality key %d of %d", key, n)
		}
	}
	return nil
}

func (c *textResult) decodeKeys(r *proto.Reader, width int64, rows int) error {
	switch width {
	case 0:
		var col proto.ColUInt8
		if err := col.DecodeColumn(r, rows); err != nil {
			return err
		}
		for _, k := range col {
			c.keys = append(c.keys, uint32(k))
		}
	case 1:
		var col proto.ColUInt16
		if err := col.DecodeColumn(r, rows); err != nil {
			return err
		}
		for _, k := range col {
			c.keys = append(c.keys, uint32(k))
		}
	case 2:
		var col proto.ColUInt32
		if err := col.DecodeColumn(r, rows); err != nil {
			return err
		}
		c.keys = append(c.keys, col...)
	default:
		return fmt.Errorf("low cardinality keys of width %d", width)
	}
	return nil
}
