package clickhouse_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// The log says of every instant what was known then, the instant itself included,
// and of every span what touches it; the list and the counts say the same.
func TestIncidentsAreALog(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "incidents")
	opened, grown, ended := testkit.At("2026-03-02T00:00:00Z"), testkit.At("2026-03-03T00:00:00Z"), testkit.At("2026-03-04T00:00:00Z")
	from, to := testkit.At("2026-03-01T10:00:00Z"), testkit.At("2026-03-01T11:00:00Z")
	gap := schema.Incident{Tenant: "default", Kind: schema.IncidentSourceGap, Key: "agent/1#2", Count: 3, FromMs: from, ToMs: to, OpenedAtMs: opened}
	more, closed := gap, gap
	more.Count, closed.Count, closed.ClosedAtMs = 5, 5, ended
	hole := schema.Incident{Kind: schema.IncidentStreamHole, Key: "S@1/4", Count: 1, OpenedAtMs: grown}
	other := schema.Incident{Tenant: "other", Kind: schema.IncidentSourceGap, Key: "agent/1#2", Count: 7, FromMs: from, ToMs: to, OpenedAtMs: opened}
	for _, note := range []struct {
		atMs int64
		list []schema.Incident
	}{{ended, []schema.Incident{closed}}, {opened, []schema.Incident{gap, other}}, {grown, []schema.Incident{more, hole}}} {
		if err := db.NoteIncidents(t.Context(), note.atMs, note.list); err != nil {
			t.Fatal(err)
		}
	}
	const small, large, whole = "source_gap agent/1#2 3", "source_gap agent/1#2 5", "stream_hole S@1/4 1"
	for _, c := range []struct {
		from, to, asOf int64
		want           []string
		gaps           int64
	}{
		{from, to, opened - 1, nil, 0},
		{from, to, opened, []string{small}, 3},
		{from, to, grown - 1, []string{small}, 3},
		{from, to, grown, []string{large, whole}, 5},
		{from, to, ended - 1, []string{large, whole}, 5},
		{from, to, ended, []string{whole}, 0},
		{from, to, 0, []string{whole}, 0},
		{0, 0, opened, []string{small}, 3},
		{from - 1, from, opened, nil, 0},
		{from, from + 1, opened, []string{small}, 3},
		{to - 1, to, opened, []string{small}, 3},
		{to, to + 1, opened, nil, 0},
	} {
		list, err := db.Incidents(t.Context(), "default", c.from, c.to, c.asOf)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range list {
			got = append(got, fmt.Sprint(n.Kind, " ", n.Key, " ", n.Count))
		}
		q, err := db.Quality(t.Context(), "default", c.from, c.to, c.asOf, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, ", ") != strings.Join(c.want, ", ") || q.OpenIncidents != int64(len(c.want)) || q.Gaps != c.gaps {
			t.Errorf("%d to %d as of %s: %q, counted %d and %d gaps; want %q and %d gaps", c.from-from, c.to-from, schema.FormatTime(c.asOf), got, q.OpenIncidents, q.Gaps, c.want, c.gaps)
		}
	}
}
