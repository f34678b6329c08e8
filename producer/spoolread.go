package producer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/gpumeter/gpumeter/schema"
)

// check prepares a new file and reads all of an old one.
func (s *Spool) check() error {
	err := s.db.View(func(tx *bolt.Tx) error {
		info, err := os.Stat(s.o.Path)
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("%w: the file is cut short: %d bytes of %d", ErrSpoolCorrupt, info.Size(), tx.Size())
		}
		meta := tx.Bucket(bucketMeta)
		if meta == nil {
			if first, _ := tx.Cursor().First(); first != nil {
				return fmt.Errorf("%w: the database of another program", ErrSpoolCorrupt)
			}
			return errNew
		}
		has := buckets
		switch format := meta.Get(keyFormat); {
		case bytes.Equal(format, spoolFormat1):
			has = buckets1
		case !bytes.Equal(format, spoolFormat):
			return fmt.Errorf("%w: format %q, this version reads %q and %q", ErrSpoolCorrupt, format, spoolFormat1, spoolFormat)
		}
		for _, name := range has {
			if tx.Bucket(name) == nil {
				return fmt.Errorf("%w: no %s in it", ErrSpoolCorrupt, name)
			}
		}
		if len(has) < len(buckets) {
			return errOld
		}
		return nil
	})
	if errors.Is(err, errNew) || errors.Is(err, errOld) {
		if err = s.create(); err == nil {
			err = s.count()
		}
		return err
	}
	if err != nil {
		return err
	}
	return s.count()
}

var (
	errNew = errors.New("new file")
	errOld = errors.New("file of an older format, whole as far as that goes")
)

// create makes the buckets that are missing and notes the format.
func (s *Spool) create() error {
	return s.db.Update(func(tx *bolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketMeta).Put(keyFormat, spoolFormat)
	})
}

// count reads every record and sums up what the file holds.
func (s *Spool) count() error {
	var stats SpoolStats
	err := s.db.View(func(tx *bolt.Tx) error {
		err := tx.Bucket(bucketQueue).ForEach(func(_, r []byte) error {
			stats.Events++
			stats.Bytes += int64(len(r))
			return checkRecord(r)
		})
		if err != nil {
			return err
		}
		return tx.Bucket(bucketAside).ForEach(func(_, r []byte) error {
			stats.SetAside++
			stats.Bytes += int64(len(r))
			return nil
		})
	})
	if err != nil {
		return err
	}
	s.stats = stats
	return s.countOpen()
}

// countOpen sums up what is unfinished and undecided.
func (s *Spool) countOpen() error {
	open := map[string]amount{}
	err := s.db.View(func(tx *bolt.Tx) error {
		for _, bucket := range [][]byte{bucketOpen, bucketHeld} {
			err := tx.Bucket(bucket).ForEach(func(source, joined []byte) error {
				_, records, err := splitRecords(joined)
				a := open[string(source)]
				a.add(sizeOf(records))
				open[string(source)] = a
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.open = open
	return nil
}

// Undecided returns what the last tick of a source left undecided.
func (s *Spool) Undecided(source string) (events []schema.Usage, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		events, _, err = splitRecords(tx.Bucket(bucketHeld).Get([]byte(source)))
		return err
	})
	return events, wrap(err)
}

// Stats returns how full the spool is.
func (s *Spool) Stats() SpoolStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// LastTick returns the end of the time of a source that is stored, and 0 for a
// source that was never stored.
func (s *Spool) LastTick(source string) (tickMs int64, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		tickMs = int64(number(tx.Bucket(bucketTick).Get([]byte(source))))
		return nil
	})
	return tickMs, wrap(err)
}

// Head returns the oldest events: at most n, and of at most maxBytes together
// unless the first alone is larger. It takes nothing away.
func (s *Spool) Head(n, maxBytes int) ([]Queued, error) {
	var head []Queued
	err := s.db.View(func(tx *bolt.Tx) error {
		cursor := tx.Bucket(bucketQueue).Cursor()
		for k, r := cursor.First(); k != nil && len(head) < n; k, r = cursor.Next() {
			if maxBytes -= len(r); maxBytes < 0 && len(head) > 0 {
				return nil
			}
			u, err := decodeRecord(r)
			if err != nil {
				return err
			}
			head = append(head, Queued{Position: number(k), Bytes: len(r), Event: u})
		}
		return nil
	})
	return head, wrap(err)
}

// Release takes away everything up to a position. Only a confirmation of the
// stream justifies it.
func (s *Spool) Release(upTo uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone amount
	err := s.db.Update(func(tx *bolt.Tx) error {
		gone = amount{}
		cursor := tx.Bucket(bucketQueue).Cursor()
		// The cursor is set anew each time: deleting may move what it points at.
		for k, r := cursor.First(); k != nil && number(k) <= upTo; k, r = cursor.First() {
			gone.add(amount{1, int64(len(r))})
			if err := tx.Bucket(bucketIDs).Delete(recordID(r)); err != nil {
				return err
			}
			if err := cursor.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.failed(err)
	}
	s.stats.Events -= gone.events
	s.stats.Bytes -= gone.bytes
	return nil
}

// SetAside takes one event out of the queue and keeps it with the reason, because
// the stream will never accept it and everything behind it waits.
func (s *Spool) SetAside(position uint64, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.db.Update(func(tx *bolt.Tx) error {
		queue, k := tx.Bucket(bucketQueue), numberKey(position)
		r := queue.Get(k)
		if r == nil {
			return nil
		}
		reason = strings.ReplaceAll(reason[:min(len(reason), schema.MaxLabelValueBytes)], "\x00", " ")
		kept := append([]byte(reason+"\x00"), r...)
		if err := tx.Bucket(bucketIDs).Delete(recordID(r)); err != nil {
			return err
		}
		if err := tx.Bucket(bucketAside).Put(k, kept); err != nil {
			return err
		}
		return queue.Delete(k)
	})
	if err != nil {
		return s.failed(err)
	}
	return wrap(s.count())
}

// Aside is an event that was set aside, and why.
type Aside struct {
	Event  schema.Usage
	Reason string
}

// Asides returns the events that were set aside, oldest first.
func (s *Spool) Asides() ([]Aside, error) {
	var all []Aside
	err := s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketAside).ForEach(func(_, kept []byte) error {
			reason, r, _ := bytes.Cut(kept, []byte{0})
			u, err := decodeRecord(r)
			all = append(all, Aside{Event: u, Reason: string(reason)})
			return err
		})
	})
	return all, wrap(err)
}

// Appended delivers after events were queued. It is for one reader.
func (s *Spool) Appended() <-chan struct{} { return s.appended }

// Close closes the file. The unfinished events stay in it as they are; the next
// OpenSpool queues them.
func (s *Spool) Close() error { return wrap(s.db.Close()) }

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("producer: spool: %w", err)
}
