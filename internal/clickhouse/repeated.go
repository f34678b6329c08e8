package clickhouse

import "fmt"

// Nearly every identity of a span has one row. Grouping a month of them all by
// identity, to find the few that have more, takes gigabytes of memory; so only the
// rows that these conditions select are grouped.

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
