package clickhouse

import (
	"context"
	"fmt"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/gpumeter/gpumeter/schema"
)

// Batch collects events as columns and writes them as one block per table and
// month. The columns stay filled after a failed write, so that a retry sends the
// same block again.
type Batch struct {
	db         *DB
	usage      usageColumns
	identity   identityColumns
	correction correctionColumns
	others     map[string]*otherColumns // by table
	quarantine quarantineColumns
	scratch    []byte
}

// NewBatch returns an empty batch. It is for one goroutine at a time.
func (db *DB) NewBatch() *Batch {
	b := &Batch{db: db, others: map[string]*otherColumns{}}
	b.usage.init()
	b.identity.init()
	b.correction.init()
	b.quarantine.init()
	return b
}

// Rows returns how many rows WriteRaw would write.
func (b *Batch) Rows() int {
	n := b.usage.rows() + b.quarantine.storedAt.Rows()
	for _, o := range b.others {
		n += o.at.Rows()
	}
	return n
}

// Reset empties the batch. It keeps the memory, unless that is far more than was
// used: after a burst the columns of a quiet program would stay large for ever.
func (b *Batch) Reset() {
	if rows := b.usage.rows(); cap(b.usage.span) > 4096 && rows < cap(b.usage.span)/16 {
		b.usage = usageColumns{}
		b.usage.init()
	} else {
		b.usage.input.Reset()
	}
	b.identity.input.Reset()
	b.correction.input.Reset()
	b.quarantine.input.Reset()
	for _, o := range b.others {
		o.input.Reset()
	}
}

// Usage adds a usage event.
func (b *Batch) Usage(at *schema.Position, u *schema.Usage) {
	var payload schema.Hash
	payload, b.scratch = u.PayloadHash(b.scratch)
	b.usage.add(at, u, payload)
	if !u.Telling() {
		b.identity.add(at, u, payload)
	}
}

// Other adds an event of another type. The event that a correction puts in place
// of another is stored beside it, as an event of its own at the same position.
func (b *Batch) Other(at *schema.Position, e *schema.Event) {
	table, instance, atMs := tableOf(e)
	if atMs == 0 {
		atMs = at.StoredAtNs / 1e6
	}
	o := b.others[table]
	if o == nil {
		o = &otherColumns{}
		o.init()
		b.others[table] = o
	}
	o.add(at, e, instance, atMs)
	if c := e.Correction; c != nil {
		b.correction.add(at, c, e.PayloadHash())
		switch r := c.Replacement; {
		case r == nil:
		case r.Usage != nil:
			b.Usage(at, r.Usage)
		default:
			b.Other(at, r)
		}
	}
}

func tableOf(e *schema.Event) (table, instance string, atMs int64) {
	switch {
	case e.Lease != nil:
		return "raw_lease", e.Lease.Instance, e.Lease.AtMs
	case e.Meter != nil:
		return "raw_meter", e.Meter.Instance, e.Meter.StartMs
	case e.Outage != nil:
		return "raw_outage", e.Outage.Instance, e.Outage.StartMs
	default:
		return "raw_correction", "", e.Correction.TimeMs
	}
}

// Quarantine adds something that could not be accepted.
func (b *Batch) Quarantine(at *schema.Position, subject, contentType string, r *schema.Reject) {
	b.quarantine.add(at, subject, contentType, r)
}

// WriteRaw stores the events. When it returns nil they are on disk.
func (b *Batch) WriteRaw(ctx context.Context) error {
	if b.usage.rows() > 0 {
		if err := b.db.insert(withHalfway(ctx, b.db.OnMidInsert), "raw_usage", b.usage.input); err != nil {
			return err
		}
	}
	for _, t := range [...]struct {
		name  string
		input proto.Input
	}{{"usage_identity", b.identity.input}, {"correction", b.correction.input}} {
		if t.input[0].Data.Rows() > 0 {
			if err := b.db.insert(ctx, t.name, t.input); err != nil {
				return err
			}
		}
	}
	for table, o := range b.others {
		if o.at.Rows() > 0 {
			if err := b.db.insert(ctx, table, o.input); err != nil {
				return err
			}
		}
	}
	if b.quarantine.storedAt.Rows() > 0 {
		return b.db.insert(ctx, "quarantine", b.quarantine.input)
	}
	return nil
}

func (db *DB) insert(ctx context.Context, table string, input proto.Input) error {
	if err := db.wire.insert(ctx, input.Into(table), input); err != nil {
		return fmt.Errorf("insert %d rows into %s: %w", input[0].Data.Rows(), table, err)
	}
	return nil
}

// WriteMarks stores marks of windows to be computed again.
func (db *DB) WriteMarks(ctx context.Context, marks []schema.Mark) error {
	return db.writeMarks(ctx, marks, 1)
}

func (db *DB) writeMarks(ctx context.Context, marks []schema.Mark, sign int8) error {
	if len(marks) == 0 {
		return nil
	}
	var (
		grain, tenant = newText(), newText()
		window        proto.ColDateTime
		mark          proto.ColUInt64
		units         = proto.NewArray[uint64](new(proto.ColUInt64))
		markedAt      = new(proto.ColDateTime64).WithPrecision(3)
		signs         proto.ColInt8
	)
	for i := range marks {
		m := &marks[i]
		grain.Append(m.Grain)
		tenant.Append(m.Tenant)
		window.AppendRaw(proto.DateTime(m.WindowMs / 1000))
		mark.Append(m.ID)
		if sign > 0 {
			units.Append(m.Units)
		} else {
			units.Append(nil)
		}
		markedAt.AppendRaw(proto.DateTime64(m.MarkedAtMs))
		signs.Append(sign)
	}
	return db.insert(ctx, "dirty", proto.Input{
		{Name: "grain", Data: grain}, {Name: "tenant", Data: tenant}, {Name: "window", Data: &window}, {Name: "mark", Data: &mark},
		{Name: "units", Data: units}, {Name: "marked_at", Data: markedAt}, {Name: "sign", Data: &signs},
	})
}
