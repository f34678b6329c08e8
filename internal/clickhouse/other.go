package clickhouse

import (
	"context"
	"fmt"

	"github.com/gpumeter/gpumeter/schema"
)

// Meters returns the stored meter events of a tenant that begin before toMs, copies
// and conflicts included, that the stream had stored by asOfMs (0 = all). With
// instances it returns those of every identity that names one of them in any copy.
func (db *DB) Meters(ctx context.Context, tenant string, instances []string, toMs, asOfMs int64) ([]schema.StoredOther, error) {
	return db.others(ctx, "raw_meter", tenant, instances, toMs, asOfMs)
}

// Outages returns the stored outage events in the same way.
func (db *DB) Outages(ctx context.Context, tenant string, instances []string, toMs, asOfMs int64) ([]schema.StoredOther, error) {
	return db.others(ctx, "raw_outage", tenant, instances, toMs, asOfMs)
}

func (db *DB) others(ctx context.Context, table, tenant string, instances []string, toMs, asOfMs int64) (list []schema.StoredOther, err error) {
	condition := " AND at < " + fmt.Sprintf("fromUnixTimestamp64Milli(%d, 'UTC')", toMs)
	if instances != nil {
		condition += " AND (source, id) IN (SELECT source, id FROM " + table + " WHERE tenant = " + quoteText(tenant) + asOfCondition(asOfMs) + " AND instance IN (" + quotedList(instances) + "))"
	}
	err = db.wholeEvents(ctx, table, tenant, condition, asOfMs, func(e *schema.Event, payload schema.Hash, at schema.Position) error {
		list = append(list, schema.StoredOther{Event: *e, Payload: payload, Position: at})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read events of %s: %w", table, err)
	}
	return list, nil
}
