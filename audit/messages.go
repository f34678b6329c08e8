package audit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// messages proves that everything that is settled is stored or quarantined, from
// where the last proof ended, and learns from the same rows what sources sent.
func (p *pass) messages(ctx context.Context) error {
	proof, err := p.o.Store.StreamProof(ctx, p.state.Stream, p.state.Epoch)
	if err != nil {
		return err
	}
	p.verified = proof.Verified
	from, holesFrom := proof.Verified, proof.Verified
	if p.full || proof.Verified == 0 {
		// What the stream has lost to its age by now cannot be compared any more;
		// its rows still say which numbers came.
		from, holesFrom = 0, max(p.state.First, 1)-1
	}
	for from < p.state.Floor {
		to := min(from+stepMessages, p.state.Floor)
		if to, err = p.step(ctx, from, to, holesFrom); err != nil {
			return err
		}
		from = to
	}
	p.caughtUp = true
	if !p.full {
		return p.sample(ctx)
	}
	return nil
}

// step checks the messages after from and up to to and returns how far it came.
func (p *pass) step(ctx context.Context, from, to, holesFrom uint64) (uint64, error) {
	s := &p.state
	var readBack []schema.SourceProof
	if first := max(from, holesFrom); first < to {
		doubtful, err := p.o.Store.Doubtful(ctx, s.Stream, s.Epoch, first, to, maxDoubtful)
		if err != nil {
			return 0, err
		}
		if len(doubtful) == maxDoubtful {
			to = doubtful[maxDoubtful-1]
		}
		r, err := p.examine(ctx, doubtful)
		if err != nil {
			return 0, err
		}
		p.openHoles(r)
		readBack = r.numbers
	}
	numbers, err := p.o.Store.Numbers(ctx, s.Stream, s.Epoch, from, to, p.o.Grace.Milliseconds())
	if err != nil {
		return 0, err
	}
	numbers = learn(numbers, readBack)
	p.sources = learn(p.sources, numbers)
	if err := p.newConflicts(ctx, from, to); err != nil {
		return 0, err
	}
	touched, err := p.o.Store.TouchedHours(ctx, s.Stream, s.Epoch, from, to, touchedHours)
	if err != nil {
		return 0, err
	}
	p.touched = append(p.touched, touched...)
	return to, p.save(ctx, numbers, to)
}

// save notes incidents, then what sources sent, then how far the stream is proved:
// the last one says that the others are there.
func (p *pass) save(ctx context.Context, numbers []schema.SourceProof, to uint64) error {
	if err := p.note(ctx); err != nil {
		return err
	}
	if to <= p.verified {
		return nil // a second look
	}
	var changed []schema.SourceProof
	for i := range p.sources {
		if s := &p.sources[i]; s.Stream == p.state.Stream && s.Epoch == p.state.Epoch && (s.Verified == to || mentions(numbers, s)) {
			s.Verified = to
			changed = append(changed, *s)
		}
	}
	if err := p.o.Store.SaveSourceProofs(ctx, changed); err != nil {
		return err
	}
	p.verified = to
	return p.o.Store.SaveStreamProof(ctx, schema.StreamProof{Stream: p.state.Stream, Epoch: p.state.Epoch, Verified: to})
}

func mentions(list []schema.SourceProof, s *schema.SourceProof) bool {
	return slices.ContainsFunc(list, func(n schema.SourceProof) bool { return n.Tenant == s.Tenant && n.Source == s.Source })
}

// sample reads some older messages back: rows can get lost after they were proved.
func (p *pass) sample(ctx context.Context) error {
	first := max(p.state.First, 1)
	if p.verified < first {
		return nil
	}
	var list []uint64
	for range samples {
		list = append(list, first+p.o.Rand.Uint64N(p.verified-first+1))
	}
	slices.Sort(list)
	r, err := p.examine(ctx, slices.Compact(list))
	if err != nil {
		return err
	}
	r.gone = nil // lost to its age since the state was read
	p.openHoles(r)
	return nil
}

// examined is what reading messages back has shown.
type examined struct {
	missing []uint64 // something of it is not stored
	gone    []uint64 // the stream does not have it any more
	numbers []schema.SourceProof
}

// examine reads messages back from the stream and looks for every event of them
// in storage, by identity and content. A message whose rows are gone because
// another message brought the same events before is complete: merges keep one.
func (p *pass) examine(ctx context.Context, sequences []uint64) (*examined, error) {
	r := &examined{}
	for len(sequences) > 0 {
		var list []schema.Expected
		var owner []uint64
		for len(sequences) > 0 && len(list) < 1000 {
			n := sequences[0]
			sequences = sequences[1:]
			d, err := p.o.Stream.Message(ctx, n)
			if err != nil {
				return nil, fmt.Errorf("read message %d: %w", n, err)
			}
			if d == nil {
				r.gone = append(r.gone, n)
				continue
			}
			for _, x := range Expect(d) {
				list, owner = append(list, x), append(owner, n)
				r.numbers = learn(r.numbers, p.numberOf(&x, d))
			}
		}
		found, err := p.stored(ctx, list)
		if err != nil {
			return nil, err
		}
		for i, ok := range found {
			if n := len(r.missing); !ok && (n == 0 || r.missing[n-1] != owner[i]) {
				r.missing = append(r.missing, owner[i])
			}
		}
	}
	return r, nil
}

// stored says what is in storage. An event that came before its time is in quarantine
// until it is released.
func (p *pass) stored(ctx context.Context, list []schema.Expected) ([]bool, error) {
	found, err := p.o.Store.Stored(ctx, list)
	if err != nil {
		return nil, err
	}
	var held []schema.Expected
	var at []int
	for i := range list {
		if x := &list[i]; !found[i] && x.Event != nil {
			held = append(held, schema.Expected{Tenant: x.Tenant, Subject: x.Subject, Raw: schema.EncodeEvent(x.Event)})
			at = append(at, i)
		}
	}
	if len(held) == 0 {
		return found, nil
	}
	waiting, err := p.o.Store.Stored(ctx, held)
	if err != nil {
		return nil, err
	}
	for i, ok := range waiting {
		found[at[i]] = ok
	}
	return found, nil
}

// numberOf makes a run of one number of an event that was read back.
func (p *pass) numberOf(x *schema.Expected, d *schema.Delivery) []schema.SourceProof {
	if x.Event == nil || x.Event.Header().Sequence == 0 {
		return nil
	}
	h, storedMs := x.Event.Header(), d.StoredAtNs/1e6
	run := schema.NumberRun{First: h.Sequence, Last: h.Sequence, FirstStartMs: storedMs, FirstEndMs: storedMs + 1, FirstStoredMs: storedMs}
	if u := x.Event.Usage; u != nil {
		run.FirstStartMs, run.FirstEndMs = u.StartMs, u.EndMs
	}
	run.LastStartMs, run.LastEndMs = run.FirstStartMs, run.FirstEndMs
	return []schema.SourceProof{{Tenant: x.Tenant, Source: h.Source, Stream: p.state.Stream, Epoch: p.state.Epoch, Runs: []schema.NumberRun{run}, HeardMs: storedMs}}
}

// Expect says what a message has to leave in storage: what the consumer takes it
// apart into.
func Expect(d *schema.Delivery) []schema.Expected {
	address, err := schema.ParseSubject(d.Subject)
	if err != nil {
		return []schema.Expected{{Subject: d.Subject, Raw: d.Payload}}
	}
	var list []schema.Expected
	event := func(e *schema.Event) {
		x := schema.Expected{Tenant: address.Tenant, Event: e, Subject: d.Subject}
		if e.Header().Source != address.Source {
			x = schema.Expected{Tenant: address.Tenant, Subject: d.Subject, Raw: schema.EncodeEvent(e)}
		}
		list = append(list, x)
	}
	decoded := schema.Decode(d.ContentType, d.Payload)
	for i := range decoded.Usage {
		event(&schema.Event{Usage: &decoded.Usage[i].Event})
	}
	for i := range decoded.Other {
		event(&decoded.Other[i].Event)
	}
	for _, r := range decoded.Rejects {
		list = append(list, schema.Expected{Tenant: address.Tenant, Subject: d.Subject, Raw: r.Raw})
	}
	return list
}

// openHoles opens an incident for each unbroken run of messages that are missing.
func (p *pass) openHoles(r *examined) {
	for _, part := range []struct {
		list   []uint64
		detail string
	}{
		{r.missing, "is in the stream and not wholly stored; it is offered to the stream again until it is"},
		{r.gone, "was lost to the stream's age limit, and storage does not show that all of it is there; compare with the sources, then close this with gpumeter audit close"},
	} {
		for _, run := range runsOf(part.list) {
			if p.inOpenHole(run[0]) && p.inOpenHole(run[1]) {
				continue
			}
			p.ledger.found(schema.Incident{
				Kind: schema.IncidentStreamHole, Key: p.holeKey(run), Count: int64(run[1] - run[0] + 1),
				Detail: fmt.Sprintf("message %s of %s %s", rangeText(run), p.state.Stream, part.detail),
			}, 0)
		}
	}
}

// runsOf joins neighbouring numbers, which are in order.
func runsOf(list []uint64) [][2]uint64 {
	var runs [][2]uint64
	for _, n := range list {
		if k := len(runs); k > 0 && runs[k-1][1]+1 == n {
			runs[k-1][1] = n
		} else {
			runs = append(runs, [2]uint64{n, n})
		}
	}
	return runs
}

func rangeText(run [2]uint64) string {
	if run[0] == run[1] {
		return strconv.FormatUint(run[0], 10)
	}
	return fmt.Sprintf("%d-%d", run[0], run[1])
}

func (p *pass) holeKey(run [2]uint64) string {
	return fmt.Sprintf("%s@%d/%s", p.state.Stream, p.state.Epoch, rangeText(run))
}

// holeOf reads a key back; ok is false for a hole of another stream or epoch.
func (p *pass) holeOf(n *schema.Incident) (run [2]uint64, ok bool) {
	run, epoch, ok := p.holeIn(n)
	return run, ok && epoch == p.state.Epoch
}

// holeIn reads a key of the stream back, of whatever epoch.
func (p *pass) holeIn(n *schema.Incident) (run [2]uint64, epoch uint64, ok bool) {
	text, ok := strings.CutPrefix(n.Key, p.state.Stream+"@")
	text, numbers, more := strings.Cut(text, "/")
	if !ok || !more {
		return run, 0, false
	}
	first, last, ranged := strings.Cut(numbers, "-")
	if !ranged {
		last = first
	}
	epoch, err := strconv.ParseUint(text, 10, 64)
	a, errA := strconv.ParseUint(first, 10, 64)
	b, errB := strconv.ParseUint(last, 10, 64)
	return [2]uint64{a, b}, epoch, err == nil && errA == nil && errB == nil && a <= b
}

func (p *pass) inOpenHole(sequence uint64) bool {
	for _, n := range p.ledger.ofKind(schema.IncidentStreamHole) {
		if run, ok := p.holeOf(&n); ok && run[0] <= sequence && sequence <= run[1] {
			return true
		}
	}
	return false
}

// heal looks at the open holes again. What a hole still lacks and the stream still
// has is published once more, under an id made of where it lies: it goes the way
// of every message, and identity makes what is there already count once. The
// stream's acknowledgement floor cannot be moved back for one message.
//
// A hole is healed only from the second pass on that sees it, because a replica
// may show rows late.
func (p *pass) heal(ctx context.Context) error {
	for _, n := range p.ledger.ofKind(schema.IncidentStreamHole) {
		run, ok := p.holeOf(&n)
		if !ok {
			p.oldHole(n)
			continue
		}
		r, err := p.examine(ctx, sequencesOf(run))
		if err != nil {
			return err
		}
		if len(r.missing)+len(r.gone) == 0 {
			p.ledger.ended(n, p.healedText(run))
			continue
		}
		for _, sequence := range r.missing {
			if !p.seen[sequence] {
				p.seen[sequence] = true
				continue
			}
			if err := p.offer(ctx, sequence); err != nil {
				return err
			}
		}
	}
	return nil
}

// oldHole ends a hole of an earlier epoch: all that the stream has is read and
// proved again in the new one. What the stream has lost to its age by then is not
// among that, so a person has to look.
func (p *pass) oldHole(n schema.Incident) {
	run, _, ok := p.holeIn(&n)
	if ok && run[0] >= p.state.First && p.caughtUp && p.verified == p.state.Last {
		p.ledger.ended(n, "the stream was read again from its oldest message")
	}
}

func sequencesOf(run [2]uint64) []uint64 {
	var list []uint64
	for n := run[0]; n <= run[1] && len(list) < maxDoubtful; n++ {
		list = append(list, n)
	}
	return list
}

func (p *pass) healedText(run [2]uint64) string {
	for n := run[0]; n <= run[1]; n++ {
		if again, ok := p.offered[n]; ok {
			return fmt.Sprintf("healed by sequence %d", again)
		}
	}
	return "it was stored after all"
}

func (p *pass) offer(ctx context.Context, sequence uint64) error {
	if again, ok := p.offered[sequence]; ok && again > p.state.Floor {
		return nil // on its way
	}
	d, err := p.o.Stream.Message(ctx, sequence)
	if err != nil || d == nil {
		return err
	}
	id := sha256.Sum256(fmt.Appendf(nil, "heal/%s/%d/%d", p.state.Stream, p.state.Epoch, sequence))
	receipts, err := p.o.Publish(ctx, []schema.Message{{
		Subject: d.Subject, ContentType: d.ContentType, Payload: d.Payload, ID: base64.RawURLEncoding.EncodeToString(id[:16]),
	}})
	if err == nil {
		err = receipts[0].Err
	}
	if err != nil {
		return fmt.Errorf("offer message %d again: %w", sequence, err)
	}
	p.offered[sequence] = receipts[0].Sequence
	return nil
}

// tails ends the incident of a lost tail when all that the stream had by then was
// read in the new epoch and is proved.
func (p *pass) tails(context.Context) error {
	for _, n := range p.ledger.ofKind(schema.IncidentTailLost) {
		stream, text, _ := strings.Cut(n.Key, "@")
		epoch, err := strconv.ParseUint(text, 10, 64)
		if err == nil && stream == p.state.Stream && epoch <= p.state.Epoch && p.caughtUp && p.verified >= uint64(n.Count) {
			p.ledger.ended(n, "all that the stream has was read and checked again")
		}
	}
	return nil
}
