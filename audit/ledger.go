package audit

import (
	"fmt"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// name is what makes an incident the same incident.
type name struct{ tenant, kind, key string }

func nameOf(n *schema.Incident) name { return name{n.Tenant, n.Kind, n.Key} }

// ledger holds the incidents that stand and collects what a pass learns of them.
type ledger struct {
	nowMs    int64
	standing map[name]schema.Incident
	open     map[string]int // by kind
	notes    []schema.Incident
}

func newLedger(nowMs int64, standing []schema.Incident) *ledger {
	l := &ledger{nowMs: nowMs, standing: make(map[name]schema.Incident, len(standing)), open: map[string]int{}}
	for _, n := range standing {
		l.standing[nameOf(&n)] = n
		if n.ClosedAtMs == 0 {
			l.open[n.Kind]++
		}
	}
	return l
}

// found says that an incident is there. One that is open already is noted again
// only when something about it changed; one that a person closed stays closed
// unless it began after that.
func (l *ledger) found(n schema.Incident, beganMs int64) {
	old, ok := l.standing[nameOf(&n)]
	switch {
	case ok && old.ClosedAtMs == 0:
		n.OpenedAtMs = old.OpenedAtMs
		if old == n {
			return
		}
	case ok && beganMs <= old.ClosedAtMs:
		return
	case l.open[n.Kind] >= maxOpen:
		l.tooMany(n.Kind)
		return
	default:
		n.OpenedAtMs = l.nowMs
		l.open[n.Kind]++
	}
	l.put(n)
}

// tooMany stands for the incidents of a kind that are not opened one by one.
func (l *ledger) tooMany(kind string) {
	n := schema.Incident{Kind: kind, Key: "more", Detail: fmt.Sprintf("there are more than %d of this kind; the others are listed when some of these have ended", maxOpen)}
	if old, ok := l.standing[nameOf(&n)]; !ok || old.ClosedAtMs != 0 {
		n.OpenedAtMs = l.nowMs
		l.put(n)
	}
}

// ended says that an open incident is no more, and why.
func (l *ledger) ended(n schema.Incident, why string) {
	n.ClosedAtMs = l.nowMs
	if why != "" {
		n.Detail += "; " + why
	}
	l.open[n.Kind]--
	l.put(n)
}

func (l *ledger) put(n schema.Incident) {
	l.standing[nameOf(&n)] = n
	l.notes = slices.DeleteFunc(l.notes, func(m schema.Incident) bool { return nameOf(&m) == nameOf(&n) })
	l.notes = append(l.notes, n)
}

// yield leaves out what was learned of incidents that somebody else, a person or
// another auditor, has ended since the pass began. That they are there is for the
// next pass to say. standing is what stands now.
func (l *ledger) yield(standing []schema.Incident) {
	now := make(map[name]schema.Incident, len(standing))
	for _, n := range standing {
		now[nameOf(&n)] = n
	}
	l.notes = slices.DeleteFunc(l.notes, func(n schema.Incident) bool {
		old, stands := now[nameOf(&n)]
		return n.OpenedAtMs < l.nowMs && (!stands || old.ClosedAtMs != 0)
	})
}

// ofKind returns the open incidents of a kind.
func (l *ledger) ofKind(kind string) []schema.Incident {
	var list []schema.Incident
	for _, n := range l.standing {
		if n.Kind == kind && n.ClosedAtMs == 0 {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b schema.Incident) int { return cmpName(nameOf(&a), nameOf(&b)) })
	return list
}

// exactly says that these are all incidents of a kind: the others have ended.
func (l *ledger) exactly(kind string, list []schema.Incident, why string) {
	there := map[name]bool{}
	for i := range list {
		there[nameOf(&list[i])] = true
	}
	for _, n := range l.ofKind(kind) {
		if !there[nameOf(&n)] && n.Key != "more" {
			l.ended(n, why)
		}
	}
	for _, n := range list {
		l.found(n, 0)
	}
	if more, ok := l.standing[name{"", kind, "more"}]; ok && more.ClosedAtMs == 0 && l.open[kind] <= maxOpen {
		l.ended(more, "")
	}
}

func cmpName(a, b name) int {
	return slices.Compare([]string{a.tenant, a.kind, a.key}, []string{b.tenant, b.kind, b.key})
}
