package webui

import (
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
)

const (
	// mostQueues is how many queues a list has. Twice as many are kept open.
	mostQueues = 200
	// closeTimeout bounds the closing of this handler's access to a queue: a session.
	closeTimeout = 5 * time.Second
)

// queues are the queues that were looked at last.
type queues struct {
	h      *Handler
	mu     sync.Mutex
	byName map[string]*openQueue
}

// openQueue is a queue, and when it was used last.
type openQueue struct {
	*queue.Queue
	used time.Time
}

func (s *queues) init(h *Handler) { s.h, s.byName = h, make(map[string]*openQueue) }

// open returns a queue that exists.
func (s *queues) open(ctx context.Context, name string) (*queue.Queue, error) {
	if q := s.known(name); q != nil {
		return q, nil
	}
	opened, err := queue.Open(ctx, s.h.claims, name)
	if err != nil {
		return nil, err
	}
	used, surplus := s.keep(name, opened)
	if surplus == nil {
		return used, nil
	}
	end := func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = surplus.Close(ctx) // it has no items
	}
	if !s.h.spawn(end) {
		end()
	}
	return used, nil
}

// known returns a queue that is open, or nil.
func (s *queues) known(name string) *queue.Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byName[name]
	if q == nil {
		return nil
	}
	q.used = time.Now()
	return q.Queue
}

// keep keeps a queue that was opened, and returns the one to use: another caller may have
// opened it too. surplus is to be closed unless it is nil: the one that was not used for
// longest if there are too many.
func (s *queues) keep(name string, opened *queue.Queue) (used, surplus *queue.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.byName[name]; q != nil {
		return q.Queue, opened
	}
	if len(s.byName) >= 2*mostQueues {
		oldest := ""
		for name, q := range s.byName {
			if oldest == "" || q.used.Before(s.byName[oldest].used) {
				oldest = name
			}
		}
		surplus = s.byName[oldest].Queue
		delete(s.byName, oldest)
	}
	s.byName[name] = &openQueue{opened, time.Now()}
	return opened, surplus
}

func (s *queues) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.byName {
		_ = q.Close(ctx) // it has no items
	}
	clear(s.byName)
}
