package clickhouse_test

import (
	"context"
	"testing"

	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/internal/testkit/aggregatortest"
	"github.com/gpumeter/gpumeter/schema"
)

func TestAggregatorStore(t *testing.T) {
	e := testkit.Engine(t)
	db := testkit.DB(t, e, "aggregate")
	aggregatortest.Run(t, func(t *testing.T) aggregatortest.Subject {
		for _, table := range []string{"raw_usage", "dirty", "usage_minute", "usage_hour", "usage_identity", "correction", "raw_correction"} {
			if err := db.Exec(t.Context(), "TRUNCATE TABLE "+table); err != nil {
				t.Fatal(err)
			}
		}
		return aggregatortest.Subject{
			Store: db, Slow: true, WriteMarks: db.WriteMarks,
			AddCorrection: func(ctx context.Context, at schema.Position, c *schema.Correction) error {
				b := db.NewBatch()
				b.Other(&at, &schema.Event{Correction: c})
				return b.WriteRaw(ctx)
			},
			AddRaw: func(ctx context.Context, events []schema.StoredEvent) error {
				b := db.NewBatch()
				for i := range events {
					b.Usage(&events[i].Position, &events[i].Usage)
				}
				return b.WriteRaw(ctx)
			},
			Amounts: func(ctx context.Context, tenant, grain string, fromMs, toMs int64) (map[aggregatortest.Key]aggregatortest.Times, error) {
				table := clickhouse.Minutes
				if grain == schema.GrainHour {
					table = clickhouse.Hours
				}
				q := schema.UsageQuery{Tenant: tenant, Cuts: []int64{fromMs, toMs}, By: []string{"unit", "instance"}}
				rows, err := db.Usage(ctx, &q, table, clickhouse.Windows{FromMs: fromMs, ToMs: toMs})
				if err != nil {
					return nil, err
				}
				sums := map[aggregatortest.Key]aggregatortest.Times{}
				for _, r := range rows {
					if r.AllocatedMs() > 0 {
						sums[aggregatortest.Key{Unit: r.Keys[0], Instance: r.Keys[1]}] = aggregatortest.Times{
							ActiveMs: r.ActiveMs, IdleMs: r.IdleMs, UnknownMs: r.UnknownMs, OverlapMs: r.OverlapMs, OversubscribedMs: r.OversubscribedMs,
						}
					}
				}
				return sums, nil
			},
		}
	})
}
