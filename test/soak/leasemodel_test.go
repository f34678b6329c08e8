package soak_test

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// leasedUnit says whether a unit is held under leases only.
func leasedUnit(unit string) bool { return unit >= "GPU-20" && !strings.Contains(unit, "future") }

// lease is what an instance has at an instant.
type lease struct {
	state, project string
	gpus           int64
}

func (l lease) held() bool {
	return l.state == "provisioning" || l.state == "running" || l.state == "stopping"
}

// leaseAt reads the events of an instance up to an instant.
func (m *model) leaseAt(instance string, ms int64) (now lease) {
	list := slices.Clone(m.leases[instance])
	slices.SortFunc(list, func(a, b schema.Lease) int {
		return cmp.Or(cmp.Compare(a.AtMs, b.AtMs), cmp.Compare(a.Sequence, b.Sequence))
	})
	for _, e := range list {
		if e.AtMs > ms {
			break
		}
		now.state = e.State
		now.project = cmp.Or(e.Project, now.project)
		if e.Gpus.Known {
			now.gpus = e.Gpus.Value
		}
	}
	return now
}

// changes are the instants of a bucket at which the lease of an instance changes.
func (m *model) changes(instance string, bucket int64) (list []int64) {
	for _, e := range m.leases[instance] {
		if e.AtMs > bucket && e.AtMs < bucket+bucketMs {
			list = append(list, e.AtMs)
		}
	}
	return list
}

// sumMissing adds what an instance holds of a bucket and no unit reports: idle
// while it is set up, and unknown else.
func (m *model) sumMissing(sums map[place]figures, instance string, events []schema.Usage, bucket int64) {
	cuts := append([]int64{bucket, bucket + bucketMs}, m.changes(instance, bucket)...)
	for i := range events {
		if e := &events[i]; e.StartMs < bucket+bucketMs && e.EndMs > bucket {
			cuts = append(cuts, max(e.StartMs, bucket), min(e.EndMs, bucket+bucketMs))
		}
	}
	slices.Sort(cuts)
	for i := 1; i < len(cuts); i++ {
		from, to := cuts[i-1], cuts[i]
		now := m.leaseAt(instance, from)
		if from == to || !now.held() {
			continue
		}
		reported := map[string]bool{}
		for j := range events {
			if e := &events[j]; e.StartMs <= from && e.EndMs >= to {
				reported[e.Unit] = true
			}
		}
		missing := max(0, now.gpus-int64(len(reported))) * (to - from)
		at := place{"", instance, now.project, bucket}
		f := sums[at]
		if now.state == "provisioning" {
			f.idle += missing
		} else {
			f.unknown += missing
		}
		sums[at] = f
	}
}

// outsideMs is the usage that lies outside of leases.
func (m *model) outsideMs() (sum int64) {
	for _, ms := range m.outside {
		sum += ms
	}
	return sum
}
