package schema

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// The SQL is the documentation of storage, so every table and every column says
// what it holds.
func TestEveryColumnHasAComment(t *testing.T) {
	names, err := fs.Glob(SQL(), "*.sql")
	if err != nil || len(names) < 2 {
		t.Fatalf("migrations %v: %v", names, err)
	}
	create := regexp.MustCompile(`(?s)CREATE TABLE IF NOT EXISTS (\w+)(?: AS (\w+))?\s*(.*?);\n-- \+goose StatementEnd`)
	column := regexp.MustCompile(`^(\w+)\s+\S.*\sCOMMENT '((?:[^']|'')+)',?$`)
	tables := map[string]int{}
	for _, name := range names {
		text, err := fs.ReadFile(SQL(), name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "-- +goose Up\n") {
			t.Errorf("%s does not begin as a migration", name)
		}
		for _, m := range create.FindAllStringSubmatch(string(text), -1) {
			table, like, body := m[1], m[2], m[3]
			if like != "" {
				if tables[like] == 0 {
					t.Errorf("%s: %s is like %s, which is not there yet", name, table, like)
				}
				tables[table] = tables[like]
			} else {
				list, rest, ok := strings.Cut(strings.TrimPrefix(body, "(\n"), "\n)")
				if !ok {
					t.Fatalf("%s: cannot read the columns of %s", name, table)
				}
				for line := range strings.Lines(list) {
					if c := column.FindStringSubmatch(strings.TrimSpace(line)); c == nil {
						t.Errorf("%s: a column of %s without a comment: %s", name, table, strings.TrimSpace(line))
					} else {
						tables[table]++
					}
				}
				body = rest
			}
			for _, want := range []string{"COMMENT '", "ORDER BY", "fsync_after_insert = 1", "fsync_part_directory = 1", "MergeTree", "${GPUMETER_ENGINE_PREFIX:-}"} {
				if table == "dirty" && want == "MergeTree" {
					want = "CollapsingMergeTree(sign)"
				}
				if !strings.Contains(body, want) {
					t.Errorf("%s: table %s without %s", name, table, want)
				}
			}
		}
	}
	for _, table := range []string{"raw_usage", "raw_lease", "raw_meter", "raw_outage", "raw_correction", "quarantine", "dirty", "usage_minute", "usage_hour", "statement", "usage_identity", "correction", "price_book", "contract", "platform_profile"} {
		if tables[table] < 7 {
			t.Errorf("table %s: %d columns found", table, tables[table])
		}
	}
}
