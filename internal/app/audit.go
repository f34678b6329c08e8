package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/audit"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/schema"
	"github.com/gpumeter/gpumeter/web"
)

// ErrIncidents says that the audit found something that is open.
var ErrIncidents = errors.New("there are open incidents")

// history lets the subscription know the stream again by what is stored of it.
type history struct {
	db  *clickhouse.DB
	now func() time.Time
}

// recent is how many messages before the last verified one are looked at first:
// the rows of single messages may have been merged into those of others.
const recent = 1000

// Newest implements jetstream.History.
func (h *history) Newest(ctx context.Context, stream string, epoch uint64) (sequence uint64, storedNs int64, err error) {
	proof, err := h.db.StreamProof(ctx, stream, epoch)
	if err != nil {
		return 0, 0, err
	}
	after := proof.Verified - min(proof.Verified, recent)
	sequence, storedNs, err = h.db.Newest(ctx, stream, epoch, after)
	if err == nil && sequence == 0 && after > 0 {
		return h.db.Newest(ctx, stream, epoch, 0)
	}
	return sequence, storedNs, err
}

// TailLost implements jetstream.History. Several processes may note the same loss.
func (h *history) TailLost(ctx context.Context, l jetstream.TailLoss) error {
	nowMs := h.now().UnixMilli()
	return h.db.NoteIncidents(ctx, nowMs, []schema.Incident{{
		Kind: schema.IncidentTailLost, Key: fmt.Sprintf("%s@%d", l.Stream, l.Epoch), Detail: l.Detail, Count: int64(l.Last), OpenedAtMs: nowMs,
	}})
}

// buildAuditor makes the auditor where there is a stream to audit.
func (a *app) buildAuditor() error {
	if a.o.AuditEvery == 0 {
		return nil
	}
	if a.nc == nil {
		a.o.Logger.Warn("completeness is not checked: no --nats given, and no running gpumeter in the data directory to take it from")
		return nil
	}
	auditor, err := a.newAuditor(a.o.Clock.Now())
	if err != nil {
		return err
	}
	a.auditor = auditor
	a.background = append(a.background, auditor.Run)
	return nil
}

func (a *app) newAuditor(since time.Time) (*audit.Auditor, error) {
	reader, err := jetstream.NewReader(a.nc, "", a.o.Clock)
	if err != nil {
		return nil, err
	}
	return audit.NewAuditor(audit.AuditorOptions{
		Stream: reader, Store: a.db, Publish: a.publisher.Publish, Compute: a.computeMinutes,
		Every: a.o.AuditEvery, Grace: a.o.GapGrace, SilentAfter: a.o.SilentAfter, Since: since,
		Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Now: a.o.Clock.Now, Log: a.o.Logger.With("part", "audit"),
	})
}

// computeMinutes computes the usage per minute of a span from its events.
func (a *app) computeMinutes(ctx context.Context, tenant string, fromMs, toMs int64) ([]schema.Cell, error) {
	var windows []aggregator.Window
	for at := fromMs; at < toMs; at += schema.MinuteMs {
		windows = append(windows, aggregator.Window{StartMs: at, EndMs: at + schema.MinuteMs})
	}
	var cells []schema.Cell
	err := a.db.RangeEvents(ctx, tenant, fromMs, toMs, 0, "", func(events []schema.StoredEvent, facts *schema.Settlement) error {
		cells = append(cells, aggregator.Compute(events, windows, a.o.Threshold, facts)...)
		return nil
	})
	return cells, err
}

// watchedIncidents is what this process knows of open incidents, whichever
// process audits.
type watchedIncidents struct {
	mu     sync.Mutex
	byKind map[string][]schema.Incident
	err    error
}

func (w *watchedIncidents) watch(ctx context.Context, db *clickhouse.DB, every time.Duration) error {
	for {
		list, err := db.OpenIncidents(ctx)
		w.mu.Lock()
		if w.err = err; err == nil {
			w.byKind = map[string][]schema.Incident{}
			for _, n := range list {
				w.byKind[n.Kind] = append(w.byKind[n.Kind], n)
			}
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// count returns how many incidents of a kind are open; NaN before the first look.
func (w *watchedIncidents) count(kind string) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKind == nil {
		return math.NaN()
	}
	return float64(len(w.byKind[kind]))
}

// unready are the kinds of incident that make the program unready: what it was
// given may be lost, or may not come in any more. A number that a source skipped
// and a conflict are shown, and do not get better by sending nobody here.
var unready = []string{schema.IncidentStreamHole, schema.IncidentTailLost, schema.IncidentStorage, schema.IncidentDerived, schema.IncidentSilent}

func (w *watchedIncidents) component() web.Component {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := web.Component{Name: "completeness", Ready: true, Detail: "no open incident"}
	switch {
	case w.err != nil:
		c.Ready, c.Detail = false, w.err.Error()
		return c
	case w.byKind == nil:
		c.Ready, c.Detail = false, "nobody has looked for incidents yet"
		return c
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(w.byKind)) {
		list := w.byKind[kind]
		parts = append(parts, fmt.Sprintf("%d %s (%s)", len(list), kind, list[0].Detail))
		c.Ready = c.Ready && !slices.Contains(unready, kind)
	}
	if len(parts) > 0 {
		c.Detail = strings.Join(parts, "; ")
	}
	return c
}

func (a *app) registerAuditMetrics() {
	gauge := func(name, help string, labels prometheus.Labels, f func() float64) {
		a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "gpumeter", Name: name, Help: help, ConstLabels: labels}, f))
	}
	if a.incidents != nil {
		for _, kind := range schema.IncidentKinds {
			gauge("open_incidents", "Incidents that make data incomplete or doubtful.", prometheus.Labels{"kind": kind}, func() float64 { return a.incidents.count(kind) })
		}
	}
	if a.auditor != nil {
		gauge("audit_verified_sequence", "Sequence of the stream up to which everything is proved to be stored.", nil, func() float64 { return float64(a.auditor.Status().Verified) })
		gauge("audit_last_pass_seconds", "When the last complete pass of the auditor ended, Unix seconds.", nil, func() float64 {
			if last := a.auditor.Status().LastPass; !last.IsZero() {
				return float64(last.Unix())
			}
			return 0
		})
	}
}

// AuditRun checks everything that the stream still has, and prints what is wrong.
// It returns ErrIncidents when anything is open.
func AuditRun(ctx context.Context, o Options) error {
	return withDB(ctx, o, func(a *app) error {
		if _, err := a.db.Migrate(ctx); err != nil {
			return err
		}
		if a.o.NATSURL == "" {
			if a.o.NATSURL = readEndpoints(o.Data).NATS; a.o.NATSURL == "" {
				return fmt.Errorf("no --nats given, and no running gpumeter in %s to take it from", o.Data)
			}
		}
		nc, err := jetstream.Connect(a.o.NATSURL, "gpumeter audit", a.o.Logger)
		if err != nil {
			return err
		}
		a.onClose(nc.Close)
		a.nc = nc
		if a.publisher, err = jetstream.NewPublisher(nc); err != nil {
			return err
		}
		auditor, err := a.newAuditor(time.Time{})
		if err != nil {
			return err
		}
		if err := auditor.Pass(ctx, true); err != nil {
			return err
		}
		if auditor.Suspects() > 0 { // a second look decides, after what is just being computed
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(2 * time.Second):
			}
			if err := auditor.Pass(ctx, false); err != nil {
				return err
			}
		}
		open, err := a.db.OpenIncidents(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.o.Out, "checked up to message %d, %d open incidents\n", auditor.Status().Verified, len(open))
		if len(open) == 0 {
			return nil
		}
		return errors.Join(ErrIncidents, printIncidents(a.o.Out, open))
	})
}

// AuditList prints the open incidents, and with past also those of the last 30
// days that have ended.
func AuditList(ctx context.Context, o Options, past bool) error {
	return withDB(ctx, o, func(a *app) error {
		list, err := a.db.OpenIncidents(ctx)
		if err == nil && past {
			var ended []schema.Incident
			ended, err = a.db.PastIncidents(ctx, a.o.Clock.Now().Add(-30*24*time.Hour).UnixMilli())
			list = append(list, ended...)
		}
		if err != nil {
			return err
		}
		if len(list) == 0 {
			_, err := fmt.Fprintln(a.o.Out, "no incidents")
			return err
		}
		return printIncidents(a.o.Out, list)
	})
}

func printIncidents(out io.Writer, list []schema.Incident) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "opened at\tclosed at\tkind\ttenant\tkey\tdetail")
	for i := range list {
		n := &list[i]
		closed := ""
		if n.ClosedAtMs != 0 {
			closed = schema.FormatTime(n.ClosedAtMs)
		}
		detail := n.Detail
		if n.ClosedBy != "" {
			detail += "; closed by " + n.ClosedBy
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%q\t%s\n", schema.FormatTime(n.OpenedAtMs), closed, n.Kind, visible(n.Tenant), n.Key, visible(detail))
	}
	return w.Flush()
}

// visible keeps names that others chose from moving the cursor or the columns.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// AuditClose closes an open incident by hand and prints it as it is listed from
// then on. It is not opened again, except for a source that was heard after that
// and is silent once more.
func AuditClose(ctx context.Context, o Options, kind, key, by string) error {
	return withDB(ctx, o, func(a *app) error {
		open, err := a.db.OpenIncidents(ctx)
		if err != nil {
			return err
		}
		nowMs := a.o.Clock.Now().UnixMilli()
		var closed []schema.Incident
		for _, n := range open {
			if n.Kind == kind && n.Key == key && (n.Tenant == "" || n.Tenant == a.o.Tenant) {
				n.ClosedAtMs, n.ClosedBy = nowMs, by
				closed = append(closed, n)
			}
		}
		if len(closed) == 0 {
			return fmt.Errorf("no open incident %s %q of tenant %s; gpumeter audit list shows all", kind, key, a.o.Tenant)
		}
		if err := a.db.NoteIncidents(ctx, nowMs, closed); err != nil {
			return err
		}
		return printIncidents(a.o.Out, closed)
	})
}
