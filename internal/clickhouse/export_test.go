package clickhouse

import (
	"context"
	"maps"
)

// OpenWith opens a database whose statements are sent with other settings.
func OpenWith(ctx context.Context, dsn string, other map[string]string) (*DB, error) {
	all := maps.Clone(settings)
	maps.Copy(all, other)
	return open(ctx, dsn, all)
}

// CountRaw counts the usage events of all tenants: distinct rows, and rows as they
// lie in the table.
func (db *DB) CountRaw(ctx context.Context) (distinct, stored uint64, err error) {
	err = db.conn.QueryRow(ctx, "SELECT uniqExact(tenant, source, id, payload), count() FROM raw_usage").Scan(&distinct, &stored)
	return distinct, stored, err
}
