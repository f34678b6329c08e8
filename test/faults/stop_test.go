package faults_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// A consumer that is stopped in the middle of a batch for longer than the stream
// waits, so that another one gets its messages, and then goes on as if nothing
// had happened: what it stores and acknowledges late changes nothing.
func TestConsumerStopped(t *testing.T) {
	c := newCluster(t)
	c.aggregate(t, "")
	for day, tt := range []struct{ point, table string }{
		{"mid-insert", "raw_usage"},   // its rows come late, and marks and acks after them
		{"raw-before-dirty", "dirty"}, // its marks come late
		{"during-ack", ""},            // half of its acknowledgements come late
	} {
		t.Run(tt.point, func(t *testing.T) {
			l := newLoad(day)
			c.publishPart(t, l, 0)
			asOf := instant()
			zombie := c.consume(t, tt.point+":2")
			c.awaitHalted(t)
			must(t, zombie.Signal(syscall.SIGSTOP))
			c.letGo()

			other := c.consume(t, "")
			c.publishPart(t, l, 1)
			c.settled(t, false)
			c.checkAll(t, l, 2, asOf)
			// It works alone from here on, and begins with its old batch.
			must(t, other.Stop())
			before := c.insertsOr0(t, tt.table)

			must(t, zombie.Signal(syscall.SIGCONT))
			c.publishPart(t, l, 2)
			if tt.table != "" {
				await(t, "the stopped consumer writes late", func() error {
					if now := c.inserts(t, tt.table); now <= before {
						return fmt.Errorf("%d inserts into %s", now, tt.table)
					}
					return nil
				})
			}
			c.settled(t, true)
			c.checkAll(t, l, 3, asOf)
			if !zombie.Alive() {
				t.Error("the stopped consumer did not survive")
			}
		})
	}
}

func (c *cluster) insertsOr0(t testing.TB, table string) int64 {
	if table == "" {
		return 0
	}
	return c.inserts(t, table)
}

// An aggregator that is stopped with computed amounts in hand, while more events
// arrive and another one computes the same windows, and that then writes what it
// has: stale amounts must not win, neither before nor after the storage merges,
// and its clearing of marks that are cleared already must not hide later ones.
func TestAggregatorStopped(t *testing.T) {
	c := newCluster(t)
	c.consume(t, "")
	l := newLoad(0)
	c.publishPart(t, l, 0)
	c.stored(t)
	zombie := c.aggregate(t, "mid-recompute")
	c.awaitHalted(t)
	must(t, zombie.Signal(syscall.SIGSTOP))
	c.letGo()

	c.publishPart(t, l, 1)
	other := c.aggregate(t, "")
	c.settled(t, true)
	c.checkAll(t, l, 2, time.Time{})
	must(t, other.Stop())
	before := c.inserts(t, "usage_minute")

	must(t, zombie.Signal(syscall.SIGCONT))
	await(t, "the stopped aggregator writes late", func() error {
		if now := c.inserts(t, "usage_minute"); now <= before {
			return fmt.Errorf("%d inserts into usage_minute", now)
		}
		return nil
	})
	c.checkAll(t, l, 2, time.Time{})
	c.settled(t, true)
	c.checkAll(t, l, 2, time.Time{})
	c.publishPart(t, l, 2)
	c.settled(t, true)
	c.checkAll(t, l, 3, time.Time{})
	for _, table := range []string{"usage_minute", "usage_hour", "dirty", "raw_usage"} {
		c.query(t, "OPTIMIZE TABLE "+table+" FINAL")
	}
	c.settled(t, true)
	c.checkAll(t, l, 3, time.Time{})
	if !zombie.Alive() {
		t.Error("the stopped aggregator did not survive")
	}
}

// Events that are stored after an aggregator has read their windows and before it
// clears the marks that it has read: the marks of the new ones must stay.
func TestEventsDuringRecompute(t *testing.T) {
	c := newCluster(t)
	c.consume(t, "")
	l := newLoad(0)
	c.publishPart(t, l, 0)
	c.stored(t)
	c.aggregate(t, "recompute-before-clear")
	c.awaitHalted(t)
	c.publishPart(t, l, 1)
	c.publishPart(t, l, 2)
	c.stored(t)
	c.letGo()
	c.settled(t, false)
	c.checkAll(t, l, 3, time.Time{})
	c.settled(t, true)
	c.checkAll(t, l, 3, time.Time{})
}
