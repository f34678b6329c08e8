package producer

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/gpumeter/gpumeter/schema"
)

// Bounds of a spool. Eight GPUs make some 12,500 events of 200 bytes in 26 hours;
// the defaults hold that a hundred times over.
const (
	DefaultSpoolBytes  = 256 << 20
	DefaultSpoolEvents = 1_500_000
)

// Errors of a spool, each with what to do about it.
var (
	// ErrSpoolFull: nothing was written. Offer the same again after events were
	// released; do not drop them.
	ErrSpoolFull = errors.New("the spool is full")
	// ErrSpoolCorrupt: the file is damaged or of another program. Move it away,
	// keep it for inspection, and start with a new one.
	ErrSpoolCorrupt = errors.New("not a readable spool")
	// ErrSpoolInUse: another process has the file open.
	ErrSpoolInUse = errors.New("the spool is in use by another process")
	// ErrTickRepeated: an earlier tick than one already stored. The events of
	// that time exist; nothing was written.
	ErrTickRepeated = errors.New("the tick is stored already")
)

// SpoolOptions says where the spool lies and how large it may grow.
type SpoolOptions struct {
	Path string // of the file; its directory must exist
	// MaxBytes bounds what is queued, and MaxEvents its number; 0 = the defaults.
	// The file takes about twice MaxBytes and does not shrink.
	MaxBytes  int64
	MaxEvents int64

	noSync bool // for tests that do not crash: nothing is flushed to disk
}

// Spool is the agent's queue on disk, in order of arrival. What Append and
// Advance have returned from without an error survives a kill and a power cut.
//
// It is a bbolt file: one transaction then queues the finished events, replaces
// the open ones and numbers them, which is what keeps a crash from counting a
// minute twice or numbering it anew. tidwall/wal has no transaction over two
// things and truncates whole segments only; an embedded stream would bring a
// server and would still need a place for the open events.
//
// Safe for concurrent use.
type Spool struct {
	db *bolt.DB
	o  SpoolOptions

	appended chan struct{}

	mu    sync.Mutex
	stats SpoolStats
	open  map[string]amount // by source
}

type amount struct{ events, bytes int64 }

// SpoolStats is how full a spool is.
type SpoolStats struct {
	Events   int64
	Bytes    int64
	SetAside int64 // refused for ever and kept for a person; part of the bounds too
}

// Queued is an event in the spool.
type Queued struct {
	Position uint64 // order of arrival over all sources; what Release takes
	Bytes    int    // of its stored form, not less than what it adds to a message
	Event    schema.Usage
}

var (
	bucketMeta     = []byte("meta")
	bucketQueue    = []byte("queue")     // position -> record
	bucketIDs      = []byte("ids")       // identity hash -> position, of what is queued
	bucketOpen     = []byte("open")      // source -> records of the unfinished events
	bucketTick     = []byte("tick")      // source -> end of the time that is stored
	bucketSequence = []byte("sequence")  // source -> last number given
	bucketAside    = []byte("set_aside") // position -> reason, NUL, record
	bucketHeld     = []byte("undecided") // source -> records of what Meter.Undecided returned
	keyFormat      = []byte("format")
	// An older program refuses format 2, because it would never send what is
	// undecided. This one reads format 1 and makes it format 2.
	spoolFormat1 = []byte("gpumeter spool 1")
	spoolFormat  = []byte("gpumeter spool 2")
	buckets1     = [][]byte{bucketMeta, bucketQueue, bucketIDs, bucketOpen, bucketTick, bucketSequence, bucketAside}
	buckets      = append(slices.Clone(buckets1), bucketHeld)
)

// OpenSpool opens or creates the file, checks all of it, and queues the events
// that were unfinished when the last process ended.
func OpenSpool(o SpoolOptions) (s *Spool, err error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultSpoolBytes)
	o.MaxEvents = cmp.Or(o.MaxEvents, DefaultSpoolEvents)
	if o.Path == "" || o.MaxBytes < 0 || o.MaxEvents < 0 {
		return nil, fmt.Errorf("producer: spool: path %q, at most %d bytes and %d events: needs a path and positive bounds", o.Path, o.MaxBytes, o.MaxEvents)
	}
	// A truncated file makes reads of the mapping fault. That must be an error
	// that names the file, not the end of the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	s = &Spool{o: o, appended: make(chan struct{}, 1), open: map[string]amount{}}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrSpoolCorrupt, p)
		}
		if err != nil {
			if s != nil && s.db != nil {
				closeQuietly(s.db)
			}
			s, err = nil, fmt.Errorf("producer: spool %s: %w", o.Path, err)
		}
	}()
	s.db, err = bolt.Open(o.Path, 0o600, &bolt.Options{Timeout: time.Second, NoSync: o.noSync, FreelistType: bolt.FreelistMapType})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return s, ErrSpoolInUse
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum):
		return s, fmt.Errorf("%w: %w", ErrSpoolCorrupt, err)
	case err != nil:
		return s, err
	}
	if err := s.check(); err != nil {
		return s, err
	}
	return s, s.CloseOpen("")
}

// closeQuietly closes a damaged file, which may panic once more.
func closeQuietly(db *bolt.DB) {
	defer func() { _ = recover() }()
	_ = db.Close()
}

// Append queues events at the end. When it returns without an error they are on
// disk, each with the next number of its source. An event whose identity is still
// queued keeps its place and its number.
func (s *Spool) Append(events []schema.Usage) error {
	return s.write("", 0, events, nil, nil)
}

// Advance stores one tick of a source in one step: it queues the finished events
// and replaces the unfinished ones; nothing is undecided. Repeating it after an
// error is safe: a tick that was stored after all is not stored again.
func (s *Spool) Advance(source string, tickMs int64, finished, open []schema.Usage) error {
	return s.write(source, tickMs, finished, open, nil)
}

// AdvanceUndecided is Advance with what is undecided after the tick, in the same
// step. It is never queued by itself; Undecided returns it to the next process.
func (s *Spool) AdvanceUndecided(source string, tickMs int64, finished, open, undecided []schema.Usage) error {
	return s.write(source, tickMs, finished, open, undecided)
}

var errDone = errors.New("stored before")

func (s *Spool) write(source string, tickMs int64, finished, open, undecided []schema.Usage) error {
	records, err := encodeAll(finished)
	if err != nil {
		return err
	}
	unfinished, err := encodeAll(open)
	if err != nil {
		return err
	}
	held, err := encodeAll(undecided)
	if err != nil {
		return err
	}
	later := sizeOf(unfinished)
	later.add(sizeOf(held))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fits(source, tickMs != 0, records, later); err != nil {
		return err
	}
	var added amount
	err = s.db.Update(func(tx *bolt.Tx) error {
		if tickMs != 0 {
			last := number(tx.Bucket(bucketTick).Get([]byte(source)))
			switch {
			case last == uint64(tickMs):
				return errDone
			case last > uint64(tickMs):
				return fmt.Errorf("producer: spool: %w: %s of %s", ErrTickRepeated, schema.FormatTime(tickMs), source)
			}
			if err := tx.Bucket(bucketTick).Put([]byte(source), numberKey(uint64(tickMs))); err != nil {
				return err
			}
			if err := tx.Bucket(bucketOpen).Put([]byte(source), join(unfinished)); err != nil {
				return err
			}
			if err := tx.Bucket(bucketHeld).Put([]byte(source), join(held)); err != nil {
				return err
			}
		}
		added, err = enqueue(tx, finished, records)
		return err
	})
	if errors.Is(err, errDone) {
		return nil
	}
	if err != nil {
		return s.failed(err)
	}
	if tickMs != 0 {
		s.open[source] = later
	}
	s.grown(added)
	return nil
}

// fits counts the unfinished and undecided events as if they were queued already, so that there
// is room for them when they have to be.
func (s *Spool) fits(source string, replaces bool, records [][]byte, later amount) error {
	more := sizeOf(records)
	more.add(later)
	for name, a := range s.open {
		if !replaces || name != source {
			more.add(a)
		}
	}
	events, bytes := s.stats.Events+s.stats.SetAside+more.events, s.stats.Bytes+more.bytes
	if events > s.o.MaxEvents || bytes > s.o.MaxBytes {
		return fmt.Errorf("producer: %w: %d events and %d bytes with these, at most %d and %d", ErrSpoolFull, events, bytes, s.o.MaxEvents, s.o.MaxBytes)
	}
	return nil
}

// enqueue gives each event a place and its source's next number.
func enqueue(tx *bolt.Tx, events []schema.Usage, records [][]byte) (added amount, err error) {
	queue, ids, sequence := tx.Bucket(bucketQueue), tx.Bucket(bucketIDs), tx.Bucket(bucketSequence)
	queue.FillPercent = 1 // positions only grow
	for i, record := range records {
		if ids.Get(recordID(record)) != nil {
			continue
		}
		position, err := queue.NextSequence()
		if err != nil {
			return added, err
		}
		source := []byte(events[i].Source)
		next := number(sequence.Get(source)) + 1
		if err := sequence.Put(source, numberKey(next)); err != nil {
			return added, err
		}
		setSequence(record, next)
		if err := queue.Put(numberKey(position), record); err != nil {
			return added, err
		}
		if err := ids.Put(recordID(record), numberKey(position)); err != nil {
			return added, err
		}
		added.add(amount{1, int64(len(record))})
	}
	return added, nil
}

// CloseOpen queues the unfinished events of a source, or of all sources when the
// name is empty, as they were at their last tick. What is undecided stays.
func (s *Spool) CloseOpen(source string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var added amount
	err := s.db.Update(func(tx *bolt.Tx) error {
		open := tx.Bucket(bucketOpen)
		saved := map[string][]byte{}
		err := open.ForEach(func(name, joined []byte) error {
			if source == "" || source == string(name) {
				saved[string(name)] = bytes.Clone(joined)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(saved)) {
			events, records, err := splitRecords(saved[name])
			if err != nil {
				return err
			}
			a, err := enqueue(tx, events, records)
			if err != nil {
				return err
			}
			added.add(a)
			if err := open.Delete([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.failed(err)
	}
	s.grown(added)
	return wrap(s.countOpen())
}

// grown counts what was queued and wakes the sender. The caller holds the lock.
func (s *Spool) grown(added amount) {
	s.stats.Events += added.events
	s.stats.Bytes += added.bytes
	if added.events == 0 {
		return
	}
	select {
	case s.appended <- struct{}{}:
	default:
	}
}

// failed counts anew after a write that may or may not have reached the disk.
func (s *Spool) failed(err error) error {
	if again := s.count(); again != nil {
		return fmt.Errorf("producer: spool: %w", errors.Join(err, again))
	}
	return fmt.Errorf("producer: spool: %w", err)
}

func numberKey(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

func number(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (a *amount) add(b amount) { a.events, a.bytes = a.events+b.events, a.bytes+b.bytes }

func sizeOf(records [][]byte) (a amount) {
	for _, r := range records {
		a.add(amount{1, int64(len(r))})
	}
	return a
}
