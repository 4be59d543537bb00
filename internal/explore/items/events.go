package items

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/item"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

type event = search.Event[State]

// act is an event that changes a copy of the state.
func (s State) act(tell func() string, do func(*State) error) event {
	return event{Tell: tell, Do: func() (State, error) {
		next := s
		err := do(&next)
		if next.workers[0].since == 0 && next.workers[1].since == 0 {
			next.etcd = next.etcd.Compact(next.etcd.Revision())
		}
		return next, err
	}}
}

// spend adds an event of a kind that is limited, as long as it may happen.
func (s State) spend(all []event, kind Kind, tell func() string, do func(*State) error) []event {
	if s.left[kind] == 0 {
		return all
	}
	s.left[kind]--
	return append(all, s.act(tell, do))
}

// does makes an event of what shows no violation by itself.
func does(f func(*State)) func(*State) error {
	return func(s *State) error {
		f(s)
		return nil
	}
}

// Events returns all that can happen next.
func (s State) Events() (all []event) {
	for i := range s.workers {
		all = append(all, s.network(i)...)
		all = append(all, s.faults(i)...)
		if w := &s.workers[i]; !w.dead && w.sent == nil && w.reply == nil {
			all = append(all, s.steps(i, false)...)
			all = append(all, s.choices(i)...)
		}
	}
	if s.paused() {
		all = append(all, s.resumed())
	} else {
		all = s.spend(all, Pause, operated("paused"), operates(keys.Pause(item.Pausing{}, 0)))
	}
	for n, r := range s.strays {
		if n > 0 && slices.Equal(r.sig, s.strays[n-1].sig) {
			continue
		}
		all = append(all, s.act(func() string {
			return fmt.Sprintf("a late %s of %s arrived", r.step, s.workers[r.by].name(r.by))
		}, func(s *State) error { return s.strayArrives(n) }))
	}
	return all
}

func (s *State) paused() bool { return s.etcd.Get(keys.Paused()).Modified > 0 }

func (s State) resumed() event { return s.act(operated("resumed"), operates(keys.Resume())) }

// operated and operates are what an operator does to the queue.
func operated(what string) func() string {
	return func() string { return "an operator " + what + " the queue" }
}

func operates(in *pb.TxnRequest) func(*State) error {
	return func(s *State) (err error) {
		s.etcd, _, err = s.etcd.Txn(in)
		return err
	}
}

// network is what can become of a request of the worker.
func (s State) network(i int) (all []event) {
	w := &s.workers[i]
	tell := func(what string) func() string {
		step := ""
		if w.sent != nil {
			step = w.sent.step
		}
		return func() string { return fmt.Sprintf(what, w.name(i), step) }
	}
	switch {
	case w.dead:
	case w.reply != nil:
		all = append(all, s.act(tell("%s got its reply%s"), func(s *State) error { return s.receive(i) }))
	case w.sent != nil:
		all = append(all, s.arrival(i))
		all = s.spend(all, Twice, tell("%s's %s arrived, and once more is under way"), func(s *State) error {
			s.stray(s.workers[i].sent)
			return s.arrive(i)
		})
		all = s.spend(all, Late, tell("%s waited no longer for its %s, which is under way"), does(func(s *State) {
			s.stray(s.workers[i].sent)
			s.unknown(i)
		}))
		if w.sent.held.Rev > 0 {
			all = s.spend(all, GiveUp, tell("%s waited no longer for its %s, and gave the item up"), does(func(s *State) {
				s.stray(s.workers[i].sent)
				s.abandon(i)
			}))
		}
		all = s.spend(all, LostReply, tell("%s's %s arrived, its reply was lost"), func(s *State) error {
			_, err := s.carry(s.workers[i].sent)
			s.unknown(i)
			return err
		})
	}
	return all
}

func (s State) arrival(i int) event {
	w := &s.workers[i]
	tell := func() string { return fmt.Sprintf("%s's %s arrived", w.name(i), w.sent.step) }
	return s.act(tell, func(s *State) error { return s.arrive(i) })
}

// faults are what befalls a worker and its session.
func (s State) faults(i int) (all []event) {
	w := &s.workers[i]
	if !w.dead && !s.workers[1-i].dead && w.session > 0 {
		all = s.spend(all, Crash, func() string { return w.name(i) + " died" }, does(func(s *State) {
			w := &s.workers[i]
			if w.sent != nil {
				s.stray(w.sent)
			}
			*w = worker{dead: true, session: w.session}
		}))
	}
	switch {
	case !s.leaseLives(i):
	case w.dead:
		all = append(all, s.expiry(i))
	default:
		all = s.spend(all, Expiry, s.expired(i), does(func(s *State) { s.expire(i) }))
	}
	return all
}

func (s State) expired(i int) func() string {
	return func() string { return "the lease of " + s.workers[i].name(i) + " ended" }
}

func (s State) expiry(i int) event {
	return s.act(s.expired(i), does(func(s *State) { s.expire(i) }))
}

// steps are what the worker can do by itself: all of it, or what it does first.
func (s State) steps(i int, one bool) (all []event) {
	w := &s.workers[i]
	add := func(tell string, do func(*State) error) {
		if len(all) == 0 || !one {
			all = append(all, s.act(func() string { return w.name(i) + " " + tell }, do))
		}
	}
	switch {
	case w.session == 0:
		add("opened a session", func(s *State) error { return s.open(i) })
	case w.doubt:
		add("looked for items of which it does not know", does(func(s *State) { s.giveVoid(i) }))
	case len(w.holds) > 0:
		add("completed "+w.holds[0].State.ID, does(func(s *State) { s.verb(i, -1) }))
	}
	if len(all) > 0 {
		return all
	}
	for n := range s.scope.Items {
		if w.todo&(1<<n) != 0 {
			add("enqueued "+ids[n], does(func(s *State) { s.enter(i, n) }))
			break
		}
	}
	if !one && s.workers[1-i].session > 0 {
		tell := func() string { return w.name(i) + " took the session of the other one for ended" }
		all = s.spend(all, Alarm, tell, func(s *State) error {
			return s.recover(i, sessionOf(1-i, s.workers[1-i].session))
		})
	}
	if !s.scope.Idle {
		for _, session := range s.endedSessions() {
			add("recovered items of session "+session, func(s *State) error { return s.recover(i, session) })
		}
	}
	for _, name := range names(s.etcd.Under(keys.Later())) {
		add("promoted an item", func(s *State) error { return s.promote(i, name) })
	}
	if s.paused() {
		return all // see the read of its head in queue/round.go
	}
	ready := names(s.etcd.Under(keys.Ready()))
	if all := ready; s.scope.Batch > 1 && len(all) > 1 {
		add("claimed all items", func(s *State) error { return s.claimItems(i, all...) })
	}
	if !s.scope.AnyOrder {
		ready = ready[:min(1, len(ready))]
	}
	for _, name := range ready {
		add("claimed an item", func(s *State) error { return s.claimItems(i, name) })
	}
	return all
}

// choices are what a handler can do instead of completing its item, and others with it.
func (s State) choices(i int) (all []event) {
	w := &s.workers[i]
	if w.session == 0 || w.doubt {
		return nil
	}
	if len(w.holds) == 0 {
		for _, h := range s.workers[1-i].holds {
			if h.end == nil && !h.Elsewhere {
				tell := func() string { return w.name(i) + " adopted " + h.State.ID }
				all = s.spend(all, Adopt, tell, does(func(s *State) {
					h.By, h.Elsewhere = "by", true
					s.workers[i].holds = []hold{h}
				}))
			}
		}
		return all
	}
	for _, choice := range [...]struct {
		kind Kind
		tell string
	}{{Fail, "failed"}, {Bury, "failed for good"}, {Discard, "discarded"}, {Release, "released"}, {Snooze, "snoozed"}} {
		tell := func() string { return fmt.Sprintf("%s %s %s", w.name(i), choice.tell, w.holds[0].State.ID) }
		all = s.spend(all, choice.kind, tell, does(func(s *State) { s.verb(i, choice.kind) }))
	}
	if h := w.holds[0]; h.Elsewhere {
		tell := func() string { return w.name(i) + " moved " + h.State.ID + " to its session" }
		all = s.spend(all, Move, tell, does(func(s *State) { s.moveHere(i) }))
	}
	return all
}

// Calm is the next event of a run without faults.
func (s State) Calm() (event, bool) {
	if s.paused() {
		return s.resumed(), true
	}
	for i := range s.workers {
		w := &s.workers[i]
		switch {
		case w.dead && s.leaseLives(i):
			return s.expiry(i), true
		case w.dead:
		case w.sent != nil || w.reply != nil:
			return s.network(i)[0], true
		default:
			if all := s.steps(i, true); len(all) > 0 && (w.session > 0 || s.work()) {
				return all[0], true
			}
		}
	}
	return event{}, false
}

// work reports whether a worker without a session has a reason to open one.
func (s *State) work() bool {
	return len(s.etcd.Under(keys.Ready()))+len(s.etcd.Under(keys.Later()))+len(s.etcd.Under(keys.Taken())) > 0 ||
		s.workers[0].todo+s.workers[1].todo > 0
}

// Settled returns what is wrong with a state in which nothing is left to be done.
func (s State) Settled() error {
	var errs []error
	for i := range s.scope.Items {
		l := s.ledger[i]
		if l.put == 0 && s.workers[0].dead == s.workers[1].dead {
			errs = append(errs, fmt.Errorf("%s was not enqueued", ids[i]))
		}
		if l.put > l.done && len(s.places(ids[i], keys.Dead())) == 0 {
			errs = append(errs, fmt.Errorf("%s is not done", ids[i]))
		}
	}
	return errors.Join(errs...)
}
