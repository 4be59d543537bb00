package webui

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"
)

const (
	// mostSnapshots is how many snapshots are kept. Those that were not used for
	// longest go first.
	mostSnapshots = 256
	// readTimeout bounds one reading.
	readTimeout = 5 * time.Second
	// shortest is the least time from one reading to the next.
	shortest = 150 * time.Millisecond
	// dutyCycle is the least ratio of the time between two readings to the time that
	// one takes, so that a slow one does not become a load on etcd.
	dutyCycle = 10
	// staleCycle is the same for what is known to have changed.
	staleCycle = 2
)

// snapshots are what was read from etcd, by name. All requests and all tabs share them.
type snapshots struct {
	h      *Handler
	slots  chan struct{} // one for each reading in progress
	mu     sync.Mutex
	byName map[string]*snapshot
}

// snapshot is what was read last. Its fields are guarded by the mutex of snapshots.
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
	used    time.Time
	reading chan struct{} // closed when the reading in progress ends; nil if there is none
}

// errSlow is the error of what could not be read in time.
var errSlow = errors.New("etcd has not answered yet")

func (s *snapshots) init(h *Handler) {
	s.h, s.byName, s.slots = h, make(map[string]*snapshot), make(chan struct{}, 8)
}

func (s *snapshots) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.byName)
}

// Fresh says of when a value is.
type Fresh struct {
	At  time.Time // when it was read; zero if it never was
	Err error     // why it could not be read again
}

// get returns the snapshot of a name, at most as old as every, unless etcd does not
// answer before the time until. It is read by the given function.
func (s *snapshots) get(ctx context.Context, until time.Time, name string, every time.Duration, read func(context.Context) (any, error)) (any, Fresh) {
	s.mu.Lock()
	n := s.byName[name]
	if n == nil {
		s.makeRoom()
		n = &snapshot{name: name, every: every, read: read}
		s.byName[name] = n
	}
	n.used = time.Now()
	s.start(n)
	reading := n.reading
	s.mu.Unlock()
	if reading != nil {
		patience := time.NewTimer(time.Until(until))
		defer patience.Stop()
		select {
		case <-reading:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := Fresh{At: n.at, Err: n.err}
	if n.at.IsZero() && n.err == nil {
		f.Err = errSlow
	}
	return n.value, f
}

// makeRoom drops the snapshot that was not used for longest if there are too many. The
// mutex is held.
func (s *snapshots) makeRoom() {
	if len(s.byName) < mostSnapshots {
		return
	}
	var oldest *snapshot
	for _, n := range s.byName {
		if oldest == nil || n.used.Before(oldest.used) {
			oldest = n
		}
	}
	delete(s.byName, oldest.name)
}

// start reads a snapshot in the background if that is due. The mutex is held.
func (s *snapshots) start(n *snapshot) {
	pause := max(n.every, dutyCycle*n.took)
	if n.stale {
		pause = max(shortest, staleCycle*n.took)
	}
	if n.reading != nil || time.Since(n.tried) < pause {
		return
	}
	done := make(chan struct{})
	n.reading, n.stale = done, false
	if !s.h.spawn(func() { s.load(n, done) }) {
		n.reading = nil
	}
}

// load reads a snapshot, and notifies the tabs that show it if it has changed.
func (s *snapshots) load(n *snapshot, done chan struct{}) {
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	ctx, cancel := context.WithTimeout(s.h.ctx, readTimeout)
	defer cancel()
	begun := time.Now()
	value, err := n.read(ctx)
	s.mu.Lock()
	changed := text(n.err) != text(err) || err == nil && !reflect.DeepEqual(n.value, value)
	n.tried, n.took, n.reading, n.err = time.Now(), time.Since(begun), nil, err
	if err == nil {
		n.value, n.at = value, begun
	} else {
		n.took = 0 // it is tried again as soon as if it had been quick
	}
	s.mu.Unlock()
	close(done)
	if changed {
		s.h.tabs.topicChanged(n.name)
	}
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

// invalidateAll notes that all snapshots are outdated.
func (s *snapshots) invalidateAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.byName {
		n.stale = true
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
