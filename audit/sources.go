package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// Bounds of what is kept of one source. A source that leaves out every other
// number would fill memory; beyond the bounds more numbers count as missing than
// are, never fewer.
const (
	maxRuns     = 2_000
	maxGapsEach = 50 // incidents of one source; the last one covers the rest
)

const (
	// A source counts as one that reports regularly when it has told of so many
	// ends of intervals soon after they ended. A file that is ingested later, or
	// once, does not.
	regularEnds = 3
	// A source that was quiet for so long was taken out of service.
	retiredMs = 7 * 24 * schema.HourMs
)

// learn adds proofs to those of the same source, stream and epoch.
func learn(known, more []schema.SourceProof) []schema.SourceProof {
	for i := range more {
		m := &more[i]
		at, ok := slices.BinarySearchFunc(known, m, func(a schema.SourceProof, b *schema.SourceProof) int { return compareProofs(&a, b) })
		if !ok {
			copied := *m
			copied.Runs = joinRuns(m.Runs, nil)
			known = slices.Insert(known, at, copied)
			continue
		}
		k := &known[at]
		k.Runs = joinRuns(k.Runs, m.Runs)
		k.LiveEnds = min(k.LiveEnds+m.LiveEnds, 1000)
		if m.IntervalMs > 0 {
			k.IntervalMs = m.IntervalMs // as it reports now
		}
		k.HeardMs, k.Verified = max(k.HeardMs, m.HeardMs), max(k.Verified, m.Verified)
	}
	return known
}

func compareProofs(a, b *schema.SourceProof) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Stream, b.Stream))
}

// joinRuns makes one list of runs in order that neither touch nor overlap.
func joinRuns(a, b []schema.NumberRun) []schema.NumberRun {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b schema.NumberRun) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.FirstStoredMs, b.FirstStoredMs))
	})
	var list []schema.NumberRun
	for _, r := range all {
		n := len(list)
		if n == 0 || r.First > list[n-1].Last+1 {
			list = append(list, r)
			continue
		}
		list[n-1].FirstStoredMs = min(list[n-1].FirstStoredMs, r.FirstStoredMs)
		if r.Last > list[n-1].Last {
			list[n-1].Last, list[n-1].LastStartMs, list[n-1].LastEndMs = r.Last, r.LastStartMs, r.LastEndMs
		}
	}
	if len(list) > maxRuns {
		list = slices.Delete(list, 1, 1+len(list)-maxRuns)
	}
	return list
}

// gaps opens and ends the incidents of numbers that are missing, and of sources
// that are not heard. Both are functions of what sources sent, so all of a kind
// are found each time.
func (p *pass) gaps(context.Context) error {
	if !p.caughtUp {
		return nil
	}
	var missing, silent []schema.Incident
	for i := 0; i < len(p.sources); {
		s := p.sources[i]
		for i++; i < len(p.sources) && p.sources[i].Tenant == s.Tenant && p.sources[i].Source == s.Source; i++ {
			more := &p.sources[i] // the same source in a later epoch
			s.Runs = joinRuns(s.Runs, more.Runs)
			s.LiveEnds += more.LiveEnds
			if more.IntervalMs > 0 {
				s.IntervalMs = more.IntervalMs
			}
			s.HeardMs = max(s.HeardMs, more.HeardMs)
		}
		missing = append(missing, p.gapsOf(&s)...)
		if n, ok := p.silence(&s); ok {
			silent = append(silent, n)
		}
	}
	p.ledger.exactly(schema.IncidentSourceGap, missing, "the numbers arrived")
	p.silences(silent)
	return nil
}

// gapsOf returns the holes of a source that are older than the grace. The lost
// events lie somewhere between the start of the event before and the end of the
// event after: several units report the same minutes, so no narrower span is sure.
func (p *pass) gapsOf(s *schema.SourceProof) []schema.Incident {
	// A number is missing since the stream got any later one. What comes after that
	// from within a hole does not make the rest of the hole any younger.
	since := make([]int64, len(s.Runs))
	for i := len(s.Runs) - 1; i >= 0; i-- {
		since[i] = s.Runs[i].FirstStoredMs
		if i+1 < len(s.Runs) {
			since[i] = min(since[i], since[i+1])
		}
	}
	var list []schema.Incident
	for i := 1; i < len(s.Runs); i++ {
		before, after := &s.Runs[i-1], &s.Runs[i]
		if p.nowMs-since[i] <= p.o.Grace.Milliseconds() {
			continue
		}
		hole := [2]uint64{before.Last + 1, after.First - 1}
		n := schema.Incident{
			Tenant: s.Tenant, Kind: schema.IncidentSourceGap, Key: fmt.Sprintf("%s#%d", s.Source, hole[0]), Count: int64(hole[1] - hole[0] + 1),
			FromMs: min(before.LastStartMs, after.FirstStartMs), ToMs: max(before.LastEndMs, after.FirstEndMs),
			Detail: fmt.Sprintf("number %s of %s never arrived; look at the spool and the log of the source", rangeText(hole), s.Source),
		}
		if k := len(list); k == maxGapsEach {
			last := &list[k-1]
			last.FromMs, last.ToMs, last.Count = min(last.FromMs, n.FromMs), max(last.ToMs, n.ToMs), last.Count+n.Count
			last.Detail = fmt.Sprintf("%d numbers of %s up to %d never arrived; look at the spool and the log of the source", last.Count, s.Source, hole[1])
			continue
		}
		list = append(list, n)
	}
	return list
}

// silence says whether a source that reports regularly is not heard any more.
func (p *pass) silence(s *schema.SourceProof) (schema.Incident, bool) {
	limit := max(2*s.IntervalMs, p.o.SilentAfter.Milliseconds())
	if quiet := p.nowMs - s.HeardMs; s.LiveEnds < regularEnds || quiet <= limit || quiet > retiredMs {
		return schema.Incident{}, false
	}
	return schema.Incident{
		Tenant: s.Tenant, Kind: schema.IncidentSilent, Key: s.Source, FromMs: s.HeardMs, ToMs: schema.MaxTimeMs,
		Detail: fmt.Sprintf("%s reported every %d s and was last heard %s; look at the agent and its way to the stream, or close this with gpumeter audit close when it was taken out of service",
			s.Source, s.IntervalMs/1000, schema.FormatTime(s.HeardMs)),
	}, true
}

// silences opens and ends silences. Nobody is called silent while messages wait,
// or before there was time to be heard.
func (p *pass) silences(list []schema.Incident) {
	heard := map[name]bool{}
	for i := range list {
		heard[nameOf(&list[i])] = true
	}
	for _, n := range p.ledger.ofKind(schema.IncidentSilent) {
		if !heard[nameOf(&n)] {
			n.ToMs = p.nowMs
			p.ledger.ended(n, "it is heard again, or was quiet for 7 days")
		}
	}
	if p.state.Floor < p.state.Last || p.nowMs-p.o.Since.UnixMilli() <= p.o.SilentAfter.Milliseconds() {
		return
	}
	for _, n := range list {
		p.ledger.found(n, n.FromMs)
	}
}
