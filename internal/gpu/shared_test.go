package gpu

import (
	"context"
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/schema"
)

// sharedFolder holds recorded exporter output that is not part of the project.
const sharedFolder = "../../../shared/testdata/gpu"

func sharedFile(t *testing.T, name string) []byte {
	t.Helper()
	if _, err := os.Stat(sharedFolder); err != nil {
		t.Log("shared testdata not present: 5 cases not run")
		t.Skip("recorded exporter output is not part of the project")
	}
	raw, err := os.ReadFile(filepath.Join(sharedFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func readShared(t *testing.T, name string) ([]schema.Reading, *Scrape) {
	t.Helper()
	s := newScrape(t, ScrapeOptions{URL: serve(t, sharedFile(t, name)).URL})
	readings, err := s.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return readings, s
}

func TestSharedFourInstances(t *testing.T) {
	readings, s := readShared(t, "dcgm-exporter_a100-mig_4-active.prom")
	const board = "GPU-473571f2-fb37-ef7e-50fe-9885b74a23cd"
	want := map[string]struct{ util, usedMiB, weight int64 }{
		board + "/gi/5": {0, 13, 2}, board + "/gi/7": {0, -1, 1}, board + "/gi/8": {408_493, 4384, 1}, board + "/gi/9": {0, -1, 1},
	}
	if len(readings) != len(want) {
		t.Fatalf("%d units", len(readings))
	}
	for _, r := range readings {
		w, ok := want[r.Unit]
		if !ok || r.Utilization != schema.Some(w.util) || r.EnergyWeight != w.weight || r.Board != board ||
			r.BoardEnergyMj != schema.Some(6890956) || !strings.Contains(r.Model, "A100-SXM4-40GB MIG ") || r.Instance != "" {
			t.Errorf("%+v", r)
		}
		if w.usedMiB >= 0 && r.MemoryUsedBytes != schema.Some(w.usedMiB<<20) {
			t.Errorf("%s uses %v bytes", r.Unit, r.MemoryUsedBytes)
		}
		if r.MemoryTotalBytes.Known {
			t.Errorf("%s: total %v made of used and free", r.Unit, r.MemoryTotalBytes)
		}
	}
	if got := s.Rejected(); len(got) != 1 || got[RejectUnreadable] != 1 {
		t.Errorf("only the title is to be rejected: %v", got)
	}
}

func TestSharedIdleInstance(t *testing.T) {
	readings, _ := readShared(t, "dcgm-exporter_a100-mig_idle-instance.prom")
	if len(readings) != 1 || readings[0].Utilization != schema.Some(0) || readings[0].MemoryUsedBytes != schema.Some(6<<20) {
		t.Errorf("%+v", readings)
	}
}

func TestSharedTwoScrapes(t *testing.T) {
	readings, s := readShared(t, "dcgm-exporter_a100_mig-disabled-empty.prom")
	if len(readings) != 1 || readings[0].Utilization != schema.Some(0) || readings[0].BoardEnergyMj != schema.Some(424405577) {
		t.Errorf("%+v", readings)
	}
	if s.Rejected()[RejectTwice] == 0 {
		t.Error("the second scrape was not noticed")
	}
}

func TestSharedSmiDemo(t *testing.T) {
	readings, s := readShared(t, "nvidia_gpu_exporter_demo-2xH200-mig-xid.prom")
	if len(readings) != 3 || len(s.Rejected()) != 0 {
		t.Fatalf("%d units, rejected %v", len(readings), s.Rejected())
	}
	for _, r := range readings {
		switch r.Model {
		case "NVIDIA H200":
			if r.Utilization != schema.Some(schema.UtilizationOne) || r.BoardEnergyMj != schema.Some(0) {
				t.Errorf("%+v", r)
			}
		case "NVIDIA H200 MIG 1c.3g.71gb", "NVIDIA H200 MIG 1g.18gb":
			if r.Utilization.Known || r.Reason == "" || !r.MemoryUsedBytes.Known {
				t.Errorf("%+v", r)
			}
		default:
			t.Errorf("model %q", r.Model)
		}
	}
}

// The alias table must know both spellings of every field that it uses.
func TestSharedRenames(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(string(sharedFile(t, "dcgm-4.6-field-renames_derived.csv")))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, row := range rows {
		old, ok := fields[row[0]]
		renamed, too := fields[row[1]]
		if !ok && !too {
			continue
		}
		checked++
		if old != renamed {
			t.Errorf("%s and %s are not the same field: %v, %v", row[0], row[1], old, renamed)
		}
	}
	if checked < 13 {
		t.Errorf("only %d renamed fields are in the table", checked)
	}
}
