package clickhouse

import (
	"context"
	"fmt"
	"strings"
)

// watchedTables are those that answers are made from.
var watchedTables = []string{
	"usage_minute", "usage_hour", "raw_lease", "raw_meter", "raw_outage", "raw_correction", "correction",
	"price_book", "contract", "platform_profile", "statement", "incident", "quarantine", "usage_identity",
}

// Changed returns a text that differs when anything that answers are made from does. It
// counts rows, which the tables' parts say without being read. Merging counts them anew,
// so it may differ when nothing has changed; and it does not when a merge took away just
// as many rows as came in, so nothing may rely on it for long.
func (db *DB) Changed(ctx context.Context) (string, error) {
	var parts []string
	for _, table := range watchedTables {
		parts = append(parts, "(SELECT toString(count()) FROM "+table+")")
	}
	var text string
	if err := db.conn.QueryRow(ctx, "SELECT concat("+strings.Join(parts, ", ' ', ")+")").Scan(&text); err != nil {
		return "", fmt.Errorf("look for changes: %w", err)
	}
	return text, nil
}
