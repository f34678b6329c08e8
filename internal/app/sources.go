package app

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/gpumeter/gpumeter/internal/gpu"
	"github.com/gpumeter/gpumeter/producer"
	"github.com/gpumeter/gpumeter/schema"
)

// buildProducers makes one producer for each exporter and each simulated node,
// every one with a spool of its own.
func (a *app) buildProducers() error {
	if err := os.MkdirAll(a.o.path("spool"), 0o755); err != nil {
		return err
	}
	for i, u := range a.o.ScrapeURLs {
		name := a.o.SourceName
		if i > 0 {
			name += "-" + strconv.Itoa(i+1)
		}
		s, err := gpu.NewScrape(gpu.ScrapeOptions{URL: u, Node: a.o.Node, Instance: a.o.Instance, Project: a.o.Project})
		if err != nil {
			return err
		}
		p, err := a.producer(name, s, producer.Options{Platform: a.o.Platform, Region: a.o.Region, Node: a.o.Node})
		if err != nil {
			return err
		}
		a.producers = append(a.producers, p)
	}
	if a.o.Simulate == 0 {
		return nil
	}
	sim, err := gpu.NewSimulation(gpu.SimOptions{Nodes: a.o.Simulate, Seed: a.o.SimulateSeed, Clock: a.o.Clock.Now})
	if err != nil {
		return err
	}
	for _, n := range sim.Nodes() {
		p, err := a.producer("sim/"+n.Name, n, producer.Options{Platform: n.Platform, Region: n.Region, Node: n.Name})
		if err != nil {
			return err
		}
		if a.o.SimulateHistory > 0 {
			a.histories = append(a.histories, p)
		} else {
			a.producers = append(a.producers, p)
		}
	}
	return nil
}

func (a *app) producer(name string, source producer.Source, o producer.Options) (*producer.Producer, error) {
	spool, err := producer.OpenSpool(producer.SpoolOptions{Path: a.o.path("spool", schema.Token(name)+".db"), MaxBytes: a.o.SpoolBytes})
	if err != nil {
		return nil, fmt.Errorf("spool of %s: %w", name, err)
	}
	a.onClose(func() { spool.Close() })
	a.spools = append(a.spools, spool)
	o.Tenant, o.SourceName, o.Source, o.Stream, o.Spool = a.o.Tenant, name, source, a.publisher, spool
	o.SampleEvery, o.EmitEvery, o.Threshold = a.o.SampleEvery, a.o.EmitEvery, schema.Some(a.o.Threshold)
	o.OwnerHold = a.o.OwnerHold
	o.Jitter, o.Logger = rand.Float64, a.o.Logger.With("part", "agent")
	o.Clock = agentClock{a.o.Clock}
	o.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"source": name}, a.registry)
	return producer.New(o)
}

// agentClock lets an agent live in the program's time. Waiting is real.
type agentClock struct{ Clock }

func (agentClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// backfill gives the simulated nodes their past, a few at a time, and then runs
// them like any other source.
func (a *app) backfill(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	slots := make(chan struct{}, 2)
	for _, p := range a.histories {
		g.Go(func() error {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			err := p.Backfill(ctx, a.o.Clock.Now().Add(-a.o.SimulateHistory), time.Time{})
			<-slots
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("simulated history: %w", err)
			}
			return p.Run(ctx)
		})
	}
	return g.Wait()
}
