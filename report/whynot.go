package report

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// Kinds of [ExplainWhy].
const (
	WhyConflict  = "conflict"  // another content of the identity was stored first
	WhyCorrected = "corrected" // a correction took the identity out
	WhyVoid      = "void"      // it is the replacement of a correction that does not take effect
)

// ExplainWhy says why an event does not count.
type ExplainWhy struct {
	Kind string `json:"kind"`
	// First is the copy that was stored first; only of a conflict.
	First *ExplainCopy `json:"first,omitempty"`
	// Correction is the one that took the event out, or that the event is a void
	// replacement of.
	Correction *ExplainCorrection `json:"correction,omitempty"`
}

// ExplainCopy is another content of an identity and where it lies.
type ExplainCopy struct {
	Unit           string `json:"unit"`
	Start          string `json:"start"`
	End            string `json:"end"`
	Payload        string `json:"payload_hash"`
	Stream         string `json:"stream"`
	StreamSequence uint64 `json:"stream_sequence"`
	Place          uint32 `json:"place"`
	StoredAt       string `json:"stored_at"`
}

// ExplainIdentity names an event.
type ExplainIdentity struct {
	Source string `json:"source"`
	ID     string `json:"id"`
}

// ExplainCorrection is a stored correction: who took back what, when and why.
type ExplainCorrection struct {
	Source         string           `json:"source"`
	ID             string           `json:"id"`
	Corrects       ExplainIdentity  `json:"corrects"`
	Action         string           `json:"action"`
	Replacement    *ExplainIdentity `json:"replacement"` // nil when it only takes back
	Actor          string           `json:"actor"`
	Reason         string           `json:"reason"`
	Payload        string           `json:"payload_hash"`
	Stream         string           `json:"stream"`
	StreamSequence uint64           `json:"stream_sequence"`
	Place          uint32           `json:"place"`
	StoredAt       string           `json:"stored_at"`
}

func storedText(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

func correctionOf(c *schema.StoredCorrection) *ExplainCorrection {
	if c == nil {
		return nil
	}
	e := &ExplainCorrection{
		Source: c.By.Source, ID: c.By.ID, Corrects: ExplainIdentity(c.Target), Action: c.Action, Actor: c.Actor, Reason: c.Reason,
		Payload: hex.EncodeToString(c.Payload[:]), Stream: c.Stream, StreamSequence: c.StreamSequence, Place: c.Place, StoredAt: storedText(c.StoredAtNs),
	}
	if c.Replacement != (schema.Identity{}) {
		e.Replacement = (*ExplainIdentity)(&c.Replacement)
	}
	return e
}

func whyNot(ev *schema.StoredEvent) *ExplainWhy {
	s := ev.Settled
	switch {
	case s == nil:
	case s.By != nil:
		return &ExplainWhy{Kind: WhyCorrected, Correction: correctionOf(s.By)}
	case s.Void != nil:
		return &ExplainWhy{Kind: WhyVoid, Correction: correctionOf(s.Void)}
	case s.First != nil:
		c := s.First
		return &ExplainWhy{Kind: WhyConflict, First: &ExplainCopy{
			Unit: c.Unit, Start: instantIn(utc, c.StartMs), End: instantIn(utc, c.EndMs), Payload: hex.EncodeToString(c.Payload[:]),
			Stream: c.Stream, StreamSequence: c.StreamSequence, Place: c.Place, StoredAt: storedText(c.StoredAtNs),
		}}
	}
	return &ExplainWhy{Kind: WhyConflict}
}

func (w *ExplainWhy) kind() string {
	if w == nil {
		return ""
	}
	return w.Kind
}

func (w *ExplainWhy) text() string {
	switch {
	case w.Correction != nil && w.Kind == WhyCorrected:
		return fmt.Sprintf("corrected by %s %s (%s)", w.Correction.Source, w.Correction.ID, w.Correction.Actor)
	case w.Correction != nil:
		return fmt.Sprintf("replacement of %s %s, which does not take effect", w.Correction.Source, w.Correction.ID)
	case w.First != nil:
		return fmt.Sprintf("conflict with %s/%d/%d", w.First.Stream, w.First.StreamSequence, w.First.Place)
	}
	return w.Kind
}

// correctionsOf returns the corrections that bear on any of the events, each once.
func correctionsOf(events []schema.StoredEvent) []ExplainCorrection {
	var all []*schema.StoredCorrection
	for i := range events {
		if s := events[i].Settled; s != nil {
			all = append(all, s.Corrections...)
		}
	}
	slices.SortFunc(all, func(a, b *schema.StoredCorrection) int { return a.Order().Compare(b.Order()) })
	list := []ExplainCorrection{}
	for i, c := range all {
		if i == 0 || all[i-1].By != c.By || all[i-1].Payload != c.Payload {
			list = append(list, *correctionOf(c))
		}
	}
	return list
}

func tableCorrections(b *strings.Builder, list []ExplainCorrection) {
	if len(list) == 0 {
		return
	}
	lines := [][]string{{"correction", "action", "of", "by", "counts instead", "by whom", "reason", "stored at"}}
	for i := range list {
		c := &list[i]
		instead := "nothing"
		if c.Replacement != nil {
			instead = c.Replacement.Source + " " + c.Replacement.ID
		}
		lines = append(lines, []string{c.ID, c.Action, c.Corrects.Source + " " + c.Corrects.ID, c.Source, instead, c.Actor, c.Reason, c.StoredAt})
	}
	b.WriteByte('\n')
	align(b, 8, lines)
}

// conflictEntry is a conflict as JSON shows it.
type conflictEntry struct {
	Source      string               `json:"source"`
	ID          string               `json:"id"`
	Contents    []any                `json:"contents"` // each a conflictContent or a conflictLease
	Corrections []conflictCorrection `json:"corrections"`
}

type conflictContent struct {
	Counted bool `json:"counted"`
	ExplainCopy
	Instance    string            `json:"instance"`
	Project     string            `json:"project"`
	Node        string            `json:"node"`
	Platform    string            `json:"platform"`
	Region      string            `json:"region"`
	Model       string            `json:"model"`
	Labels      map[string]string `json:"labels"`
	Utilization *string           `json:"utilization"`
	ActiveMs    *int64            `json:"active_ms"`
	IdleMs      *int64            `json:"idle_ms"`
	EnergyMj    *int64            `json:"energy_mj"`
	Share       *string           `json:"share"`
}

// conflictLease is a content of a lease event.
type conflictLease struct {
	Counted        bool              `json:"counted"`
	Instance       string            `json:"instance"`
	At             string            `json:"at"`
	State          string            `json:"state"`
	Gpus           *int64            `json:"gpus"` // nil like empty texts below: as the event before says
	Project        string            `json:"project"`
	Platform       string            `json:"platform"`
	Region         string            `json:"region"`
	Model          string            `json:"model"`
	Labels         map[string]string `json:"labels"`
	Payload        string            `json:"payload_hash"`
	Stream         string            `json:"stream"`
	StreamSequence uint64            `json:"stream_sequence"`
	Place          uint32            `json:"place"`
	StoredAt       string            `json:"stored_at"`
}

type conflictCorrection struct {
	Effective bool `json:"effective"`
	ExplainCorrection
}

func (r *Report) conflictsJSON() []byte {
	entries := make([]conflictEntry, len(r.Conflicts))
	for i := range r.Conflicts {
		entries[i] = entryOf(&r.Conflicts[i])
	}
	b, err := json.Marshal(entries)
	if err != nil {
		panic(err) // texts, integers and maps of texts can always be written
	}
	return b
}

func entryOf(c *schema.Conflict) conflictEntry {
	e := conflictEntry{Source: c.Source, ID: c.ID, Contents: []any{}, Corrections: []conflictCorrection{}}
	for i := range c.Contents {
		v := &c.Contents[i]
		content := conflictContent{
			Counted: v.Counted, ExplainCopy: ExplainCopy{
				Unit: v.Unit, Start: instantIn(utc, v.StartMs), End: instantIn(utc, v.EndMs), Payload: hex.EncodeToString(v.Payload[:]),
				Stream: v.Stream, StreamSequence: v.StreamSequence, Place: v.Place, StoredAt: storedText(v.StoredAtNs),
			},
			Instance: v.Instance, Project: v.Project, Node: v.Node, Platform: v.Platform, Region: v.Region, Model: v.Model,
			Utilization: orNil(ratioText(v.Utilization)), ActiveMs: known(v.ActiveMs), IdleMs: known(v.IdleMs), EnergyMj: known(v.EnergyMj),
		}
		content.Labels, _ = labelsOf(v)
		if v.Share.Known {
			content.Share = orNil(schema.FormatShare(v.Share.Value))
		}
		e.Contents = append(e.Contents, content)
	}
	for i := range c.Leases {
		v := &c.Leases[i]
		content := conflictLease{
			Counted: v.Counted, Instance: v.Instance, At: instantIn(utc, v.AtMs), State: v.State, Gpus: known(v.Gpus),
			Project: v.Project, Platform: v.Platform, Region: v.Region, Model: v.Model, Labels: map[string]string{},
			Payload: hex.EncodeToString(v.Payload[:]), Stream: v.Stream, StreamSequence: v.StreamSequence, Place: v.Place, StoredAt: storedText(v.StoredAtNs),
		}
		for _, l := range v.Labels {
			content.Labels[l.Key] = l.Value
		}
		e.Contents = append(e.Contents, content)
	}
	for i, v := range c.Corrections {
		e.Corrections = append(e.Corrections, conflictCorrection{i == 0 && c.Effective, *correctionOf(v)})
	}
	return e
}

func known(m schema.Maybe) *int64 {
	if !m.Known {
		return nil
	}
	return &m.Value
}

// tableConflicts shows every conflict as the contents and corrections that it is
// made of.
func (r *Report) tableConflicts(b *strings.Builder) {
	if len(r.Conflicts) == 0 {
		return
	}
	lines := [][]string{{"event", "what", "unit", "instance", "project", "start", "end", "activity", "stream", "stored at"}}
	for i := range r.Conflicts {
		c := &r.Conflicts[i]
		name := c.Source + " " + c.ID
		counts := func(counted bool) string {
			if counted {
				return "counted"
			}
			return "set aside"
		}
		for k := range c.Contents {
			v := &c.Contents[k]
			lines = append(lines, []string{
				name, counts(v.Counted), v.Unit, v.Instance, v.Project, instantIn(utc, v.StartMs), instantIn(utc, v.EndMs), activityText(v),
				fmt.Sprintf("%s/%d/%d", v.Stream, v.StreamSequence, v.Place), storedText(v.StoredAtNs),
			})
			name = ""
		}
		for k := range c.Leases {
			v := &c.Leases[k]
			lines = append(lines, []string{
				name, counts(v.Counted), "", v.Instance, v.Project, instantIn(utc, v.AtMs), "", leaseText(v),
				fmt.Sprintf("%s/%d/%d", v.Stream, v.StreamSequence, v.Place), storedText(v.StoredAtNs),
			})
			name = ""
		}
		for k, v := range c.Corrections {
			what := "correction set aside"
			if k == 0 && c.Effective {
				what = "corrected"
			}
			lines = append(lines, []string{
				name, fmt.Sprintf("%s: %s by %s, %s %s", what, v.Action, v.Actor, v.By.Source, v.By.ID), "", "", "", "", "", "",
				fmt.Sprintf("%s/%d/%d", v.Stream, v.StreamSequence, v.Place), storedText(v.StoredAtNs),
			})
			name = ""
		}
	}
	b.WriteByte('\n')
	align(b, 10, lines)
	if more := r.Quality.Conflicts - int64(len(r.Conflicts)); more > 0 {
		fmt.Fprintf(b, "and %d more\n", more)
	}
}

func activityText(v *schema.StoredEvent) string {
	switch {
	case v.ActiveMs.Known || v.IdleMs.Known:
		return fmt.Sprintf("active %s, idle %s", Duration(v.ActiveMs.Value), Duration(v.IdleMs.Value))
	case v.Utilization.Known:
		return ratioText(v.Utilization)
	}
	return unknown
}

// leaseText is what a lease event says of its instance.
func leaseText(l *schema.LeaseContent) string {
	if !l.Gpus.Known {
		return l.State
	}
	return fmt.Sprintf("%s, %d GPUs", l.State, l.Gpus.Value)
}
