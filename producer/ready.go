package producer

import (
	"errors"
	"fmt"
	"time"
)

// failuresToReport is how many reads in a row may fail before Ready says so: one
// lost scrape is no incident.
const failuresToReport = 3

// Ready returns nil while the producer makes progress, and otherwise everything
// that stands in its way: the spool takes nothing, the stream has confirmed
// nothing of a backlog for StallAfter, the source cannot be read, or the clock is
// behind the last tick. Safe for concurrent use.
func (p *Producer) Ready() error {
	p.mu.Lock()
	var faults []error
	if p.blocked != nil {
		faults = append(faults, fmt.Errorf("sampling is stopped: %w", p.blocked))
	}
	if p.failures >= failuresToReport {
		faults = append(faults, fmt.Errorf("%d reads in a row failed: %w", p.failures, p.readFailure))
	}
	if p.behind != nil {
		faults = append(faults, p.behind)
	}
	p.mu.Unlock()
	if stall := p.stalled(); stall > p.o.StallAfter {
		_, err := p.sender.progress()
		if err == nil {
			err = errors.New("no attempt has ended")
		}
		faults = append(faults, fmt.Errorf("the stream has confirmed nothing for %s: %w", stall.Round(time.Second), err))
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("producer %s: %w", p.o.SourceName, errors.Join(faults...))
}

// oldest is the age of the event at the head of the spool; 0 when it is empty.
func (p *Producer) oldest() time.Duration {
	head, err := p.o.Spool.Head(1, 0)
	if err != nil || len(head) == 0 {
		return 0
	}
	return p.o.Clock.Now().Sub(time.UnixMilli(head[0].Event.TimeMs))
}

// stalled is how long there has been something to send and nothing confirmed.
func (p *Producer) stalled() time.Duration {
	age := p.oldest()
	if age == 0 {
		return 0
	}
	since := p.started
	if ack, _ := p.sender.progress(); ack.After(since) {
		since = ack
	}
	return min(age, p.o.Clock.Now().Sub(since))
}
