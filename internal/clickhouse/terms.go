package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

var termsTables = map[string]string{schema.TermsBook: "price_book", schema.TermsContract: "contract", schema.TermsProfile: "platform_profile"}

// PutTerms stores versions, those of one kind in one block, so that of a kind either
// all are stored or none. When it returns nil they are on disk; storing them twice is
// as storing them once.
func (db *DB) PutTerms(ctx context.Context, versions []schema.TermsVersion) error {
	for _, kind := range schema.TermsKinds {
		list := slices.DeleteFunc(slices.Clone(versions), func(v schema.TermsVersion) bool { return v.Kind != kind })
		if len(list) == 0 {
			continue
		}
		if err := db.putTerms(ctx, termsTables[kind], list); err != nil {
			return fmt.Errorf("store %s: %w", kind, err)
		}
	}
	return nil
}

func (db *DB) putTerms(ctx context.Context, table string, versions []schema.TermsVersion) error {
	batch, err := db.conn.PrepareBatch(ctx, "INSERT INTO "+table+" (tenant, name, content, content_hash, version, applied_at, applied_by, reason, forced, withdrawn)")
	if err != nil {
		return err
	}
	defer batch.Close()
	for i := range versions {
		v := &versions[i]
		withdrawn := uint8(0)
		if v.Withdrawn {
			withdrawn = 1
		}
		if err := batch.Append(v.Tenant, v.Name, string(v.Content), v.Hash, v.Version, time.UnixMilli(v.AppliedAtMs).UTC(), v.AppliedBy, v.Reason, v.Forced, withdrawn); err != nil {
			return err
		}
	}
	return batch.Send()
}

// TermsVersions returns all versions that a tenant had applied by an instant (0 = so
// far), without their content, in the order of applying, those of one instant by hash.
func (db *DB) TermsVersions(ctx context.Context, tenant string, asOfMs int64) ([]schema.TermsVersion, error) {
	where := "tenant = " + quoteText(tenant)
	if asOfMs != 0 {
		where += " AND applied_at <= fromUnixTimestamp64Milli(" + strconv.FormatInt(asOfMs, 10) + ", 'UTC')"
	}
	var parts []string
	for _, kind := range schema.TermsKinds {
		parts = append(parts, "SELECT "+quoteText(kind)+" AS kind, name, content_hash, version, toUnixTimestamp64Milli(applied_at) AS at, applied_by, reason, forced, withdrawn "+
			"FROM "+termsTables[kind]+" WHERE "+where)
	}
	query := "SELECT * FROM (" + strings.Join(parts, " UNION ALL ") + ") ORDER BY at, content_hash, kind, name LIMIT 1 BY kind, name, at, content_hash"
	var list []schema.TermsVersion
	err := db.each(ctx, query, func(scan func(...any) error) error {
		v := schema.TermsVersion{Tenant: tenant}
		var withdrawn uint8
		if err := scan(&v.Kind, &v.Name, &v.Hash, &v.Version, &v.AppliedAtMs, &v.AppliedBy, &v.Reason, &v.Forced, &withdrawn); err != nil {
			return err
		}
		v.Withdrawn = withdrawn == 1
		list = append(list, v)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read terms: %w", err)
	}
	return list, nil
}

// TermsContent returns the content of a version of a document exactly as it was
// given.
func (db *DB) TermsContent(ctx context.Context, v *schema.TermsVersion) ([]byte, error) {
	table, ok := termsTables[v.Kind]
	if !ok {
		return nil, fmt.Errorf("read terms: %q is no kind of document", v.Kind)
	}
	var content string
	err := db.conn.QueryRow(ctx, "SELECT content FROM "+table+" WHERE tenant = "+quoteText(v.Tenant)+" AND name = "+quoteText(v.Name)+
		" AND content_hash = "+quoteText(v.Hash)+" LIMIT 1").Scan(&content)
	if err != nil {
		return nil, fmt.Errorf("read the %s %s with the hash %s: %w", v.Kind, v.Name, v.Hash, err)
	}
	return []byte(content), nil
}
