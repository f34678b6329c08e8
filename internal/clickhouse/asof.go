package clickhouse

import (
	"context"
	"fmt"

	"github.com/gpumeter/gpumeter/schema"
)

// HourCount is how many rows of events begin in an hour.
type HourCount struct{ HourMs, Events int64 }

// HourCounts counts the stored rows of usage events that begin in each hour of
// [fromMs, toMs), in order; hours without any are left out. It reads one column
// of the key.
func (db *DB) HourCounts(ctx context.Context, tenant string, fromMs, toMs int64) ([]HourCount, error) {
	rows, err := db.conn.Query(ctx, "SELECT toInt64(toUnixTimestamp(toStartOfHour(minute, 'UTC'))) * 1000 AS hour, toInt64(count()) FROM raw_usage WHERE tenant = "+quoteText(tenant)+
		" AND minute >= "+seconds(schema.Floor(fromMs, schema.HourMs))+" AND minute < "+seconds(toMs+999)+" GROUP BY hour ORDER BY hour")
	if err != nil {
		return nil, fmt.Errorf("count events per hour: %w", err)
	}
	defer rows.Close()
	var counts []HourCount
	for rows.Next() {
		var c HourCount
		if err := rows.Scan(&c.HourMs, &c.Events); err != nil {
			return nil, fmt.Errorf("count events per hour: %w", err)
		}
		counts = append(counts, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("count events per hour: %w", err)
	}
	return counts, nil
}
