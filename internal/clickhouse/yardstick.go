package clickhouse

import (
	"context"
	"fmt"
	"time"

	chgo "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/gpumeter/gpumeter/schema"
)

// Yardstick inserts usage events the way a careful user of clickhouse-go would:
// by column, in large blocks, over the native protocol. `gpumeter bench` measures
// the pipeline against it, on the same rows, table and durability settings.
type Yardstick struct{ conn driver.Conn }

// NewYardstick connects to a migrated database.
func NewYardstick(ctx context.Context, dsn string) (*Yardstick, error) {
	o, err := chgo.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	o.Settings = chgo.Settings{"async_insert": "0", "insert_deduplicate": "0"}
	conn, err := chgo.Open(o)
	if err != nil {
		return nil, err
	}
	return &Yardstick{conn}, conn.Ping(ctx)
}

// Close ends the connection.
func (y *Yardstick) Close() error { return y.conn.Close() }

// Insert sends the events as one block.
func (y *Yardstick) Insert(ctx context.Context, events []schema.Usage) error {
	n := len(events)
	var (
		text      = map[string][]string{}
		span      = make([]uint8, n)
		minute    = make([]time.Time, n)
		start     = make([]time.Time, n)
		end       = make([]time.Time, n)
		times     = make([]*time.Time, n)
		hash      = make([]uint64, n)
		sequence  = make([]uint64, n)
		payload   = make([]string, n)
		util      = make([]*uint32, n)
		share     = make([]*uint32, n)
		numbers   = [5][]*uint64{}
		epoch     = make([]uint64, n)
		streamSeq = make([]uint64, n)
		place     = make([]uint32, n)
		stored    = make([]time.Time, n)
		first     = make([]int64, n)
		scratch   []byte
	)
	textColumns := []string{"tenant", "unit", "source", "id", "instance", "project", "node", "platform", "region", "model", "labels", "stream"}
	for _, name := range textColumns {
		text[name] = make([]string, n)
	}
	for k := range numbers {
		numbers[k] = make([]*uint64, n)
	}
	now := time.Now()
	for i := range events {
		u := &events[i]
		var h schema.Hash
		h, scratch = u.PayloadHash(scratch)
		span[i], hash[i], sequence[i], payload[i] = schema.Span(u.LengthMs()), schema.UnitHash(u.Unit), u.Sequence, string(h[:])
		start[i], end[i] = time.UnixMilli(u.StartMs), time.UnixMilli(u.EndMs)
		minute[i] = start[i].Truncate(time.Minute)
		at := time.UnixMilli(u.TimeMs)
		times[i], stored[i], first[i] = &at, now, -now.UnixNano()
		epoch[i], streamSeq[i], place[i] = 1, uint64(i), uint32(i)
		for k, v := range [...]string{schema.DefaultTenant, u.Unit, u.Source, u.ID, u.Instance, u.Project, u.Node, u.Platform, u.Region, u.Model, "", "USAGE_0"} {
			text[textColumns[k]][i] = v
		}
		if u.Utilization.Known {
			v := uint32(u.Utilization.Value)
			util[i] = &v
		}
		for k, m := range [...]schema.Maybe{u.ActiveMs, u.IdleMs, u.MemoryUsedBytes, u.MemoryTotalBytes, u.EnergyMj} {
			if m.Known {
				v := uint64(m.Value)
				numbers[k][i] = &v
			}
		}
	}
	columns := []struct {
		name   string
		values any
	}{
		{"tenant", text["tenant"]}, {"span", span}, {"minute", minute}, {"unit_hash", hash}, {"unit", text["unit"]}, {"start", start}, {"end", end},
		{"source", text["source"]}, {"id", text["id"]}, {"payload", payload}, {"time", times}, {"sequence", sequence}, {"instance", text["instance"]},
		{"project", text["project"]}, {"node", text["node"]}, {"platform", text["platform"]}, {"region", text["region"]}, {"model", text["model"]},
		{"utilization", util}, {"active_ms", numbers[0]}, {"idle_ms", numbers[1]}, {"memory_used_bytes", numbers[2]}, {"memory_total_bytes", numbers[3]},
		{"energy_mj", numbers[4]}, {"share", share}, {"labels", text["labels"]}, {"stream", text["stream"]}, {"epoch", epoch}, {"stream_sequence", streamSeq},
		{"place", place}, {"stored_at", stored}, {"first", first},
	}
	names := ""
	for i, c := range columns {
		if i > 0 {
			names += ", "
		}
		names += quoteName(c.name)
	}
	batch, err := y.conn.PrepareBatch(ctx, "INSERT INTO raw_usage ("+names+")")
	if err != nil {
		return err
	}
	defer batch.Close()
	for i, c := range columns {
		if err := batch.Column(i).Append(c.values); err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
	}
	return batch.Send()
}
