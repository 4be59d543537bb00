package queue

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"go.uber.org/zap"
)

// turns is the order in which waiting processes act on what all of them see. Each registers below
// index/idle/, and computes how many of the others come before it: its rank (rendezvous hashing).
// The first one acts at once, the next one a step later if there is still something to do. So one
// enqueue causes one claiming request, and a process that is busy, frozen or dead costs one step.
// Nothing depends on it but speed: a claim is safe, whichever process sends it, and when.
type turns struct {
	self   uint64            // hash of this process's session
	others map[string]uint64 // waiting processes by session, with their hashes
	trip   time.Duration     // how long a claiming request takes, smoothed
}

const (
	// A step is twice as long as a claiming request takes, between these.
	minStep = 2 * time.Millisecond
	maxStep = 100 * time.Millisecond
	// mostSteps bounds the steps. A process with more before it waits for at most twice
	// as many, at random.
	mostSteps = 16
)

// note notes that a session's process waits, or does not wait any more.
func (t *turns) note(session string, waits bool) {
	if waits {
		t.others[session] = hash(session)
	} else {
		delete(t.others, session)
	}
}

// of returns when this process may act on something.
func (t *turns) of(what string, now time.Time) time.Time {
	h := hash(what)
	mine, before := mix(t.self^h), 0
	for _, other := range t.others {
		if other != t.self && mix(other^h) > mine {
			before++
		}
	}
	if before > mostSteps {
		before = mostSteps + rand.N(mostSteps)
	}
	return now.Add(time.Duration(before) * t.step())
}

func (t *turns) step() time.Duration { return min(max(2*t.trip, minStep), maxStep) }

// took notes how long a claiming request took.
func (t *turns) took(d time.Duration) {
	if t.trip += (d - t.trip) / 8; t.trip == 0 {
		t.trip = d
	}
}

// hash is FNV-1a.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// idle is the registration of this process as one that waits. The claimer's goroutine alone
// uses it.
type idle struct {
	s    *session  // registered under it, or nil
	last time.Time // when it last waited
}

// idleLinger is how long a process stays registered when no caller waits any more, so
// that a short job costs no registration.
const idleLinger = time.Second

// enter registers the process. A request of unknown outcome is repeated the next time:
// a registration that is not true costs others one step.
func (i *idle) enter(s *session) {
	i.last = clock.Mono()
	if i.s != nil && i.s.usable() {
		return
	}
	_, again, err := s.commit(s.q.ctx, s.generation().Register())
	switch {
	case err != nil:
		s.q.log.Debug("waiting process not registered", zap.Error(err))
	case !again:
		i.s = s
	}
}

// leave removes the registration if no caller has waited for idleLinger, and returns how long
// it is until then.
func (i *idle) leave() time.Duration {
	if left := idleLinger - time.Since(i.last); i.s != nil && left > 0 {
		return left
	}
	if s := i.s; s != nil {
		i.s = nil
		if _, _, err := s.commit(s.q.ctx, s.generation().Unregister()); err != nil {
			s.q.log.Debug("waiting process not unregistered", zap.Error(err))
		}
	}
	return math.MaxInt64
}
