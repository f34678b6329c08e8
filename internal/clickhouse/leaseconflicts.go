package clickhouse

import (
	"context"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// leaseIdentities selects source and id of the lease events that a span holds, in
// any of their contents.
func leaseIdentities(of string, fromMs, toMs int64) string {
	return "SELECT source, id FROM raw_lease WHERE " + of + " AND at >= " + instant(fromMs) + " AND at < " + instant(toMs)
}

// leaseConflictQuery selects source and id of those with several contents, wherever
// these lie. There are few lease events: no index leads from an identity to them.
func leaseConflictQuery(of string, fromMs, toMs int64) string {
	return "SELECT source, id FROM raw_lease WHERE " + of + " AND (source, id) IN (" + leaseIdentities(of, fromMs, toMs) +
		") GROUP BY source, id HAVING uniqExact(payload) > 1"
}

// leaseContents returns the contents of lease events by when they were stored,
// each once.
func (db *DB) leaseContents(ctx context.Context, tenant string, ids []schema.Identity, facts *schema.Settlement, asOfMs int64) (map[schema.Identity][]schema.LeaseContent, error) {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.ID
	}
	events, err := db.leaseEvents(ctx, tenant, " AND id IN ("+textList(names)+")", asOfMs)
	if err != nil {
		return nil, err
	}
	order := func(e *schema.StoredLease) schema.Order { return schema.OrderOf(&e.Position, e.Payload) }
	slices.SortFunc(events, func(a, b schema.StoredLease) int { return order(&a).Compare(order(&b)) })
	claims := make([]schema.Claim, len(events))
	for i := range events {
		claims[i] = schema.Claim{Identity: events[i].Identity(), Order: order(&events[i])}
	}
	contents := map[schema.Identity][]schema.LeaseContent{}
	for i, counted := range facts.Counted(claims) {
		id := events[i].Identity()
		same := func(c schema.LeaseContent) bool { return c.Payload == events[i].Payload }
		if !slices.ContainsFunc(contents[id], same) {
			contents[id] = append(contents[id], schema.LeaseContent{StoredLease: events[i], Counted: counted})
		}
	}
	return contents, nil
}
