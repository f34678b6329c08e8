package aggregator

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/schema"
)

func leaseAt(at int64, state string) schema.StoredLease {
	l := schema.StoredLease{Lease: schema.Lease{Header: schema.Header{Source: "cloud", ID: fmt.Sprint(at, state)}, Instance: "i1", AtMs: at, State: state}}
	l.StoredAtNs = at
	return l
}

func TestTimelineCarriesAttributesOver(t *testing.T) {
	first := leaseAt(100, "provisioning")
	first.Project, first.Platform, first.Region, first.Model = "a", "p", "r", "m"
	first.Labels = schema.Labels{{Key: "team", Value: "x"}, {Key: "tier", Value: "1"}}
	first.SKU, first.Plan, first.Tenancy, first.DCTier, first.Workload = "s", "spot", "shared", "3", "training"
	second := leaseAt(200, "running")
	second.Gpus = schema.Some(8)
	third := leaseAt(300, "stopping")
	third.Workload, third.Plan = "test", "month"
	third.Project, third.Labels = "b", schema.Labels{{Key: "team", Value: "y"}}
	last := leaseAt(400, "released")
	last.Gpus = schema.Some(0)

	got := Timelines(SettleLeases([]schema.StoredLease{third, last, first, second}, nil))
	if len(got) != 1 || len(got[0]) != 4 {
		t.Fatalf("got %+v", got)
	}
	all := schema.Owner{Instance: "i1", Project: "a", Platform: "p", Region: "r", Model: "m", Labels: `{"team":"x","tier":"1"}`}
	b := all
	b.Project, b.Labels = "b", `{"team":"y"}`
	for i, want := range []schema.LeaseSegment{
		{Owner: all, FromMs: 100, ToMs: 200, State: "provisioning", Gpus: 1, ID: first.ID},
		{Owner: all, FromMs: 200, ToMs: 300, State: "running", Gpus: 8, ID: second.ID},
		{Owner: b, FromMs: 300, ToMs: 400, State: "stopping", Gpus: 8, ID: third.ID},
		{Owner: b, FromMs: 400, ToMs: schema.LeaseOpen, State: "released", Gpus: 0, ID: last.ID},
	} {
		want.Source, want.StoredAtNs = "cloud", want.FromMs
		want.SKU, want.Plan, want.Tenancy, want.DCTier, want.Workload = "s", "spot", "shared", "3", "training"
		if i >= 2 {
			want.Plan, want.Workload = "month", "test"
		}
		if got[0][i] != want {
			t.Errorf("segment %d: got %+v, want %+v", i, got[0][i], want)
		}
	}
}

func TestStatesThatHoldGpus(t *testing.T) {
	held := map[string]bool{"provisioning": true, "running": true, "stopping": true}
	for _, state := range schema.LeaseStates {
		s := schema.LeaseSegment{State: state}
		if s.Held() != held[state] || s.Idle() != (state == "provisioning") {
			t.Errorf("%s: held %v, idle %v", state, s.Held(), s.Idle())
		}
	}
}

// Of one identity the copy stored first counts, also when another names another
// instance.
func TestLeaseConflictCountsOnce(t *testing.T) {
	kept, conflict := leaseAt(100, "running"), leaseAt(100, "running")
	conflict.Instance, conflict.State, conflict.StoredAtNs = "i2", "released", 500
	again := kept
	again.StoredAtNs = 900
	got := Timelines(SettleLeases([]schema.StoredLease{again, conflict, kept}, nil))
	if len(got) != 1 || got[0][0].Instance != "i1" || got[0][0].State != "running" || got[0][0].StoredAtNs != 100 {
		t.Errorf("got %+v", got)
	}
}

// A timeline is what one gets by asking, for every millisecond, what the events so
// far say; and it does not depend on the order or the delay in which they came.
func TestTimelineIsWhatEveryMillisecondSays(t *testing.T) {
	const end = 30
	rapid.Check(t, func(t *rapid.T) {
		events := make([]schema.StoredLease, rapid.IntRange(1, 8).Draw(t, "events"))
		for i := range events {
			e := &events[i]
			*e = leaseAt(rapid.Int64Range(0, end-1).Draw(t, "at"), rapid.SampledFrom(schema.LeaseStates).Draw(t, "state"))
			e.ID, e.Source = fmt.Sprint(i), rapid.SampledFrom([]string{"cloud", "hand"}).Draw(t, "source")
			e.Instance = rapid.SampledFrom([]string{"i1", "i2"}).Draw(t, "instance")
			e.Sequence = uint64(rapid.IntRange(0, 2).Draw(t, "sequence"))
			e.Project = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "project")
			e.Gpus = rapid.SampledFrom([]schema.Maybe{{}, schema.Some(0), schema.Some(4)}).Draw(t, "gpus")
		}
		got := map[string]map[int64]string{}
		for _, line := range Timelines(SettleLeases(slices.Clone(events), nil)) {
			states := map[int64]string{}
			for i, s := range line {
				if i > 0 && line[i-1].ToMs != s.FromMs || s.FromMs >= s.ToMs {
					t.Fatalf("segments do not follow each other: %+v", line)
				}
				for ms := s.FromMs; ms < min(s.ToMs, end); ms++ {
					states[ms] = fmt.Sprint(s.State, s.Project, s.Gpus)
				}
			}
			if line[len(line)-1].ToMs != schema.LeaseOpen {
				t.Fatalf("the last segment ends: %+v", line)
			}
			got[line[0].Instance] = states
		}
		for _, instance := range []string{"i1", "i2"} {
			for ms := range int64(end) {
				if want := saidUntil(events, instance, ms); got[instance][ms] != want {
					t.Fatalf("%s at %d: %q, want %q", instance, ms, got[instance][ms], want)
				}
			}
		}
		shuffled := rapid.Permutation(events).Draw(t, "order")
		for i := range shuffled {
			shuffled[i].StoredAtNs = int64(i)
			shuffled[i].StreamSequence = uint64(i)
		}
		same := func(a, b []schema.LeaseSegment) bool {
			return slices.EqualFunc(a, b, func(a, b schema.LeaseSegment) bool {
				a.Position, b.Position = schema.Position{}, schema.Position{}
				return a == b
			})
		}
		if a, b := Timelines(SettleLeases(slices.Clone(events), nil)), Timelines(SettleLeases(shuffled, nil)); !slices.EqualFunc(a, b, same) {
			t.Fatalf("the order of storing matters: %+v and %+v", a, b)
		}
	})
}

// saidUntil folds the events of an instance up to an instant, one after the other.
func saidUntil(events []schema.StoredLease, instance string, ms int64) string {
	var own []schema.StoredLease
	for _, e := range events {
		if e.Instance == instance && e.AtMs <= ms {
			own = append(own, e)
		}
	}
	slices.SortFunc(own, func(a, b schema.StoredLease) int {
		return cmp.Or(int(a.AtMs-b.AtMs), cmp.Compare(a.Source, b.Source), int(a.Sequence)-int(b.Sequence), cmp.Compare(a.ID, b.ID))
	})
	if len(own) == 0 {
		return ""
	}
	state, project, gpus := "", "", int64(1)
	for _, e := range own {
		state = e.State
		if e.Project != "" {
			project = e.Project
		}
		if e.Gpus.Known {
			gpus = e.Gpus.Value
		}
	}
	return fmt.Sprint(state, project, gpus)
}
