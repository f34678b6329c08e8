package report

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// ExplainLease is a state of an instance's lease that overlaps the span, and the
// event that began it. Held says whether the state allocates time. Attributes are
// those in force, whichever event gave them. To is nil while no event has ended
// the state.
type ExplainLease struct {
	From           string            `json:"from"`
	To             *string           `json:"to"`
	Instance       string            `json:"instance"`
	State          string            `json:"state"`
	Held           bool              `json:"held"`
	Gpus           int64             `json:"gpus"`
	Project        string            `json:"project"`
	Platform       string            `json:"platform"`
	Region         string            `json:"region"`
	Model          string            `json:"model"`
	Labels         map[string]string `json:"labels"`
	ClippedStart   string            `json:"clipped_start"`
	ClippedEnd     string            `json:"clipped_end"` // the span's end, or the instant asked at
	ClippedMs      int64             `json:"clipped_ms"`
	Source         string            `json:"source"`
	ID             string            `json:"id"`
	Payload        string            `json:"payload_hash"`
	Stream         string            `json:"stream"`
	StreamSequence uint64            `json:"stream_sequence"`
	Place          uint32            `json:"place"`
	StoredAt       string            `json:"stored_at"`
}

func (s *Service) explainLeases(ctx context.Context, e *Explanation) error {
	req := &e.request
	list, err := s.Store.Leases(ctx, schema.EventQuery{Tenant: req.Tenant, FromMs: req.FromMs, ToMs: req.ToMs, Filter: storedFilter(req.Filter), Projects: req.Projects, AsOfMs: req.AsOfMs})
	if err != nil {
		return fmt.Errorf("explain: leases: %w", err)
	}
	list = slices.DeleteFunc(list, func(l schema.LeaseSegment) bool { return !req.keepsPlan(l.Plan) })
	if len(list) > MaxPage {
		list, e.MoreLeases = list[:MaxPage], len(list)-MaxPage
	}
	for i := range list {
		line, err := req.leaseItem(&list[i])
		if err != nil {
			return err
		}
		e.Leases = append(e.Leases, *line)
	}
	return nil
}

// leaseItem shows a state of a lease.
func (r *Request) leaseItem(l *schema.LeaseSegment) (*ExplainLease, error) {
	start := max(l.FromMs, r.FromMs)
	end := max(min(l.ToMs, r.ToMs, r.NowMs, r.asOf()), start)
	line := &ExplainLease{
		From: instantIn(utc, l.FromMs), Instance: l.Instance, State: l.State, Held: l.Held(), Gpus: l.Gpus,
		Project: l.Project, Platform: l.Platform, Region: l.Region, Model: l.Model, Labels: map[string]string{},
		ClippedStart: instantIn(utc, start), ClippedEnd: instantIn(utc, end), ClippedMs: end - start,
		Source: l.Source, ID: l.ID, Payload: hex.EncodeToString(l.Payload[:]),
		Stream: l.Stream, StreamSequence: l.StreamSequence, Place: l.Place, StoredAt: time.Unix(0, l.StoredAtNs).UTC().Format(time.RFC3339Nano),
	}
	if l.ToMs != schema.LeaseOpen {
		line.To = orNil(instantIn(utc, l.ToMs))
	}
	if l.Labels != "" {
		if err := json.Unmarshal([]byte(l.Labels), &line.Labels); err != nil {
			return nil, fmt.Errorf("labels of lease event %s/%s: %w", l.Source, l.ID, err)
		}
	}
	return line, nil
}

func (e *Explanation) tableLeases(b *strings.Builder) {
	if len(e.Leases) == 0 {
		return
	}
	lines := [][]string{{"lease event", "instance", "state", "holds", "gpus", "from", "to", "in the span", "stream", "stored at"}}
	for i := range e.Leases {
		l := &e.Leases[i]
		to, holds := "open", "no"
		if l.To != nil {
			to = *l.To
		}
		if l.Held {
			holds = "yes"
		}
		lines = append(lines, []string{
			l.Source + " " + l.ID, l.Instance, l.State, holds, strconv.FormatInt(l.Gpus, 10), l.From, to, Duration(l.ClippedMs),
			fmt.Sprintf("%s/%d/%d", l.Stream, l.StreamSequence, l.Place), l.StoredAt,
		})
	}
	b.WriteByte('\n')
	align(b, 4, lines)
	if e.MoreLeases > 0 {
		fmt.Fprintf(b, "and %d more\n", e.MoreLeases)
	}
}
