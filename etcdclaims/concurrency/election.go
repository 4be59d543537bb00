package concurrency

import (
	"context"
	"errors"
	"maps"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Election elects one of several sessions. The leader has the claim of the key, and what it proclaims
// is the note of that claim. Its methods may be called from several goroutines.
type Election struct {
	Held
	s   *Session
	pfx string
}

// leadership is one of a session. All of its Elections for the key share it.
type leadership struct {
	claim *etcdclaims.Claim
	pfx   string
	key   string // in etcd
	rev   int64  // at which it was created
}

// NewElection returns an election on the key pfx, without I/O. ErrInvalidKey of package etcdclaims
// describes which keys there are.
func NewElection(s *Session, pfx string) *Election { return &Election{s: s, pfx: pfx} }

// ResumeElection returns an election that leads, if the session still has the leadership of which Key and
// Rev, or Leader, have returned leaderKey and leaderRev. Otherwise it does not lead: a leadership
// of another session, as of a process that has ended, cannot be resumed.
func ResumeElection(s *Session, pfx string, leaderKey string, leaderRev int64) *Election {
	e := NewElection(s, pfx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leads {
		if l.key == leaderKey && l.rev == leaderRev {
			e.pfx = l.pfx
			e.add(l.claim)
		}
	}
	return e
}

// lead notes a leadership, and forgets those that have ended.
func (s *Session) lead(l *leadership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.leads, func(_ string, l *leadership) bool { return l.claim.Err() != nil })
	s.leads[l.pfx] = l
}

// leading returns the leadership of the session, or nil.
func (s *Session) leading(pfx string) *leadership {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leads[pfx]; l != nil && l.claim.Err() == nil {
		return l
	}
	return nil
}

// led returns the leadership of the election, or nil.
func (e *Election) led() *leadership {
	if l := e.s.leading(e.pfx); l != nil && l.claim == e.Claim() {
		return l
	}
	return nil
}

// Campaign waits until the session leads, with val as its value, or until ctx or the session ends. If it
// leads already, Campaign proclaims val. After an error the session does not lead. Of several calls
// of one session that wait at the same time, one leads after the other. The errors are
// ErrSessionExpired and those of [etcdclaims.Client.Acquire].
func (e *Election) Campaign(ctx context.Context, val string) error {
	if l := e.s.leading(e.pfx); l != nil {
		e.add(l.claim)
		err := e.Proclaim(ctx, val)
		if err == nil {
			return nil
		}
		_ = e.Resign(context.WithoutCancel(ctx))
		if !errors.Is(err, ErrElectionNotLeader) {
			return err
		}
	}
	claim, err := e.s.acquire(ctx, e.pfx, true, etcdclaims.Note([]byte(val)))
	if err != nil {
		return err
	}
	l := &leadership{claim: claim, pfx: e.pfx, key: e.s.claims.OwnKey(e.pfx), rev: claim.Revision()}
	e.s.lead(l)
	e.add(claim)
	return nil
}

// Proclaim replaces the value of the leader, which is 64 KiB long at most. etcd does so only if the
// session leads at that moment. Otherwise the error matches ErrElectionNotLeader.
func (e *Election) Proclaim(ctx context.Context, val string) error {
	claim := e.Claim()
	if claim == nil {
		return errtext.Call("proclaim", e.pfx, ErrElectionNotLeader)
	}
	err := claim.Note(ctx, []byte(val))
	if errors.Is(err, etcdclaims.ErrLost) || errors.Is(err, etcdclaims.ErrReleased) {
		return errtext.Both(ErrElectionNotLeader, e.s.expired(err))
	}
	return err
}

// Resign ends the leadership. It returns nil if the session does not lead, or not any more. Its errors
// are those of [etcdclaims.Claim.Release].
func (e *Election) Resign(ctx context.Context) error {
	err := e.unlock(ctx, e.s, e.pfx)
	if errors.Is(err, ErrLockReleased) || errors.Is(err, etcdclaims.ErrLost) {
		return nil
	}
	return err
}

// Key returns the key in etcd while the Election leads, and otherwise "". Rev is its creation revision.
func (e *Election) Key() string {
	if l := e.led(); l != nil {
		return l.key
	}
	return ""
}

// Rev returns the creation revision of Key, or 0.
func (e *Election) Rev() int64 {
	if l := e.led(); l != nil {
		return l.rev
	}
	return 0
}

// Header returns the revision at which the leadership began, or nil. No other field is set, and
// Proclaim does not change it.
func (e *Election) Header() *pb.ResponseHeader { return header(e.Claim()) }

// Leader returns the leader as the only key-value of the response, or ErrElectionNoLeader. Its key and
// creation revision are those of Key and Rev. Its value, modification revision and version
// are those of what was proclaimed.
func (e *Election) Leader(ctx context.Context) (*clientv3.GetResponse, error) {
	resp, err := e.s.leader(ctx, e.pfx)
	if err == nil && len(resp.Kvs) == 0 {
		err = ErrElectionNoLeader
	}
	if err != nil {
		return nil, errtext.Call("read the leader of", e.pfx, e.s.expired(err))
	}
	return resp, nil
}
