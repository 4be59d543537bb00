package work

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Callers that wait for work want to know how it ends: most of a crowd never begin it. If
// each learned that when its turn in line comes, the last would wait for all others. So
// those of one client take turns in line, and share a watch of the record and what is read
// of it. An outcome costs one event and one read a client, however many wait.
//
// Events are hints. What answers a caller was read after the caller came: a record from
// before may have been forgotten since.

// patience is how long a caller waits in line before the record is watched.
const patience = 200 * time.Millisecond

// outcomes are those of work that callers of a client wait for. No other mutex is taken
// while its own is held.
type outcomes struct {
	host beside.Host // set by New

	mu    sync.Mutex
	byKey map[string]*outcome // guarded by mu
}

// outcome is that of one piece of work, for as long as callers wait for it.
type outcome struct {
	all     *outcomes       // these are set by seek
	key, at string          // of the work, and of its record in etcd
	over    context.Context // ends when no caller waits any more
	stop    context.CancelFunc

	// Guarded by all.mu:
	seekers map[*seeker]struct{}
	turns   []*seeker        // the first is in line, or on its way there; the others wait for their turn
	own     *mvccpb.KeyValue // the claim that the one in line has found
	watched bool             // the record is watched, or soon will be
	reading bool             // a read of the record is under way
	again   bool             // and another is due
}

// seeker is a caller that waits for work. A nil one does not.
type seeker struct {
	of    *outcome      // these are set by seek
	again []State       // in which the work is begun nevertheless
	turn  chan struct{} // closed when it may join the line
	news  chan struct{} // holds one element when there is a record

	// Guarded by of.all.mu:
	record *mvccpb.KeyValue // that ends its waiting, or nil
	wake   func()           // makes the call look again, once it is in line
}

// seek lists a caller that waits for work, until leave is called.
func (os *outcomes) seek(key, at string, again []State, outOfTurn bool) *seeker {
	s := &seeker{again: again, turn: make(chan struct{}), news: make(chan struct{}, 1)}
	os.mu.Lock()
	defer os.mu.Unlock()
	o := os.byKey[key]
	if o == nil {
		o = &outcome{all: os, key: key, at: at, seekers: make(map[*seeker]struct{})}
		o.over, o.stop = context.WithCancel(os.host.Open())
		os.byKey[key] = o
	}
	s.of = o
	o.seekers[s] = struct{}{}
	if outOfTurn {
		close(s.turn) // it may pass others
	} else if o.turns = append(o.turns, s); len(o.turns) == 1 {
		close(s.turn)
	}
	return s
}

// leave ends what seek began.
func (s *seeker) leave() {
	if s == nil {
		return
	}
	o := s.of
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if i := slices.Index(o.turns, s); i >= 0 {
		if o.turns = slices.Delete(o.turns, i, i+1); i == 0 && len(o.turns) > 0 {
			close(o.turns[0].turn)
		}
	}
	if delete(o.seekers, s); len(o.seekers) == 0 {
		o.stop()
		delete(o.all.byKey, o.key)
	}
}

// inLine notes that the caller is in line. From now on an outcome wakes it.
func (s *seeker) inLine(wake func()) {
	if s == nil {
		return
	}
	o := s.of
	o.all.mu.Lock()
	s.wake = wake
	watched := o.watched
	o.watched = true
	o.all.mu.Unlock()
	if !watched {
		o.all.host.Go(func(context.Context) { o.watch() })
	}
}

// found notes the claim that a caller in line has found, if not nil, and returns the last
// one.
func (s *seeker) found(own *mvccpb.KeyValue) *mvccpb.KeyValue {
	if s == nil {
		return nil
	}
	s.of.all.mu.Lock()
	defer s.of.all.mu.Unlock()
	if own != nil {
		s.of.own = own
	}
	return s.of.own
}

// take returns the record that was read for the caller, or nil. A second call returns nil.
func (s *seeker) take() (kv *mvccpb.KeyValue) {
	if s == nil {
		return nil
	}
	s.of.all.mu.Lock()
	defer s.of.all.mu.Unlock()
	kv, s.record = s.record, nil
	return kv
}

// read reads the record for all callers that wait for it now, if there are any.
func (os *outcomes) read(key string) {
	os.mu.Lock()
	o := os.byKey[key]
	os.mu.Unlock()
	if o != nil {
		o.read()
	}
}

// read reads the record, in the background, for all callers that wait for it now.
func (o *outcome) read() {
	o.all.mu.Lock()
	reads := !o.reading
	o.again, o.reading = o.reading, true
	o.all.mu.Unlock()
	if reads {
		o.all.host.Go(func(context.Context) {
			for o.readOnce() {
				continue
			}
		})
	}
}

// readOnce reports whether another read is due.
func (o *outcome) readOnce() bool {
	o.all.mu.Lock()
	asking := slices.Collect(maps.Keys(o.seekers))
	o.again = false
	o.all.mu.Unlock()
	var kv *mvccpb.KeyValue
	resp, err := o.all.host.Read(o.over, clientv3.OpGet(o.at))
	if err == nil {
		kv = txn.First(resp, 0)
	}
	answered := o.ends(kv, asking)
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	for _, s := range answered {
		s.record = kv
		if s.wake != nil {
			s.wake()
		}
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
	o.reading = o.again && txn.ContextError(o.over) == nil
	return o.reading
}

// ends returns those of the callers whose waiting the record ends, none if it is nil.
func (o *outcome) ends(kv *mvccpb.KeyValue, of []*seeker) (all []*seeker) {
	if kv == nil {
		return nil
	}
	r, err := record.Decode(o.key, kv)
	if err != nil {
		return nil // deleted, or unreadable
	}
	now := o.all.host.Now()
	for _, s := range of {
		if r.IsOver(now, s.again) {
			all = append(all, s)
		}
	}
	return all
}

// watch watches the record until no caller waits any more.
func (o *outcome) watch() {
	if retry.Sleep(o.over, patience) { // most waiting is over soon
		retry.Forever(o.over, o.follow)
	}
}

// follow reads the record as soon as a watch has begun, and whenever that brings an
// outcome. It returns when the watch ends, and reports whether there were events.
func (o *outcome) follow() (heard bool) {
	news, stop := o.all.host.Watch(o.over, o.at)
	defer stop()
	o.read()
	for resp := range news {
		if resp.Err() != nil {
			break
		}
		for _, ev := range resp.Events {
			heard = true
			o.all.mu.Lock()
			asking := slices.Collect(maps.Keys(o.seekers))
			o.all.mu.Unlock()
			if len(o.ends(ev.Kv, asking)) > 0 {
				o.read()
			}
		}
	}
	return heard
}

// waiting is how many callers wait for their turn.
func (os *outcomes) waiting() (n int) {
	os.mu.Lock()
	defer os.mu.Unlock()
	for _, o := range os.byKey {
		n += max(0, len(o.turns)-1)
	}
	return n
}
