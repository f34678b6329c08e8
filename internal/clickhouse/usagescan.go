package clickhouse

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// scanMemory bounds what one ordered read holds in the server for grouping, and
// as much again for sorting; beyond it the server goes on, on disk.
const scanMemory = 256 << 20

// UsageRows reads what Usage reads, in the order of the scan and a block at a
// time. Rows of one group, piece, model, platform and region come as one.
//
// Leaving the loop early ends the statement in the server. An error is the last
// thing that it gives.
func (db *DB) UsageRows(ctx context.Context, q *schema.UsageScan, grain Grain, w Windows) iter.Seq2[schema.UsageRow, error] {
	return func(yield func(schema.UsageRow, error) bool) {
		if w.Hours != nil && len(w.Hours) == 0 || w.FromMs >= w.ToMs {
			return
		}
		// Closing the rows would read the rest of them; ending the context does not.
		ctx, cancel := context.WithCancel(ctx)
		rows, err := db.conn.Query(ctx, scanQuery(q, grain, w))
		if err != nil {
			cancel()
			yield(schema.UsageRow{}, fmt.Errorf("read %s in order: %w", grain.table, err))
			return
		}
		defer rows.Close()
		defer cancel()
		for rows.Next() {
			r, err := scanUsage(rows, &q.UsageQuery)
			if err != nil {
				yield(r, fmt.Errorf("read %s in order: %w", grain.table, err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(schema.UsageRow{}, fmt.Errorf("read %s in order: %w", grain.table, err))
		}
	}
}

func scanQuery(q *schema.UsageScan, grain Grain, w Windows) string {
	var order, keys, values []string
	for i, k := range q.Order {
		var after schema.OrderValue
		if q.After != nil {
			after = q.After[i]
		}
		if k.Ranks != nil {
			ranks := "[" + joinInts(k.Ranks) + "]"
			order = append(order, ranks+"[piece + 1]")
			keys, values = append(keys, ranks+"["+pieceOf(q.Cuts)+" + 1]"), append(values, strconv.FormatInt(after.Rank, 10))
		} else {
			order = append(order, fmt.Sprintf("k%d", k.By))
			keys, values = append(keys, dimension(q.By[k.By])), append(values, quoteText(after.Text))
		}
	}
	condition := ""
	if q.After != nil {
		condition = afterCondition(keys, values)
	}
	return usageQuery(&q.UsageQuery, grain, w, condition, order) +
		fmt.Sprintf(" SETTINGS max_bytes_before_external_group_by = %d, max_bytes_before_external_sort = %d", scanMemory, scanMemory)
}

// afterCondition is (a, b, ...) > (x, y, ...), spelt out: a comparison of tuples
// would want the types of both to agree.
func afterCondition(keys, values []string) string {
	var alternatives []string
	for i := range keys {
		var all []string
		for k := range i {
			all = append(all, keys[k]+" = "+values[k])
		}
		alternatives = append(alternatives, "("+strings.Join(append(all, keys[i]+" > "+values[i]), " AND ")+")")
	}
	return "(" + strings.Join(alternatives, " OR ") + ")"
}

func joinInts(list []int64) string {
	var b strings.Builder
	for i, n := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(n, 10))
	}
	return b.String()
}
