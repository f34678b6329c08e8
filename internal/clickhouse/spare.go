package clickhouse

import (
	"sync"
	"time"
)

// spare keeps one large buffer for the next use. A sync.Pool would lose it
// within one busy second; keeping it for ever would hold tens of megabytes in a
// program that is idle most of the time. So it is kept until it was not used for
// a while.
type spare[T any] struct {
	mu    sync.Mutex
	kept  []T
	most  int
	made  func() T
	timer *time.Timer
}

const spareFor = 5 * time.Second

func newSpare[T any](most int, made func() T) *spare[T] { return &spare[T]{most: most, made: made} }

func (s *spare[T]) take() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.kept); n > 0 {
		b := s.kept[n-1]
		s.kept = s.kept[:n-1]
		return b
	}
	return s.made()
}

func (s *spare[T]) put(b T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) < s.most {
		s.kept = append(s.kept, b)
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(spareFor, s.drop)
	} else {
		s.timer.Reset(spareFor)
	}
}

func (s *spare[T]) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = nil
}
