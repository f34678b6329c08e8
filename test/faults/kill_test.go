package faults_test

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

// Whoever dies, wherever in settling or recomputing a batch: after a restart of
// just that part every figure is what a plain sum of the events says, at once,
// as of an earlier instant, and after everything derived was thrown away.
func TestKilled(t *testing.T) {
	c := newCluster(t)
	victims := []string{"worker", "engine", "broker"}
	points := []string{"before-insert", "mid-insert", "raw-before-dirty", "dirty-before-ack", "during-ack",
		"mid-recompute", "recompute-before-clear", "hours-put"}
	var loads []*load
	for i, point := range points {
		for j, victim := range victims {
			l := newLoad(i*len(victims) + j)
			t.Run(point+"/"+victim, func(t *testing.T) {
				loads = append(loads, l)
				c.killAt(t, l, point, victim)
			})
		}
	}
	if t.Failed() {
		return
	}
	t.Run("rebuild", func(t *testing.T) {
		c.rebuild(t, loads)
	})
}

// othersFirst is how long the others go on before the halted one does.
const othersFirst = 300 * time.Millisecond

// killAt publishes a load, halts the worker in its second batch, kills the victim
// there and restarts it. The worker is the consumer or the aggregator, whichever
// has the point.
func (c *cluster) killAt(t *testing.T, l *load, point, victim string) {
	work, other := c.consume, c.aggregate
	if victim == "engine" {
		// The worker lives and the stream does not lose its acknowledgements: it
		// has to come out right without any message being delivered again.
		work = func(t testing.TB, at string) *process.Process { return c.consumeWaiting(t, at, "1m") }
	}
	at := point + ":2" // the first batch has gone well
	if slices.Contains([]string{"mid-recompute", "recompute-before-clear", "hours-put"}, point) {
		work, other = c.aggregate, work
		at = point
	}
	c.publishPart(t, l, 0)
	asOf := instant()
	c.publishPart(t, l, 1)
	colleague := other(t, "")
	worker := work(t, at)
	c.awaitHalted(t)

	switch victim {
	case "worker":
		worker.Kill()
		work(t, "")
	case "engine":
		c.engine.Kill()
		c.startEngine()
		time.Sleep(othersFirst)
		c.letGo()
	case "broker":
		c.broker.Kill()
		c.startBroker()
		time.Sleep(othersFirst)
		c.letGo()
	}
	c.publishPart(t, l, 2)
	c.settled(t, false)
	c.checkAll(t, l, 3, asOf)
	for _, p := range []*process.Process{worker, colleague, c.serve} {
		if !p.Alive() && (p != worker || victim != "worker") {
			t.Errorf("%s did not survive the death of the %s", p.Name, victim)
		}
	}
}

// instant returns an instant that lies strictly between what was published
// before and what is published after. Reports know milliseconds.
func instant() time.Time {
	time.Sleep(2 * time.Millisecond)
	now := time.Now().Truncate(time.Millisecond)
	time.Sleep(2 * time.Millisecond)
	return now
}

// rebuild waits for the hours, and then throws away everything derived: reports
// must be the same, to the byte.
func (c *cluster) rebuild(t *testing.T, loads []*load) {
	all := &load{fromMs: loads[0].fromMs, toMs: loads[len(loads)-1].toMs, conflicts: map[string]bool{}}
	for _, l := range loads {
		all.parts[0] = slices.Concat(all.parts[0], l.parts[0], l.parts[1], l.parts[2])
		maps.Copy(all.conflicts, l.conflicts)
	}
	aggregator := c.aggregate(t, "")
	c.settled(t, true)
	must(t, aggregator.Stop())
	c.checkAll(t, all, 3, time.Time{})
	hourly := func() []byte {
		return asOfField.ReplaceAll(c.report(t, all, "spend", "--by", "unit,hour"), nil)
	}
	before := hourly()
	run(t, "rebuild", "--data", c.dir)
	if !bytes.Equal(before, hourly()) {
		t.Error("reports differ after a rebuild")
	}
	c.checkAll(t, all, 3, time.Time{})
}

// asOfField is when a report was made, the one thing that may differ.
var asOfField = regexp.MustCompile(`"as_of":"[^"]*",`)
