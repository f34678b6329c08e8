package clickhouse

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

const chargeColumns = "tenant, entry, line, reversal, number, booked_at, horizon, correction, reason, category, status, meter, `from`, `to`, instance, project, platform, region, model, plan, gpus, " +
	"commitment, contract, metered_ms, excluded_ms, billable_ms, quantity, currency, list_unit_price, unit_price, price_version, list_cost, contracted_cost, billed_cost, effective_cost, evidence, content"

// PutCharges adds entries to the ledger. When it returns nil they are on disk; adding one
// twice is as adding it once.
func (db *DB) PutCharges(ctx context.Context, entries []schema.Charge) error {
	if len(entries) == 0 {
		return nil
	}
	batch, err := db.conn.PrepareBatch(ctx, "INSERT INTO charge ("+chargeColumns+")")
	if err != nil {
		return fmt.Errorf("book charges: %w", err)
	}
	defer batch.Close()
	instant := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	known := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	for i := range entries {
		c := &entries[i]
		err := batch.Append(c.Tenant, c.Entry, c.Line, bit(c.Reversal), uint32(c.Number), instant(c.BookedAtMs), instant(c.HorizonMs), bit(c.Correction), c.Why,
			c.Category, c.Status, c.Meter, instant(c.FromMs), instant(c.ToMs), c.Instance, c.Project, c.Platform, c.Region, c.Model, c.Plan, c.Gpus,
			c.Commitment, c.Contract, c.MeteredMs, c.ExcludedMs, c.BillableMs, known(c.Quantity), c.Currency, known(c.ListPrice), known(c.Price), c.Version,
			known(c.ListCost), known(c.Cost), known(c.Billed), known(c.Effective), c.Evidence, string(c.Content))
		if err != nil {
			return fmt.Errorf("book charge %s: %w", c.Line, err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("book charges: %w", err)
	}
	return nil
}

func quotedList(list []string) string {
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = quoteText(text)
	}
	return strings.Join(quoted, ",")
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// ChargedLines returns what the ledger says of the lines of a tenant that end after an
// instant; with instances of those only.
func (db *DB) ChargedLines(ctx context.Context, tenant string, instances []string, fromMs int64) ([]schema.ChargedLine, error) {
	where := "tenant = " + quoteText(tenant) + " AND `to` > fromUnixTimestamp64Milli(" + strconv.FormatInt(fromMs, 10) + ", 'UTC')"
	if instances != nil {
		where += " AND instance IN (" + quotedList(instances) + ")"
	}
	var list []schema.ChargedLine
	err := db.each(roomy(ctx), "SELECT toString(line), any(instance), any(commitment), toString(any(category)), toUnixTimestamp64Milli(any(`from`)), toUnixTimestamp64Milli(any(`to`)), "+
		"toInt64(uniqExact(number)), toUnixTimestamp64Milli(max(horizon)) FROM charge WHERE "+where+" GROUP BY line", func(scan func(...any) error) error {
		var c schema.ChargedLine
		var entries int64
		if err := scan(&c.Line, &c.Instance, &c.Commitment, &c.Category, &c.FromMs, &c.ToMs, &entries, &c.HorizonMs); err != nil {
			return err
		}
		c.Entries = int(entries)
		list = append(list, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the ledger of charges: %w", err)
	}
	return list, nil
}

// ChargeEntries returns the entries of the lines whose digest begins with a prefix, the
// first one first; of a reversal too all that the line says.
func (db *DB) ChargeEntries(ctx context.Context, tenant, prefix string, limit int) ([]schema.Charge, error) {
	var list []schema.Charge
	err := db.each(ctx, "SELECT toString(entry), toString(line), reversal, number, toUnixTimestamp64Milli(booked_at), toUnixTimestamp64Milli(horizon), correction, reason, content FROM charge "+
		"WHERE tenant = "+quoteText(tenant)+" AND startsWith(line, "+quoteText(prefix)+") ORDER BY line, number, booked_at LIMIT 1 BY line, number LIMIT "+strconv.Itoa(limit), func(scan func(...any) error) error {
		c := schema.Charge{Tenant: tenant}
		var reversal, correction uint8
		var number uint32
		var content string
		if err := scan(&c.Entry, &c.Line, &reversal, &number, &c.BookedAtMs, &c.HorizonMs, &correction, &c.Why, &content); err != nil {
			return err
		}
		c.Reversal, c.Correction, c.Number, c.Content = reversal == 1, correction == 1, int(number), []byte(content)
		list = append(list, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the ledger of charges: %w", err)
	}
	return list, nil
}

// ChargeRows returns whole lines of the ledger by their digests, as they were booked.
func (db *DB) ChargeRows(ctx context.Context, tenant string, lines []string) (map[string]schema.Charge, error) {
	rows := make(map[string]schema.Charge, len(lines))
	if len(lines) == 0 {
		return rows, nil
	}
	text := func(column string) string { return "ifNull(" + column + ", '')" }
	err := db.each(roomy(ctx), "SELECT toString(line), toString(category), toString(status), toString(meter), toUnixTimestamp64Milli(`from`), toUnixTimestamp64Milli(`to`), instance, project, toString(platform), "+
		"toString(region), toString(model), toString(plan), gpus, commitment, contract, metered_ms, excluded_ms, billable_ms, "+text("quantity")+", toString(currency), "+text("list_unit_price")+", "+text("unit_price")+
		", price_version, "+text("list_cost")+", "+text("contracted_cost")+", "+text("billed_cost")+", "+text("effective_cost")+", evidence, content FROM charge WHERE tenant = "+quoteText(tenant)+
		" AND line IN ("+quotedList(lines)+") LIMIT 1 BY line", func(scan func(...any) error) error {
		c := schema.Charge{Tenant: tenant}
		var content string
		if err := scan(&c.Line, &c.Category, &c.Status, &c.Meter, &c.FromMs, &c.ToMs, &c.Instance, &c.Project, &c.Platform, &c.Region, &c.Model, &c.Plan, &c.Gpus, &c.Commitment, &c.Contract,
			&c.MeteredMs, &c.ExcludedMs, &c.BillableMs, &c.Quantity, &c.Currency, &c.ListPrice, &c.Price, &c.Version, &c.ListCost, &c.Cost, &c.Billed, &c.Effective, &c.Evidence, &content); err != nil {
			return err
		}
		c.Content = []byte(content)
		rows[c.Line] = c
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the ledger of charges: %w", err)
	}
	return rows, nil
}

// Arrived is how much a tenant's tables hold of what is rated, to see that something
// came in.
type Arrived struct {
	Tenant   string
	Leases   int64
	Meters   int64
	Others   int64 // outages and corrections
	Terms    int64
	LatestNs int64 // when the stream stored the latest lease or meter event
}

// RatedArrivals returns it of every tenant that has any.
func (db *DB) RatedArrivals(ctx context.Context) ([]Arrived, error) {
	of := func(table, number string) string {
		counts := []string{"0 AS leases", "0 AS meters", "0 AS others", "0 AS terms", "0 AS latest"}
		latest := "0 AS latest"
		if table == "raw_lease" || table == "raw_meter" {
			latest = "toUnixTimestamp64Nano(max(stored_at)) AS latest"
		}
		counts[4] = latest
		for i, name := range []string{"leases", "meters", "others", "terms"} {
			if name == number {
				counts[i] = "toInt64(count()) AS " + name
			}
		}
		return "SELECT tenant, " + strings.Join(counts, ", ") + " FROM " + table + " GROUP BY tenant"
	}
	parts := []string{of("raw_lease", "leases"), of("raw_meter", "meters"), of("raw_outage", "others"), of("raw_correction", "others"),
		of("price_book", "terms"), of("contract", "terms"), of("platform_profile", "terms")}
	var list []Arrived
	err := db.each(ctx, "SELECT toString(tenant), toInt64(sum(leases)), toInt64(sum(meters)), toInt64(sum(others)), toInt64(sum(terms)), toInt64(max(latest)) FROM ("+
		strings.Join(parts, " UNION ALL ")+") GROUP BY tenant ORDER BY tenant", func(scan func(...any) error) error {
		var a Arrived
		if err := scan(&a.Tenant, &a.Leases, &a.Meters, &a.Others, &a.Terms, &a.LatestNs); err != nil {
			return err
		}
		list = append(list, a)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for what is to be rated: %w", err)
	}
	return list, nil
}

// InstancesSince returns the instances of which the stream stored lease or meter events
// after an instant, at most limit of them.
func (db *DB) InstancesSince(ctx context.Context, tenant string, afterNs int64, limit int) ([]string, error) {
	where := " WHERE tenant = " + quoteText(tenant) + " AND toUnixTimestamp64Nano(stored_at) > " + strconv.FormatInt(afterNs, 10)
	var list []string
	err := db.each(ctx, "SELECT DISTINCT instance FROM (SELECT instance FROM raw_lease"+where+" UNION ALL SELECT instance FROM raw_meter"+where+") ORDER BY instance LIMIT "+strconv.Itoa(limit), func(scan func(...any) error) error {
		var name string
		if err := scan(&name); err != nil {
			return err
		}
		list = append(list, name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for instances to be rated: %w", err)
	}
	return list, nil
}
