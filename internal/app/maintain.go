package app

import (
	"context"
	"fmt"
	"time"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
)

// withDB opens the database of the options: the one named, else the one of the
// gpumeter that runs on the data directory, else the embedded one, started for
// as long as f runs.
func withDB(ctx context.Context, o Options, f func(*app) error) error {
	if err := o.fill(); err != nil {
		return err
	}
	a := &app{o: o}
	defer a.close()
	if a.o.ClickHouseDSN == "" {
		if known := readEndpoints(o.Data).ClickHouse; known != "" && answers(ctx, known) {
			a.o.ClickHouseDSN = known
		}
	}
	a.o.Roles = Roles{Engine: true, Aggregate: true}
	if err := a.startEngine(ctx, endpoints{}); err != nil {
		return err
	}
	db, err := clickhouse.Open(ctx, a.dsn)
	if err != nil {
		return err
	}
	a.db = db
	a.onClose(func() { db.Close() })
	return f(a)
}

// answers says whether a server is there. It creates nothing.
func answers(ctx context.Context, dsn string) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	db, err := clickhouse.Open(ctx, dsn)
	if err != nil {
		return false
	}
	defer db.Close()
	return db.Ping(ctx) == nil
}

// Migrate brings the database to the newest schema and prints what it applied.
func Migrate(ctx context.Context, o Options) error {
	return withDB(ctx, o, func(a *app) error {
		applied, err := a.db.Migrate(ctx)
		for _, name := range applied {
			fmt.Fprintln(a.o.Out, "applied", name)
		}
		if err == nil && len(applied) == 0 {
			fmt.Fprintln(a.o.Out, "the database has the newest schema already")
		}
		return err
	})
}

// Rebuild computes all usage anew from raw events. progress gets the days marked
// and then the marks done.
func Rebuild(ctx context.Context, o Options, progress func(what string, done, total int)) error {
	return withDB(ctx, o, func(a *app) error {
		if _, err := a.db.Migrate(ctx); err != nil {
			return err
		}
		begin := time.Now()
		if err := a.db.Rebuild(ctx, func(done, total int) { progress("marking days", done, total) }); err != nil {
			return fmt.Errorf("%w (interrupted before all windows were marked: run rebuild again, or the next start goes on)", err)
		}
		d, err := aggregator.NewDriver(aggregator.Options{Store: a.db, Threshold: a.o.Threshold, Now: a.o.Clock.Now, Logger: a.o.Logger})
		if err != nil {
			return err
		}
		total, _, err := a.db.CountMarks(ctx)
		if err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- d.Drain(ctx) }()
		for {
			select {
			case err := <-done:
				if err != nil {
					return fmt.Errorf("%w (what is not computed yet stays marked: run rebuild again, or the next start goes on)", err)
				}
				progress("computing windows", total, total)
				fmt.Fprintf(a.o.Out, "rebuilt %d windows in %s\n", d.Status().Windows, time.Since(begin).Round(time.Millisecond))
				return nil
			case <-time.After(200 * time.Millisecond):
				progress("computing windows", min(int(d.Status().Windows), total), total)
			}
		}
	})
}
