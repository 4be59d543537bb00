package webui

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/explain"
)

const (
	// mostSnapshots is how many snapshots are kept. Those that were not used for
	// longest go first.
	mostSnapshots = 256
	// mostPending is how many readings may be in progress or wait for their turn.
	mostPending = 256
	// readTimeout bounds one reading, and how long it waits for its turn.
	readTimeout = 5 * time.Second
	// shortest is the least time from one reading to the next.
	shortest = 150 * time.Millisecond
	// dutyCycle is the least ratio of the time between two reads to the time that one
	// takes. So a slow read does not become a load on etcd.
	dutyCycle = 10
	// staleCycle is the same for values that are known to have changed.
	staleCycle = 2
)

// snapshots are the results of reads from etcd, by name. All requests and all tabs
// share them.
type snapshots struct {
	h      *Handler
	slots  chan struct{} // one for each reading in progress
	mu     sync.Mutex    // taken before that of the tabs and that of the handler
	byName map[string]*snapshot

	pending int // readings that are in progress or wait for a slot
}

// snapshot is the result of the last read. Its fields are guarded by the mutex of
// snapshots.
type snapshot struct {
	name    string
	every   time.Duration
	read    func(context.Context) (any, error)
	value   any
	err     error
	at      time.Time     // when the value was read; zero if it never was
	tried   time.Time     // when the last reading ended
	took    time.Duration // the last reading
	stale   bool          // it has changed since
	acted   bool          // by an action of this page, whose result a person wants to see
	used    time.Time
	reading chan struct{} // closed when the reading in progress ends; nil if there is none
}

// errSlow is the error of a read that took too long.
var errSlow = errors.New("etcd has not answered yet")

func (s *snapshots) init(h *Handler) {
	s.h, s.byName, s.slots = h, make(map[string]*snapshot), make(chan struct{}, 8)
}

// clear forgets all snapshots, unless the handler is in use again.
func (s *snapshots) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.h.inUse() {
		clear(s.byName)
	}
}

// freshness is how old a value is.
type freshness struct {
	At  time.Time // when it was read; zero if it never was
	Err error     // why it could not be read again
}

// patience is until when a request waits: for what was never read or an action has changed, and
// for what is only due again.
type patience struct{ until, again time.Time }

// get returns the snapshot of a name, at most as old as every, unless etcd does not
// answer in time. It is read by the given function.
func (s *snapshots) get(
	ctx context.Context, wait patience, name string, every time.Duration, read func(context.Context) (any, error),
) (any, freshness) {
	s.mu.Lock()
	n := s.byName[name]
	if n == nil {
		if s.pending >= mostPending && !urgent(name) {
			s.mu.Unlock()
			return nil, freshness{Err: errSlow}
		}
		s.makeRoom()
		n = &snapshot{name: name, every: every, read: read}
		s.byName[name] = n
	}
	n.used = time.Now()
	until := wait.again
	if n.at.IsZero() || n.acted {
		until = wait.until
	}
	s.start(n)
	reading := n.reading
	s.mu.Unlock()
	if reading != nil {
		await(ctx, until, reading)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := freshness{At: n.at, Err: n.err}
	if n.at.IsZero() && n.err == nil {
		f.Err = errSlow
	}
	return n.value, f
}

// await waits for the channel to be closed, at most until a time.
func await(ctx context.Context, until time.Time, done <-chan struct{}) {
	select {
	case <-done:
	case <-time.After(time.Until(until)):
	case <-ctx.Done():
	}
}

// makeRoom drops the snapshot that was not used for longest if there are too many. It
// keeps those that tabs show. The mutex is held.
func (s *snapshots) makeRoom() {
	if len(s.byName) < mostSnapshots {
		return
	}
	shown := s.h.tabs.topics()
	var oldest *snapshot
	for _, n := range s.byName {
		if !shown[n.name] && (oldest == nil || n.used.Before(oldest.used)) {
			oldest = n
		}
	}
	if oldest != nil {
		delete(s.byName, oldest.name)
	}
}

// urgent reports whether a snapshot is read as often after slow reads as after quick ones, and without
// waiting for others. The status and the members are: they show that etcd is slow, and their reads are
// short and have timeouts of their own.
func urgent(topic string) bool { return topic == statusTopic || topic == membersTopic }

// start reads a snapshot in the background if that is due. The mutex is held.
func (s *snapshots) start(n *snapshot) {
	took := n.took
	if urgent(n.name) {
		took = 0
	}
	pause := max(n.every, dutyCycle*took)
	if n.stale {
		pause = max(shortest, staleCycle*took)
	}
	if n.reading != nil || time.Since(n.tried) < pause || s.pending >= mostPending && !urgent(n.name) {
		return
	}
	done := make(chan struct{})
	n.reading, n.stale, n.acted = done, false, false
	if !s.h.spawn(func() { s.load(n, done) }) {
		n.reading = nil
		return
	}
	s.pending++
}

// load reads a snapshot, and notifies the tabs that show it if it has changed.
func (s *snapshots) load(n *snapshot, done chan struct{}) {
	value, begun, err := s.read(n)
	s.mu.Lock()
	s.pending--
	changed := text(n.err) != text(err) || err == nil && !reflect.DeepEqual(n.value, value)
	n.tried, n.reading, n.err = time.Now(), nil, err
	switch {
	case err == nil:
		n.value, n.at, n.took = value, begun, time.Since(begun)
	case errors.Is(err, errSlow): // etcd was not asked
	case time.Since(begun) >= readTimeout || errors.Is(err, context.DeadlineExceeded):
		n.took = time.Since(begun) // it may be too slow each time
	default:
		n.took = 0 // it is tried again as soon as if it had been quick
	}
	s.mu.Unlock()
	close(done)
	if changed {
		s.h.tabs.topicChanged(n.name)
	}
}

// read reads a snapshot when there is a slot for it. The error is errSlow if no value
// came in time.
func (s *snapshots) read(n *snapshot) (value any, begun time.Time, err error) {
	if !urgent(n.name) {
		if !s.takeSlot() {
			return nil, time.Now(), errSlow
		}
		defer func() { <-s.slots }()
	}
	ctx, cancel := context.WithTimeout(s.h.ctx, readTimeout)
	defer cancel()
	begun = time.Now()
	value, err = n.read(ctx)
	return value, begun, err
}

// takeSlot waits for a slot, and reports whether there was one in time.
func (s *snapshots) takeSlot() bool {
	select {
	case s.slots <- struct{}{}:
		return true
	case <-time.After(readTimeout):
	case <-s.h.ctx.Done():
	}
	return false
}

// peek returns the value of a snapshot if it was read since a time.
func (s *snapshots) peek(name string, since time.Time) (value any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.byName[name]; n != nil && n.at.After(since) {
		value = n.value
	}
	return value
}

// refresh reads the named snapshots again as far as that is due.
func (s *snapshots) refresh(names map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range names {
		if n := s.byName[name]; n != nil {
			n.used = time.Now()
			s.start(n)
		}
	}
}

// invalidate notes that a snapshot is outdated, and reports whether there is one.
func (s *snapshots) invalidate(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.byName[name]
	if n != nil {
		n.stale = true
	}
	return n != nil
}

// invalidateAll notes that an action has outdated all snapshots.
func (s *snapshots) invalidateAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.byName {
		n.stale, n.acted = true, true
	}
}

// first returns the first entries of a list, at most n.
func first[T any](n int, list iter.Seq2[T, error]) ([]T, error) {
	all, _, err := explain.First(list, n)
	return all, err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
