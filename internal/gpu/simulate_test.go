package gpu

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

var simDay = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func newSimulation(t testing.TB, nodes int, seed uint64) *Simulation {
	t.Helper()
	s, err := NewSimulation(SimOptions{Nodes: nodes, Seed: seed, Clock: func() time.Time { return simDay }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The same instant gives the same readings, in whatever order instants are
// asked for and in whichever process.
func TestSimulationIsAFunctionOfTime(t *testing.T) {
	a, b := newSimulation(t, 6, 1).Nodes(), newSimulation(t, 6, 1).Nodes()
	for i := range a {
		want := map[int][]schema.Reading{}
		for m := range 50 {
			want[m] = a[i].ReadAt(simDay.Add(time.Duration(m) * 37 * time.Minute))
		}
		for m := 49; m >= 0; m-- {
			if got := b[i].ReadAt(simDay.Add(time.Duration(m) * 37 * time.Minute)); !reflect.DeepEqual(got, want[m]) {
				t.Fatalf("%s differs at step %d", a[i].Name, m)
			}
		}
		now, err := a[i].Read(context.Background())
		if err != nil || !reflect.DeepEqual(now, want[0]) {
			t.Errorf("%s: Read is not ReadAt of the clock: %v", a[i].Name, err)
		}
	}
	other := newSimulation(t, 6, 2).Nodes()
	if reflect.DeepEqual(other[0].ReadAt(simDay), a[0].ReadAt(simDay)) {
		t.Error("another seed gives the same fleet")
	}
}

// Energy never falls, and over an hour it is what the utilization lets expect.
func TestSimulatedEnergyFollowsUtilization(t *testing.T) {
	for _, node := range newSimulation(t, 6, 3).Nodes() {
		last := map[string]int64{}
		var first map[string]int64
		sum := map[string]int64{} // utilization x weight, per board
		const steps = 360
		for i := range steps + 1 {
			for _, r := range node.ReadAt(simDay.Add(time.Duration(i) * 10 * time.Second)) {
				if !r.BoardEnergyMj.Known {
					continue
				}
				if r.BoardEnergyMj.Value < last[r.Board] {
					t.Fatalf("%s: the counter fell", r.Board)
				}
				last[r.Board] = r.BoardEnergyMj.Value
				if i > 0 {
					sum[r.Unit] += r.Utilization.Value
				}
			}
			if first == nil {
				first = map[string]int64{}
				for board, v := range last {
					first[board] = v
				}
			}
		}
		for _, u := range node.units {
			if !u.board.metered || u.unit != u.board.uuid || u.job.kind == simSilent || u.job.kind == simBlind || u.job.kind == simShared {
				continue
			}
			rack := rackOf(node)
			watts := (last[u.board.uuid] - first[u.board.uuid]) / schema.HourMs
			want := int64(rack.idleW) + int64(rack.maxW-rack.idleW)*(sum[u.unit]/steps)/schema.UtilizationOne
			if watts < want-want/20-2 || watts > want+want/20+2 {
				t.Errorf("%s %s drew %d W, utilization says %d W", node.Name, u.job.name, watts, want)
			}
		}
	}
}

func rackOf(n SimNode) *simRack {
	for i := range simRacks {
		if simRacks[i].platform == n.Platform {
			return &simRacks[i]
		}
	}
	return nil
}

// A week of a fleet shows every kind of unit that a user has to be able to see.
func TestSimulationShowsEveryKind(t *testing.T) {
	seen := map[string]bool{}
	instances := map[string]map[string]bool{}
	ids := map[string]string{}
	nodes := newSimulation(t, 12, 9).Nodes()
	for _, n := range nodes {
		for i := range 7 * 24 * 2 {
			readings := n.ReadAt(simDay.Add(time.Duration(i) * 30 * time.Minute))
			if len(readings) < len(n.units) {
				seen["silent"] = true
			}
			shares := map[string]int64{}
			for _, r := range readings {
				if at, ok := ids[r.Unit]; ok && at != n.Name {
					t.Fatalf("unit %s is on two nodes", r.Unit)
				}
				ids[r.Unit] = n.Name
				mark(seen, &r)
				if r.Share.Known {
					shares[r.Unit] += r.Share.Value
				}
				if instances[r.Unit] == nil {
					instances[r.Unit] = map[string]bool{}
				}
				instances[r.Unit][r.Instance] = true
			}
			for unit, s := range shares {
				if s != schema.ShareOne {
					t.Fatalf("shares of %s add up to %d", unit, s)
				}
			}
		}
	}
	for _, perUnit := range instances {
		if len(perUnit) > 20 {
			seen["restarting"] = true
		}
	}
	for _, kind := range []string{"busy", "held idle", "free", "unknown", "shared", "sliced", "npu", "silent", "restarting", "without energy"} {
		if !seen[kind] {
			t.Errorf("no %s unit", kind)
		}
	}
	if nodes[0].Name == nodes[6].Name || nodes[0].Platform == "" || nodes[0].Region == "" {
		t.Error("nodes are not told apart")
	}
}

func mark(seen map[string]bool, r *schema.Reading) {
	held, u := r.Instance != "", r.Utilization
	seen["busy"] = seen["busy"] || held && u.Value > 500_000
	seen["held idle"] = seen["held idle"] || held && u.Known && u.Value == 0
	seen["free"] = seen["free"] || !held && u.Known && u.Value == 0
	seen["unknown"] = seen["unknown"] || !u.Known && r.Reason != ""
	seen["shared"] = seen["shared"] || r.Share.Known
	seen["sliced"] = seen["sliced"] || r.Unit != r.Board
	seen["npu"] = seen["npu"] || r.Unit[:4] == "NPU-"
	seen["without energy"] = seen["without energy"] || !r.BoardEnergyMj.Known
}

func TestSimulationOptionsAreChecked(t *testing.T) {
	for _, n := range []int{-1, 0, MaxSimulatedNodes + 1} {
		if _, err := NewSimulation(SimOptions{Nodes: n}); err == nil {
			t.Errorf("accepted %d nodes", n)
		}
	}
}

func BenchmarkReadAt(b *testing.B) {
	n := newSimulation(b, 1, 1).Nodes()[0]
	for b.Loop() {
		_ = n.ReadAt(simDay)
	}
}
