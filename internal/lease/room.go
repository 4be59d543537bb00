package lease

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
)

// claimsPerLease is how many claims a lease has at most: ending a lease with 100,000 keys stalls etcd for 327 ms,
// with 10,000 for 25.
const claimsPerLease = 8192

// idle is for how many of its TTLs an empty session is kept, for the next claim. After
// that an unused client costs etcd only a watch.
const idle = 2

// Member is a claim on a session's lease. It embeds a [Seat].
type Member interface {
	// Stop ends the context of the work under the claim: its deadline is near.
	Stop(why claimerr.Loss)
	// Lose ends the claim, unless it has ended. It reports whether it has done so. Lost reports that to observers.
	Lose(why claimerr.Loss) bool
	Lost(why claimerr.Loss)
	// Woke is called when the machine has slept.
	Woke(now clock.Reading)

	seat() *Seat
}

// Seat is the place of a claim in its session. The mutex of the session guards it.
type Seat struct{ at int }

func (s *Seat) seat() *Seat { return s }

// room is what a session carries, and may still carry. The mutex of the session guards it.
type room struct {
	members  []Member
	reserved int                 // acquisitions in flight
	full     bool                // takes no more claims until it is empty
	retiring bool                // is being revoked, since it is not needed
	voids    map[string]struct{} // tickets that were made void by a key on its lease
	empty    time.Time           // since when it has carried nothing
	unused   *time.Timer         // checks later whether it is still empty
}

// isEmpty reports whether there is neither a claim nor an acquisition.
func (r *room) isEmpty() bool { return len(r.members)+r.reserved == 0 }

// carries returns how many keys the lease has, or may soon have: claims, and void
// keys. Those make requests void that were given up. They stay as long as the lease,
// since such requests can arrive as long.
func (r *room) carries() int { return len(r.members) + r.reserved + len(r.voids) }

// reserve takes a place for one more claim, if the session has one and is good
// for new work.
func (s *Session) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || s.room.retiring || s.room.full || s.room.carries() >= claimsPerLease || !s.Fresh() {
		return false
	}
	s.reserveLocked()
	return true
}

func (s *Session) reserveLocked() {
	if s.room.isEmpty() {
		s.p.noteUse()
	}
	s.room.reserved++
}

// ReserveMore takes up to n more places, for claims that must be in one session, and
// returns how many it took. A session without room for all of them counts as full.
func (s *Session) ReserveMore(n int) (taken int) {
	for ; taken < n; taken++ {
		if !s.reserve() {
			s.mu.Lock()
			s.room.full = s.room.full || s.room.carries() >= claimsPerLease
			s.mu.Unlock()
			break
		}
	}
	return taken
}

// Again takes a place in the session once more, for a caller that gives it back.
func (s *Session) Again() {
	s.mu.Lock()
	s.reserveLocked()
	s.mu.Unlock()
}

// Unreserve gives a place back.
func (s *Session) Unreserve() {
	s.mu.Lock()
	s.room.reserved--
	s.emptiedLocked()
	s.mu.Unlock()
	s.RetireIdle()
}

// Voided notes that a ticket is made void on the session's lease.
func (s *Session) Voided(ticket string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room.voids == nil {
		s.room.voids = make(map[string]struct{})
	}
	s.room.voids[ticket] = struct{}{}
}

// Add puts a claim in the place that was reserved for it. It reports false, and the place stays reserved, if the
// session was given up, or if admit returns false. That is called with the mutex held.
func (s *Session) Add(m Member, admit func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || !admit() {
		return false
	}
	s.room.reserved--
	m.seat().at = len(s.room.members)
	s.room.members = append(s.room.members, m)
	return true
}

// Remove takes a claim that has ended out of the session.
func (s *Session) Remove(m Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, at := s.room.members, m.seat().at
	if at >= len(all) || all[at] != m {
		return
	}
	last := all[len(all)-1]
	all[at], last.seat().at = last, at
	all[len(all)-1] = nil
	s.room.members = all[:len(all)-1]
	s.emptiedLocked()
}

// MembersOf returns the claims of a session, which all have the type M.
func MembersOf[M Member](s *Session) []M {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]M, len(s.room.members))
	for i, m := range s.room.members {
		all[i] = m.(M) //nolint:forcetypeassert // it is for its caller to know
	}
	return all
}

// Size returns how many claims the session has.
func (s *Session) Size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.room.members)
}

// isUsed reports whether the session has claims, or acquisitions under way.
func (s *Session) isUsed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.room.isEmpty()
}

func (s *Session) roomy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause == nil && !s.room.retiring && !s.room.full && s.room.carries() < claimsPerLease/2
}

// emptiedLocked arranges the end of a session that carries nothing any more, if it
// stays empty. The mutex is held.
func (s *Session) emptiedLocked() {
	if !s.room.isEmpty() || s.cause != nil || s.manual {
		return
	}
	s.room.empty = clock.Mono()
	if s.room.unused == nil { // else the timer checks that when it fires
		s.room.unused = time.AfterFunc(idle*s.Grant().TTL, s.endUnused)
	}
}

func (s *Session) endUnused() {
	s.mu.Lock()
	if s.cause != nil || s.room.retiring || !s.room.isEmpty() {
		s.room.unused = nil
		s.mu.Unlock()
		return
	}
	if left := idle*s.Grant().TTL - time.Since(s.room.empty); left > 0 {
		s.room.unused.Reset(left)
		s.mu.Unlock()
		return
	}
	s.room.retiring = true
	s.mu.Unlock()
	s.retire()
}

// RetireIdle gives up a session that is not needed: a manual one without its
// claim, or one of several with the same TTL.
func (s *Session) RetireIdle() {
	if s.p.cfg.Life.Open.Err() != nil {
		return // Close does that, once the lease has no needed keys
	}
	s.mu.Lock()
	if s.room.isEmpty() {
		s.room.full = false
	}
	s.mu.Unlock()
	if !s.manual && !s.p.hasRoomBeside(s) {
		return
	}
	s.mu.Lock()
	if s.cause != nil || s.room.retiring || !s.room.isEmpty() {
		s.mu.Unlock()
		return
	}
	s.room.retiring = true
	s.mu.Unlock()
	s.retire()
}

// errOthersFirst puts a cleanup off until the others of its session are done.
var errOthersFirst = errors.New("etcdclaims: other cleanups come first")

// retire ends a session that takes no claims any more.
func (s *Session) retire() {
	if s.p.cfg.Life.Open.Err() != nil {
		return // Close does
	}
	s.CleanUp("revoking an idle lease", func(context.Context) error {
		if s.pending.Load() > 1 {
			return errOthersFirst // they need the lease
		}
		s.revoke()
		s.Die(claimerr.Loss{Reason: claimerr.Shutdown})
		return nil
	})
}
