package lease

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

const (
	ttl   = 30 * time.Second
	drain = 5 * time.Second
)

// The deadlines of a lease of ttl.
const (
	soft = 21700 * time.Millisecond
	hard = soft + drain
)

var errAway = errors.New("away")

// world is a pool on an etcd in memory, in virtual time.
type world struct {
	*Pool
	*testlayers.Parts
	logs  *observer.ObservedLogs
	turns testlayers.Journal // of verifications
	news  testlayers.Journal // of members, and of what Notices call
	began atomic.Int64

	mu       sync.Mutex
	sent     map[string]int // requests, by kind
	answer   func(kind string, in *pb.TxnRequest) error
	verify   func(s *Session, what Turn) (Verified, error)
	renewals []Renewal
}

// in runs a test in virtual time. Nothing of the pool may go on after it.
func in(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	testlayers.In(t, newWorld, test)
}

// End ends the client.
func (w *world) End() {
	for _, s := range w.Live() {
		s.Die(claimerr.Loss{Reason: claimerr.Shutdown})
	}
	w.Parts.End()
}

func newWorld() *world {
	core, logs := observer.New(zap.InfoLevel)
	w := &world{Parts: testlayers.New(zap.New(core)), logs: logs, sent: make(map[string]int)}
	w.Etcd.Sent = func(kind string, in *pb.TxnRequest) error {
		w.mu.Lock()
		w.sent[kind]++
		answer := w.answer
		w.mu.Unlock()
		if answer != nil {
			return answer(kind, in)
		}
		return nil
	}
	w.Pool = NewPool(Config{
		Etcd: w.Client, Store: w.Store, Clock: w.Clock, Log: w.Log, Owner: "owner", Life: w.Life, Outage: w.Outage,
		Timing: func(ttl time.Duration) Timing { return NewTiming(ttl, drain) },
		Verify: func(_ context.Context, s *Session, what Turn) (Verified, error) {
			w.mu.Lock()
			verify := w.verify
			w.mu.Unlock()
			if verify != nil {
				return verify(s, what)
			}
			return Verified{Rev: 1}, nil
		},
		Renewed: func(_ *Session, r Renewal) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.renewals = append(w.renewals, r)
		},
		Began: func(rev int64) { w.began.Add(rev) },
	})
	return w
}

// answers sets what etcd answers in place of its replies; nil ends that.
func (w *world) answers(f func(kind string, in *pb.TxnRequest) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

// fails has etcd answer requests of a kind with an error.
func (w *world) fails(kind string, err error) {
	w.answers(func(k string, _ *pb.TxnRequest) error {
		if k == kind {
			return err
		}
		return nil
	})
}

// hangs has etcd answer requests of a kind once the channel is closed.
func (w *world) hangs(kind string) (answered chan struct{}) {
	answered = make(chan struct{})
	w.answers(func(k string, _ *pb.TxnRequest) error {
		if k == kind {
			<-answered
		}
		return nil
	})
	return answered
}

// verifies sets how claims are verified.
func (w *world) verifies(f func(s *Session, what Turn) (Verified, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verify = f
}

// requests returns how many requests of a kind were sent.
func (w *world) requests(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[kind]
}

// renewed returns how many renewals were reported.
func (w *world) renewed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.renewals)
}

// open returns a session with a place reserved in it. A manual one is renewed by nobody.
func (w *world) open(t *testing.T, manual bool) *Session {
	t.Helper()
	s, err := w.Session(context.Background(), ttl, manual)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// add puts members of these names on a session.
func (w *world) add(t *testing.T, s *Session, names ...string) (all []*member) {
	t.Helper()
	for _, name := range names {
		s.Again()
		m := &member{w: w, s: s, name: name}
		if !s.Add(m, func() bool { return true }) {
			t.Fatal("not added:", name)
		}
		all = append(all, m)
	}
	return all
}

// member notes the calls of its session. It notes, too, if the session's mutex is held.
type member struct {
	Seat
	w     *world
	s     *Session
	name  string
	ended bool // by another than its session
}

func (m *member) note(what string) {
	if !m.s.mu.TryLock() {
		what += " under the mutex"
	} else {
		m.s.mu.Unlock()
	}
	if m.s.Ended() {
		what += " (dead)"
	}
	m.w.news.Note(what)
}

func (m *member) Stop(why claimerr.Loss) { m.note("stop " + m.name + ": " + why.Reason.String()) }

func (m *member) Lose(why claimerr.Loss) bool {
	m.s.Remove(m) // as a claim does
	m.note("lose " + m.name + ": " + why.Reason.String())
	return !m.ended
}

func (m *member) Lost(why claimerr.Loss) { m.note("lost " + m.name + ": " + why.Reason.String()) }

func (m *member) Woke(clock.Reading) { m.note("woke " + m.name) }

// names returns the names of the members of a session, sorted.
func names(s *Session) string {
	var all []string
	for _, m := range MembersOf[Member](s) {
		all = append(all, m.(*member).name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func pass(d time.Duration) { testlayers.Pass(d) }

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
