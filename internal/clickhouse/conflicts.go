package clickhouse

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpumeter/gpumeter/schema"
)

// conflictQuery selects source and id of the identities that have an event in a
// span and something set aside anywhere: another content, or a correction beside
// the one that takes effect.
//
// Contents in the span are compared there. Those elsewhere are found through
// usage_identity, which has every event whose id does not tell its place, and for
// ids that do tell, by the start that their copies have in common. The statement has
// to end in inKeyOrder.
func conflictQuery(of string, fromMs, toMs int64, r repeated) string {
	span := of + " AND " + overlappingRange(fromMs, toMs)
	in := "SELECT source, id FROM raw_usage WHERE " + span
	const usage, identity = "SELECT source, id, payload FROM raw_usage WHERE ", "SELECT source, id, payload FROM usage_identity WHERE "
	// Identities of the span that do not tell their place, or that another place
	// tells: all of their copies.
	loose := "SELECT source, id FROM usage_identity WHERE " + of + " AND " + r.identity + " AND (" +
		clipped(fromMs, toMs) + " OR told > toDateTime(0, 'UTC') AND (source, id) IN (" +
		in + " AND (source, id) IN (SELECT source, id FROM usage_identity WHERE " + of + " AND told > toDateTime(0, 'UTC'))))"
	// The place that an id tells is a minute and the unit in it.
	told := of + " AND span IN (0, 1, 2, 3) AND minute IN (SELECT told FROM usage_identity WHERE " + of +
		" AND told > toDateTime(0, 'UTC')) AND (source, id) IN (" + loose + ")"
	// Copies that begin together before the span, of which some end before it.
	before := of + " AND (minute, unit_hash) IN (SELECT minute, unit_hash FROM raw_usage WHERE " + span + " AND start < " + instant(fromMs) +
		") AND start < " + instant(fromMs) + " AND (source, id) IN (" + in + " AND start < " + instant(fromMs) + ")"
	contents := "SELECT source, id FROM (" + usage + span + " AND " + r.minute + " UNION ALL " + identity + of + " AND (source, id) IN (" + loose + ") UNION ALL " +
		usage + told + " UNION ALL " + usage + before + ") GROUP BY source, id HAVING uniqExact(payload) > 1"
	twice := "SELECT by_source, by_id FROM correction WHERE " + of + " GROUP BY by_source, by_id HAVING uniqExact(by_payload) > 1"
	// A second replacement is set aside, and so is a retraction that came after one.
	corrections := "SELECT source, id, by_source, by_id, any(action) AS does, min(stored_at) AS first FROM correction WHERE " + of + " AND role = '" + roleTarget +
		"' GROUP BY source, id, by_source, by_id, by_payload"
	second := "(source, id) IN (SELECT source, id FROM (" + corrections + ") GROUP BY source, id HAVING countIf(does = 'replace') > 1 OR " +
		"countIf(does = 'replace') = 1 AND maxIf(first, does = 'retract') > minIf(first, does = 'replace') OR max((by_source, by_id) IN (" + twice + ")))"
	// They are few: their events are looked for where their ids tell, and by name.
	corrected := in + " AND minute IN (SELECT told FROM correction WHERE " + of + " AND role = '" + roleTarget + "') AND " + second +
		" UNION ALL SELECT source, id FROM usage_identity WHERE " + of + " AND " + clipped(fromMs, toMs) + " AND " + second +
		" UNION ALL " + leaseIdentities(of, fromMs, toMs) + " AND " + second
	return "SELECT DISTINCT source, id FROM (" + contents + " UNION ALL " + leaseConflictQuery(of, fromMs, toMs) + " UNION ALL " + corrected + ")"
}

func instant(ms int64) string {
	return "fromUnixTimestamp64Milli(" + strconv.FormatInt(ms, 10) + ", 'UTC')"
}

func (db *DB) countConflicts(ctx context.Context, of string, fromMs, toMs int64, r repeated) (int64, error) {
	return db.count(ctx, "SELECT count() FROM ("+conflictQuery(of, fromMs, toMs, r)+")"+inKeyOrder())
}

// Conflicts lists the first limit identities of a span, by source and id, of which
// something was set aside, as far as it was known at asOfMs (0 = now).
func (db *DB) Conflicts(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64, limit int) ([]schema.Conflict, error) {
	of := "tenant = " + quoteText(tenant) + asOfCondition(asOfMs)
	r, err := db.repeated(ctx, of, of+" AND "+overlappingRange(fromMs, toMs))
	if err != nil {
		return nil, fmt.Errorf("list conflicts: %w", err)
	}
	var ids []schema.Identity
	err = db.each(ctx, "SELECT toString(source), id FROM ("+conflictQuery(of, fromMs, toMs, r)+") ORDER BY source, id LIMIT "+strconv.Itoa(limit)+inKeyOrder(),
		func(scan func(...any) error) error {
			var id schema.Identity
			err := scan(&id.Source, &id.ID)
			ids = append(ids, id)
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("list conflicts: %w", err)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	facts, err := db.Settlement(ctx, tenant, ids, asOfMs)
	if err != nil {
		return nil, err
	}
	events, err := db.contents(ctx, tenant, ids, facts, asOfMs)
	if err != nil {
		return nil, err
	}
	leases, err := db.leaseContents(ctx, tenant, ids, facts, asOfMs)
	if err != nil {
		return nil, err
	}
	list := make([]schema.Conflict, len(ids))
	for i, id := range ids {
		c := &list[i]
		c.Identity, c.Leases = id, leases[id]
		for _, e := range events {
			if e.Identity() == id {
				c.Contents = append(c.Contents, e)
			}
		}
		slices.SortFunc(c.Contents, func(a, b schema.StoredEvent) int {
			return schema.OrderOf(&a.Position, a.Payload).Compare(schema.OrderOf(&b.Position, b.Payload))
		})
		if c.Corrections = facts.CorrectionsOf(id); len(c.Corrections) > 0 {
			c.Effective = facts.Effective(c.Corrections[0])
		}
	}
	return list, nil
}

// contents reads the events of identities, wherever their copies lie.
func (db *DB) contents(ctx context.Context, tenant string, ids []schema.Identity, facts *schema.Settlement, asOfMs int64) ([]schema.StoredEvent, error) {
	var minutes []int64
	var names []string
	for _, id := range ids {
		names = append(names, id.ID)
		for _, c := range facts.Copies(id) {
			minutes = append(minutes, schema.Floor(c.StartMs, schema.MinuteMs))
		}
	}
	if len(minutes) == 0 {
		return nil, nil
	}
	slices.Sort(minutes)
	where := "tenant = " + quoteText(tenant) + asOfCondition(asOfMs) + " AND span IN (0, 1, 2, 3) AND minute IN (" + secondsList(slices.Compact(minutes)) +
		") AND id IN (" + textList(names) + ")"
	events, err := db.readEvents(ctx, tenant, where, "")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(events, func(a, b schema.StoredEvent) int { return cmp.Compare(a.StartMs, b.StartMs) })
	markCounted(events, facts)
	return events, nil
}
