package gpu

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// unitKey names a unit inside a scrape. gi is empty for a whole board.
type unitKey struct{ board, gi string }

func (k unitKey) unit() string {
	if k.gi == "" {
		return k.board
	}
	return k.board + "/gi/" + k.gi
}

// owner is who an exporter says holds a unit. The zero owner is "it does not say".
type owner struct{ instance, project string }

// seriesKey is what makes two samples the same: per-pod copies of a board's
// value differ in the owner alone.
type seriesKey struct {
	field int
	owner owner
}

// facts collects all that one scrape says about one unit.
type facts struct {
	key     unitKey
	model   string
	profile string
	node    string
	owners  []owner
	values  map[seriesKey]value
	// silent is why the unit has no activity although nothing failed.
	silent string
}

type value struct {
	field  field
	amount int64
	reason string // not empty: no amount, and why
}

func newFacts(key unitKey) *facts {
	return &facts{key: key, values: make(map[seriesKey]value, 16)}
}

// add keeps a value and says whether it was the first of its series.
func (f *facts) add(fd field, o owner, raw float64) bool {
	k := seriesKey{fd.id, o}
	if _, seen := f.values[k]; seen {
		return false
	}
	amount, reason := fd.convert(raw)
	f.values[k] = value{field: fd, amount: amount, reason: reason}
	return true
}

// get returns the unit's value of a signal, or the reason why there is none;
// both are empty when no metric carried it.
//
// A sample without an owner is the device's own. Samples with owners are copies
// of it or, in newer exporters, parts of it by process; only where the device's
// own is missing the greatest of them stands in.
func (f *facts) get(s signal) (schema.Maybe, string) {
	var own, copies schema.Maybe
	reason := ""
	for k, v := range f.values {
		switch {
		case v.field.signal != s:
		case v.reason != "":
			reason = max(reason, v.reason)
		case k.owner == owner{}:
			own = greater(own, v.amount)
		default:
			copies = greater(copies, v.amount)
		}
	}
	switch {
	case own.Known:
		return own, ""
	case copies.Known:
		return copies, ""
	}
	return schema.Maybe{}, reason
}

func greater(m schema.Maybe, v int64) schema.Maybe {
	if m.Known && m.Value >= v {
		return m
	}
	return schema.Some(v)
}

// Names of activity signals as reasons show them.
var activitySignals = []struct {
	signal signal
	name   string
	// sliced: the signal is of the GPU instance itself. The others are read from
	// the board, and a busy neighbour would make an idle instance look active.
	sliced bool
	// computes: the signal sees any kernel, so two of them must roughly agree.
	computes bool
}{
	{sigSM, "SM activity", true, true},
	{sigEngine, "graphics engine activity", true, true},
	{sigUtil, "GPU utilization", false, true},
	{sigEncoder, "encoder utilization", false, false},
	{sigDecoder, "decoder utilization", false, false},
}

// Two compute signals disagree when one is about zero and another well above.
const (
	disagreeLow  = schema.UtilizationOne / 1000
	disagreeHigh = schema.UtilizationOne / 5
)

// activity is the greatest of the available activity signals: one stuck at zero
// must not make a busy unit idle. disagree reports such a pair.
func (f *facts) activity() (utilization schema.Maybe, reason string, disagree bool) {
	low, high := int64(schema.UtilizationOne), int64(0)
	var reasons []string
	for _, a := range activitySignals {
		if f.key.gi != "" && !a.sliced {
			continue
		}
		v, why := f.get(a.signal)
		if why != "" {
			reasons = append(reasons, a.name+" "+why)
		}
		if !v.Known {
			continue
		}
		utilization = greater(utilization, v.Value)
		if a.computes {
			low, high = min(low, v.Value), max(high, v.Value)
		}
	}
	switch {
	case utilization.Known:
		return utilization, "", low < disagreeLow && high > disagreeHigh
	case f.silent != "":
		return utilization, f.silent, false
	case len(reasons) > 0:
		return utilization, strings.Join(reasons, ", "), false
	}
	return utilization, "no activity metric in the scrape", false
}

// memory returns used and total bytes. Used and free do not add up to the total
// on current drivers, so without an own total all three parts are needed.
func (f *facts) memory() (used, total schema.Maybe) {
	used, _ = f.get(sigMemUsed)
	if total, _ = f.get(sigMemTotal); total.Known {
		return used, total
	}
	free, _ := f.get(sigMemFree)
	reserved, _ := f.get(sigMemReserved)
	if used.Known && free.Known && reserved.Known {
		total = schema.Some(used.Value + free.Value + reserved.Value)
	}
	return used, total
}

// readings makes one reading for each owner, or one without when there is none.
func (f *facts) readings(d *Defaults) ([]schema.Reading, bool) {
	utilization, reason, disagree := f.activity()
	r := schema.Reading{
		Unit: f.key.unit(), Board: f.key.board, Model: f.model, Node: cmp.Or(f.node, d.Node),
		Labels: d.Labels, Utilization: utilization, Reason: reason, EnergyWeight: computeSlices(f.profile),
	}
	if f.profile != "" {
		r.Model += " MIG " + f.profile
	}
	r.MemoryUsedBytes, r.MemoryTotalBytes = f.memory()
	r.BoardEnergyMj, _ = f.get(sigEnergy)
	if len(f.owners) == 0 {
		r.Instance, r.Project = d.Instance, d.Project
		return []schema.Reading{r}, disagree
	}
	slices.SortFunc(f.owners, func(a, b owner) int {
		return cmp.Or(cmp.Compare(a.instance, b.instance), cmp.Compare(a.project, b.project))
	})
	all := make([]schema.Reading, len(f.owners))
	for i, o := range f.owners {
		all[i] = r
		all[i].Instance, all[i].Project = o.instance, cmp.Or(o.project, d.Project)
		if len(f.owners) > 1 {
			all[i].Share = schema.Some(part(schema.ShareOne, int64(i), int64(len(f.owners))))
		}
	}
	return all, disagree
}

// part returns the i-th of n parts of whole that are as equal as integers allow
// and add up exactly.
func part(whole, i, n int64) int64 { return whole*(i+1)/n - whole*i/n }

// computeSlices returns the compute slices of a MIG profile: 2 for "2g.10gb", 3 for
// "1c.3g.71gb" (one of its compute instances), 1 where it does not say. A board
// has seven.
func computeSlices(profile string) int64 {
	for p := range strings.SplitSeq(profile, ".") {
		if n, err := strconv.Atoi(strings.TrimSuffix(p, "g")); err == nil && strings.HasSuffix(p, "g") && n >= 1 && n <= 7 {
			return int64(n)
		}
	}
	return 1
}
