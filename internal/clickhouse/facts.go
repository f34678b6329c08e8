package clickhouse

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/gpumeter/gpumeter/schema"
)

// Bounds of the statements that look for facts.
const (
	maxIDsAtOnce = 10_000
	// Chains of corrections are followed link by link this often; a longer one is
	// got by reading all corrections of its sources.
	maxLinks = 4
)

// about selects rows of usage_identity or correction by the identities that they
// are about.
type about struct {
	tenant  string
	asOfMs  int64
	sources map[string]struct{}
	ids     map[schema.Identity]struct{}
	// Besides, all rows of the sources whose id tells a minute in [fromMs, toMs].
	// Most events have such an id, and few of these have any row.
	fromMs, toMs int64
	ranged       bool
}

func newAbout(tenant string, asOfMs int64) *about {
	return &about{tenant: tenant, asOfMs: asOfMs, sources: map[string]struct{}{}, ids: map[schema.Identity]struct{}{}}
}

func (a *about) add(id schema.Identity) {
	a.sources[id.Source] = struct{}{}
	a.ids[id] = struct{}{}
}

// conditions returns one condition for each statement, so that none gets too long.
func (a *about) conditions() []string {
	if len(a.sources) == 0 {
		return nil
	}
	base := "tenant = " + quoteText(a.tenant) + asOfCondition(a.asOfMs) + " AND source IN (" + textList(slices.Sorted(maps.Keys(a.sources))) + ") AND "
	var list []string
	if a.ranged {
		list = append(list, base+"told >= "+seconds(a.fromMs)+" AND told <= "+seconds(a.toMs))
	}
	ids := make([]string, 0, len(a.ids))
	for id := range a.ids {
		ids = append(ids, id.ID)
	}
	slices.Sort(ids)
	for part := range slices.Chunk(slices.Compact(ids), maxIDsAtOnce) {
		told := map[int64]struct{}{}
		for _, id := range part {
			told[schema.ToldMs(id)] = struct{}{}
		}
		list = append(list, base+"told IN ("+secondsList(slices.Sorted(maps.Keys(told)))+") AND id IN ("+textList(part)+")")
	}
	return list
}

func textList(list []string) string {
	var b strings.Builder
	for i, s := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quoteText(s))
	}
	return b.String()
}

// factsOf returns what is stored elsewhere about the identities of the events
// read, by asOfMs (0 = all). read says of the start of an event whether everything
// that begins at that instant was read with it.
func (db *DB) factsOf(ctx context.Context, tenant string, groups *unitGroups, asOfMs int64, read func(startMs int64) bool) (*schema.Settlement, error) {
	a := newAbout(tenant, asOfMs)
	last := ""
	for _, u := range groups.units {
		for i := u.head; i >= 0; i = groups.next[i] {
			e := groups.at(i)
			if e.Source != last || len(a.sources) == 0 {
				last = e.Source
				a.sources[last] = struct{}{}
			}
			if !e.Telling() || !read(e.StartMs) {
				a.ids[e.Identity()] = struct{}{}
				continue
			}
			ms := schema.Floor(e.StartMs, schema.MinuteMs)
			if !a.ranged {
				a.fromMs, a.toMs, a.ranged = ms, ms, true
			}
			a.fromMs, a.toMs = min(a.fromMs, ms), max(a.toMs, ms)
		}
	}
	return db.settle(ctx, a)
}

// Settlement returns what decides about identities: all copies of those that are
// usage events, and the corrections that bear on any, as of an instant (0 = now).
func (db *DB) Settlement(ctx context.Context, tenant string, ids []schema.Identity, asOfMs int64) (*schema.Settlement, error) {
	a := newAbout(tenant, asOfMs)
	for _, id := range ids {
		a.add(id)
	}
	return db.settle(ctx, a)
}

func (db *DB) settle(ctx context.Context, a *about) (*schema.Settlement, error) {
	var f schema.Facts
	g, within := errgroup.WithContext(ctx)
	g.Go(func() (err error) { f.Copies, err = db.copies(within, a); return err })
	g.Go(func() (err error) { f.Corrections, err = db.corrections(within, a); return err })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return f.Settle(), nil
}

const copySelect = "SELECT toString(source), id, toString(hex(payload)), unit, toUnixTimestamp64Milli(start), toUnixTimestamp64Milli(`end`), " +
	positionSelect

const positionSelect = "toString(stream), epoch, stream_sequence, place, toUnixTimestamp64Nano(stored_at)"

// copies returns the copies of usage identities, wherever they lie.
func (db *DB) copies(ctx context.Context, a *about) ([]schema.Copy, error) {
	var statements []string
	for _, where := range a.conditions() {
		statements = append(statements, copySelect+" FROM usage_identity WHERE "+where)
	}
	for _, where := range a.told() {
		statements = append(statements, copySelect+" FROM raw_usage WHERE "+where)
	}
	var copies []schema.Copy
	for _, statement := range statements {
		err := db.each(ctx, statement, func(scan func(...any) error) error {
			c := schema.Copy{Position: schema.Position{Tenant: a.tenant}}
			var payload string
			if err := scan(&c.Source, &c.ID, &payload, &c.Unit, &c.StartMs, &c.EndMs, &c.Stream, &c.Epoch, &c.StreamSequence, &c.Place, &c.StoredAtNs); err != nil {
				return err
			}
			c.Payload = hashOf(payload)
			copies = append(copies, c)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read copies of identities: %w", err)
		}
	}
	return copies, nil
}

// told returns conditions that find the copies that lie where their id says.
func (a *about) told() []string {
	var ids []string
	for id := range a.ids {
		if _, _, ok := schema.PlaceOf(id.ID); ok {
			ids = append(ids, id.ID)
		}
	}
	slices.Sort(ids)
	var list []string
	for part := range slices.Chunk(slices.Compact(ids), maxIDsAtOnce) {
		minutes, units := map[int64]struct{}{}, map[string]struct{}{}
		for _, id := range part {
			unit, startMs, _ := schema.PlaceOf(id)
			minutes[schema.Floor(startMs, schema.MinuteMs)] = struct{}{}
			units[strconv.FormatUint(schema.UnitHash(unit), 10)] = struct{}{}
		}
		list = append(list, "tenant = "+quoteText(a.tenant)+asOfCondition(a.asOfMs)+" AND span IN (0, 1, 2, 3) AND minute IN ("+
			secondsList(slices.Sorted(maps.Keys(minutes)))+") AND unit_hash IN ("+strings.Join(slices.Sorted(maps.Keys(units)), ",")+
			") AND id IN ("+textList(part)+")")
	}
	return list
}

const correctionSelect = "SELECT toString(by_source), by_id, toString(hex(by_payload)), toString(target_source), target_id, toString(action), " +
	"toString(replacement_source), replacement_id, toString(replacement_type), actor, reason, " + positionSelect + " FROM correction WHERE "

// corrections returns the corrections that bear on identities, and those that bear
// on whatever these name, to the end.
func (db *DB) corrections(ctx context.Context, a *about) ([]schema.StoredCorrection, error) {
	var list []schema.StoredCorrection
	done := map[schema.Identity]struct{}{}
	for where, links := a.conditions(), 0; len(where) > 0; links++ {
		next := newAbout(a.tenant, a.asOfMs)
		for _, condition := range where {
			found, err := db.readCorrections(ctx, a.tenant, condition)
			if err != nil {
				return nil, err
			}
			for i := range found {
				for _, id := range [...]schema.Identity{found[i].By, found[i].Target, found[i].Replacement} {
					if _, ok := done[id]; !ok && id != (schema.Identity{}) {
						done[id] = struct{}{}
						next.add(id)
					}
				}
			}
			list = append(list, found...)
		}
		where = next.conditions()
		if links >= maxLinks && len(where) > 0 {
			where = []string{"tenant = " + quoteText(a.tenant) + asOfCondition(a.asOfMs) + " AND source IN (" + textList(slices.Sorted(maps.Keys(next.sources))) + ")"}
		}
	}
	return list, nil
}

func (db *DB) readCorrections(ctx context.Context, tenant, where string) ([]schema.StoredCorrection, error) {
	var list []schema.StoredCorrection
	err := db.each(ctx, correctionSelect+where, func(scan func(...any) error) error {
		c := schema.StoredCorrection{Position: schema.Position{Tenant: tenant}}
		var payload string
		err := scan(&c.By.Source, &c.By.ID, &payload, &c.Target.Source, &c.Target.ID, &c.Action, &c.Replacement.Source, &c.Replacement.ID,
			&c.ReplacementType, &c.Actor, &c.Reason, &c.Stream, &c.Epoch, &c.StreamSequence, &c.Place, &c.StoredAtNs)
		if err != nil {
			return err
		}
		c.Payload = hashOf(payload)
		list = append(list, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read corrections: %w", err)
	}
	return list, nil
}

// each calls row for every row that a statement returns.
func (db *DB) each(ctx context.Context, statement string, row func(scan func(...any) error) error) error {
	rows, err := db.conn.Query(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func hashOf(text string) (h schema.Hash) {
	if raw, err := hex.DecodeString(text); err == nil {
		copy(h[:], raw)
	}
	return h
}

// Affected returns the copies of all identities on which the corrections bear
// that the marks name. All marks are of one tenant.
func (db *DB) Affected(ctx context.Context, marks []schema.Mark) ([]schema.Copy, error) {
	tenant := marks[0].Tenant
	found, err := db.readCorrections(ctx, tenant, "tenant = "+quoteText(tenant)+" AND role = '"+roleTarget+"' AND identity_hash IN ("+
		"SELECT arrayJoin(units) FROM dirty WHERE grain = 'identity' AND tenant = "+quoteText(tenant)+" AND mark IN ("+idList(marks)+"))")
	if err != nil {
		return nil, err
	}
	a := newAbout(tenant, 0)
	for i := range found {
		a.add(found[i].Target)
	}
	if found, err = db.corrections(ctx, a); err != nil {
		return nil, err
	}
	for i := range found {
		a.add(found[i].Target)
		if found[i].Replacement != (schema.Identity{}) {
			a.add(found[i].Replacement)
		}
	}
	return db.copies(ctx, a)
}
