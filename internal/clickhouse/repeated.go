package clickhouse

import (
	"context"
	"fmt"
)

// Nearly every identity of a span has one row. Grouping a month of them all by
// identity, to find the few that have more, takes gigabytes of memory; so only the
// rows that these conditions select are grouped.

// repeated holds conditions on rows of raw_usage: one of them holds for every row of
// an identity that may have several. They are found before the statements that use
// them, once for all of these. What is stored in between is counted as if it were
// not repeated, until the next question.
type repeated struct {
	minute   string // selects minutes
	identity string // selects source and id
}

// maxRepeatedMinutes bounds how many minutes are written into a statement. Beyond it
// the statement looks for them itself.
const maxRepeatedMinutes = 10_000

// repeated finds the conditions for what span selects of a tenant's rows, which of
// selects.
func (db *DB) repeated(ctx context.Context, of, span string) (r repeated, err error) {
	minutes := repeatedMinutes(span)
	var list []int64
	err = db.each(ctx, fmt.Sprintf("SELECT DISTINCT toInt64(toUnixTimestamp(minute)) * 1000 FROM (%s) LIMIT %d%s", minutes, maxRepeatedMinutes+1, inKeyOrder()),
		func(scan func(...any) error) error {
			list = append(list, 0)
			return scan(&list[len(list)-1])
		})
	if err != nil {
		return r, err
	}
	switch {
	case len(list) == 0:
		r.minute = "0"
	case len(list) > maxRepeatedMinutes:
		r.minute = "minute IN (" + minutes + ")"
	default:
		r.minute = "minute IN (" + secondsList(list) + ")"
	}
	identities := repeatedIdentities(of)
	n, err := db.count(ctx, "SELECT count() FROM ("+identities+" LIMIT 1)"+inKeyOrder())
	if r.identity = "(source, id) IN (" + identities + ")"; n == 0 {
		r.identity = "0"
	}
	return r, err
}

// repeatedMinutes selects the minutes in which an identity may have more than one
// row, of the rows of raw_usage that meet the condition. All copies of an identity
// that tells its place begin in one minute. Minutes are looked at one after the
// other in the order of the key; there rows of another length class are elsewhere,
// so minutes with several classes are taken as they are.
func repeatedMinutes(where string) string {
	return "SELECT minute FROM raw_usage WHERE " + where + " GROUP BY tenant, span, minute HAVING count() > uniqExact(cityHash64(source, id))" +
		" UNION ALL SELECT minute FROM raw_usage WHERE " + where + " GROUP BY minute HAVING min(span) < max(span)"
}

// repeatedIdentities selects source and id of the identities that may have rows in
// several minutes, which are of those that do not tell their place: they have
// several rows in usage_identity, or tell the place of others. of selects a
// tenant's rows of usage_identity.
func repeatedIdentities(of string) string {
	return "SELECT source, id FROM usage_identity WHERE " + of + " GROUP BY tenant, told, source, id HAVING count() > 1 OR told > toDateTime(0, 'UTC')"
}

// inKeyOrder ends a statement that uses them. What has to be grouped otherwise
// goes on, on disk, beyond scanMemory.
func inKeyOrder() string {
	return fmt.Sprintf(" SETTINGS optimize_aggregation_in_order = 1, max_bytes_before_external_group_by = %d, max_bytes_before_external_sort = %d", scanMemory, scanMemory)
}
