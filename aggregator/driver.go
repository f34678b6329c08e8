package aggregator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpumeter/gpumeter/schema"
)

// Store is what the driver needs of storage. Everything it writes may be written
// twice, or late by a driver that was stopped and resumed: marks are only
// cleared by their own id and amounts carry a version.
type Store interface {
	// Marks returns the marks of a grain that are to do, by tenant and window.
	Marks(ctx context.Context, grain string, limit int) ([]schema.Mark, error)
	// UnitEvents visits the units that the marks name, each with all its stored
	// events that overlap a marked minute, and with what is stored elsewhere about
	// any of their identities. The marks are of one tenant and grain.
	UnitEvents(ctx context.Context, marks []schema.Mark, visit func([]schema.StoredEvent, *schema.Settlement) error) error
	// Affected returns the copies of all identities on which the corrections bear
	// that marks of GrainIdentity name. The marks are of one tenant.
	Affected(ctx context.Context, marks []schema.Mark) ([]schema.Copy, error)
	WriteMarks(ctx context.Context, marks []schema.Mark) error
	PutMinutes(ctx context.Context, tenant string, cells []schema.Cell) error
	// MarkHours marks the hours of minute marks under one new id.
	MarkHours(ctx context.Context, marks []schema.Mark, id uint64, nowMs int64) error
	// CoarseSpans returns the spans of hours whose minutes need not be kept, in order.
	CoarseSpans(ctx context.Context, tenant string, fromMs, toMs int64) ([]schema.Interval, error)
	// PutHours sums up the minutes of marked hours.
	PutHours(ctx context.Context, marks []schema.Mark) error
	ClearMarks(ctx context.Context, marks []schema.Mark) error
}

// Options configure a Driver.
type Options struct {
	Store Store
	// Every is the time between two looks for marks: the debounce of minutes.
	// Default 500 ms.
	Every time.Duration
	// HourEvery is how long an hour's mark rests before the hour is summed up.
	// Until then reports add up its minutes. Default 60 s.
	HourEvery time.Duration
	// Threshold is the activity threshold in millionths. Default
	// DefaultThreshold.
	Threshold int64
	Now       func() time.Time
	Logger    *slog.Logger
	// At is called at each named point of a pass; tests stop the process there.
	At func(point string)
}

// Bounds of one recomputation, so that memory is bounded whatever the backlog.
const (
	maxMarks      = 20_000 // marks read at once
	maxChunkUnits = 60_000 // units of the marks of one chunk
	maxChunkMarks = 3_000
	maxChunkMs    = 24 * schema.HourMs // span of a chunk of more than a few units
	maxCells      = 300_000            // cells held before they are written
	fewUnits      = 5_000
)

// Driver recomputes windows that were touched. Any number of drivers may run on
// one database: they do some work twice and agree on the result.
type Driver struct {
	o Options

	mu     sync.Mutex
	status Status
}

// Status is how far the driver is.
type Status struct {
	Pending int       // marks that the last pass saw and left, minutes and hours
	Last    time.Time // end of the last pass without an error
	Err     error     // of the last pass
	Minutes int64     // cells of minutes written since the start
	Windows int64     // minute marks done since the start
}

// NewDriver checks the options and returns a driver.
func NewDriver(o Options) (*Driver, error) {
	if o.Store == nil {
		return nil, errors.New("aggregator: no store")
	}
	if o.Every == 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.HourEvery == 0 {
		o.HourEvery = time.Minute
	}
	if o.Threshold == 0 {
		o.Threshold = DefaultThreshold
	}
	if o.Every < 0 || o.HourEvery < 0 || o.Threshold < 0 || o.Threshold > schema.UtilizationOne {
		return nil, fmt.Errorf("aggregator: intervals %v and %v may not be negative, and the threshold %d is in millionths", o.Every, o.HourEvery, o.Threshold)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.At == nil {
		o.At = func(string) {}
	}
	return &Driver{o: o}, nil
}

// Run recomputes until the context ends. A failed pass is tried again: its marks
// are still there.
func (d *Driver) Run(ctx context.Context) error {
	for {
		begin := time.Now()
		more, err := d.Pass(ctx, false)
		if err != nil && ctx.Err() == nil {
			d.o.Logger.Warn("recompute failed, its marks stay and it is tried again", "err", err)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		// As long again as the pass took: under load more is then done at once,
		// and recomputing never takes more than half of the time.
		case <-time.After(max(d.o.Every, time.Since(begin))):
		}
	}
}

// Drain makes passes until nothing is marked, hours included.
func (d *Driver) Drain(ctx context.Context) error {
	for {
		more, err := d.Pass(ctx, true)
		if err != nil {
			return err
		}
		if !more {
			return nil
		}
	}
}

// Status returns how far the driver is.
func (d *Driver) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// Pass recomputes what is marked, once: minutes first, then the hours that are
// due (all of them when force is set). It reports whether there may be more.
func (d *Driver) Pass(ctx context.Context, force bool) (more bool, err error) {
	pending := 0
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.status.Err, d.status.Pending = err, pending
		if err == nil {
			d.status.Last = d.o.Now()
		}
	}()
	// Each grain may leave marks for the ones after it.
	identities, err := d.identities(ctx)
	if err != nil {
		return false, err
	}
	marked := identities
	for _, grain := range [...]string{schema.GrainMinute, schema.GrainCopy} {
		n, err := d.grain(ctx, grain)
		if err != nil {
			return false, err
		}
		more = more || n == maxMarks
		marked += n
	}
	hours, err := d.o.Store.Marks(ctx, schema.GrainHour, maxMarks)
	if err != nil {
		return false, err
	}
	pending = len(hours)
	due := d.due(hours, force)
	for _, chunk := range chunks(due) {
		d.o.At("before-hours")
		if err := d.o.Store.PutHours(ctx, chunk); err != nil {
			return false, err
		}
		d.o.At("hours-put")
		if err := d.o.Store.ClearMarks(ctx, chunk); err != nil {
			return false, err
		}
	}
	pending -= len(due)
	return more || identities == maxMarks || len(due) > 0 && len(hours) == maxMarks || force && marked+len(hours) > 0, nil
}

// grain recomputes the minutes that marks of a grain name, and returns how many
// there were.
func (d *Driver) grain(ctx context.Context, grain string) (int, error) {
	marks, err := d.o.Store.Marks(ctx, grain, maxMarks)
	if err != nil {
		return 0, err
	}
	// Two at a time: one is computed here while the other is read or written by
	// the database. Chunks have no window in common.
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for _, chunk := range chunks(marks) {
		g.Go(func() error { return d.minutes(within, chunk) })
	}
	return len(marks), g.Wait()
}

// minutes recomputes the minutes of one chunk. The order matters: the marks stay
// until the amounts and the marks of their hours are on disk.
func (d *Driver) minutes(ctx context.Context, marks []schema.Mark) error {
	all, err := d.whole(ctx, marks)
	if err != nil {
		return err
	}
	windows, written := windowsOf(all), 0
	units := 0
	for _, m := range marks {
		units += m.Count
	}
	cells := make([]schema.Cell, 0, units)
	c, places := computation{threshold: d.o.Threshold}, elsewhere{}
	d.o.At("before-recompute")
	err = d.o.Store.UnitEvents(ctx, all, func(events []schema.StoredEvent, facts *schema.Settlement) error {
		if len(cells) > maxCells {
			if err := d.o.Store.PutMinutes(ctx, marks[0].Tenant, cells); err != nil {
				return err
			}
			written, cells = written+len(cells), cells[:0]
		}
		c.settle(events, facts)
		here := touched(windows, events)
		for i, w := range here {
			cells = c.window(w, i+1, cells)
		}
		// What is computed because of something elsewhere has told those places
		// already, or they this one; else two places would go on marking each other.
		if marks[0].Grain != schema.GrainCopy {
			places.add(c.contradicted(nil), events[0].Unit, here)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.o.At("mid-recompute")
	if err := d.o.Store.PutMinutes(ctx, marks[0].Tenant, cells); err != nil {
		return err
	}
	if err := d.o.Store.MarkHours(ctx, marks, rand.Uint64(), d.o.Now().UnixMilli()); err != nil {
		return err
	}
	if err := d.mark(ctx, marks[0].Tenant, places); err != nil {
		return err
	}
	d.o.At("recompute-before-clear")
	if err := d.o.Store.ClearMarks(ctx, marks); err != nil {
		return err
	}
	d.mu.Lock()
	d.status.Minutes += int64(written + len(cells))
	d.status.Windows += int64(len(marks))
	d.mu.Unlock()
	return nil
}

// whole adds to marks those of all minutes of the hours that have no minutes yet and
// that a mark touches: such an hour is summed up from its minutes from now on.
func (d *Driver) whole(ctx context.Context, marks []schema.Mark) ([]schema.Mark, error) {
	coarse, err := d.o.Store.CoarseSpans(ctx, marks[0].Tenant, marks[0].WindowMs, marks[len(marks)-1].WindowMs+1)
	if err != nil || len(coarse) == 0 {
		return marks, err
	}
	all, last := slices.Clone(marks), int64(-1)
	for _, m := range marks {
		hour := schema.Floor(m.WindowMs, schema.HourMs)
		if hour == last || !slices.ContainsFunc(coarse, func(i schema.Interval) bool { return i.FromMs <= hour && hour < i.ToMs }) {
			continue
		}
		last = hour
		for at := hour; at < hour+schema.HourMs; at += schema.MinuteMs {
			minute := m
			minute.WindowMs = at
			all = append(all, minute)
		}
	}
	slices.SortStableFunc(all, func(a, b schema.Mark) int { return cmp.Compare(a.WindowMs, b.WindowMs) })
	return all, nil
}

// due returns the hour marks that have rested long enough, together with the
// younger marks of the same hours: they are done by the same sum.
func (d *Driver) due(marks []schema.Mark, force bool) []schema.Mark {
	if force {
		return marks
	}
	type hour struct {
		tenant string
		window int64
	}
	before := d.o.Now().Add(-d.o.HourEvery).UnixMilli()
	ripe := map[hour]bool{}
	for _, m := range marks {
		if m.MarkedAtMs <= before {
			ripe[hour{m.Tenant, m.WindowMs}] = true
		}
	}
	var due []schema.Mark
	for _, m := range marks {
		if ripe[hour{m.Tenant, m.WindowMs}] {
			due = append(due, m)
		}
	}
	return due
}

// chunks cuts marks, which are ordered by tenant and window, into parts that are
// recomputed at once. Marks of one window stay together, so that no window is
// computed twice in a pass.
func chunks(marks []schema.Mark) [][]schema.Mark {
	var parts [][]schema.Mark
	from, units := 0, 0
	for i := range marks {
		m := &marks[i]
		if i > from && (m.Tenant != marks[from].Tenant || m.WindowMs != marks[i-1].WindowMs &&
			(units+m.Count > maxChunkUnits || i-from >= maxChunkMarks || units > fewUnits && m.WindowMs-marks[from].WindowMs > maxChunkMs)) {
			parts, from, units = append(parts, marks[from:i]), i, 0
		}
		units += m.Count
	}
	if from < len(marks) {
		parts = append(parts, marks[from:])
	}
	return parts
}

func windowsOf(marks []schema.Mark) []int64 {
	var windows []int64
	for _, m := range marks {
		if n := len(windows); n == 0 || windows[n-1] != m.WindowMs {
			windows = append(windows, m.WindowMs)
		}
	}
	return windows
}

// touched returns the minutes among windows that any of the events overlaps.
func touched(windows []int64, events []schema.StoredEvent) []Window {
	from, to := events[0].StartMs, events[0].EndMs
	for i := range events {
		from, to = min(from, events[i].StartMs), max(to, events[i].EndMs)
	}
	first, _ := slices.BinarySearch(windows, schema.Floor(from, schema.MinuteMs))
	var list []Window
	for _, w := range windows[first:] {
		if w >= to {
			break
		}
		list = append(list, Window{w, w + schema.MinuteMs})
	}
	return list
}
