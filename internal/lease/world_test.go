package lease

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/store"
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

// world is a pool on an etcd in memory, in virtual time. Its machine can sleep, and its wall clock can be stepped.
type world struct {
	*Pool
	etcd           *memetcd.Etcd
	life           *life.Life
	logs           *observer.ObservedLogs
	slept, stepped atomic.Int64
	turns          journal // of verifications
	news           journal // of members, and of what News calls
	began          atomic.Int64

	mu       sync.Mutex
	sent     map[string]int // requests, by kind
	answer   func(kind string, in *pb.TxnRequest) error
	verify   func(s *Session, what Turn) (Verified, error)
	renewals []Renewal
}

// journal is what was called, in its order.
type journal struct {
	mu   sync.Mutex
	what []string
}

func (j *journal) note(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.what = append(j.what, what)
}

// take returns what was called since it was called last.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := strings.Join(j.what, ", ")
	j.what = nil
	return all
}

// in runs a test in virtual time. Nothing of the pool may go on after it.
func in(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		test(t, w)
		for _, s := range w.Live() {
			s.Die(claimerr.Loss{Reason: claimerr.Shutdown})
		}
		w.life.BeginEnd()
		w.life.Refuse()
		w.life.End()
	})
}

func newWorld() *world {
	core, logs := observer.New(zap.InfoLevel)
	w := &world{etcd: memetcd.NewEtcd(), life: life.New(), logs: logs, sent: make(map[string]int)}
	w.etcd.Sent = func(kind string, in *pb.TxnRequest) error {
		w.mu.Lock()
		w.sent[kind]++
		answer := w.answer
		w.mu.Unlock()
		if answer != nil {
			return answer(kind, in)
		}
		return nil
	}
	client, made := w.etcd.Client(), time.Now()
	machine := clock.Clock{
		Boot: func() time.Duration { return time.Since(made) + time.Duration(w.slept.Load()) },
		Wall: func() time.Time { return time.Now().Add(time.Duration(w.slept.Load() + w.stepped.Load())) },
	}
	ignore := func(context.Context, time.Time, error) {}
	st := store.New(store.Config{
		IO: w.life.IO, Etcd: client, Log: zap.New(core), Layout: protocol.Layout{Prefix: "/p/", Instance: "me"},
		Timeout: time.Second, Ops: 128, Bytes: 1 << 20, Observe: ignore, ObserveOther: ignore,
		Requested: func(string, time.Time, error) {}, OnRewind: func(error) {},
	})
	w.Pool = NewPool(Config{
		Etcd: client, Store: st, Clock: machine, Log: zap.New(core), Owner: "owner", Life: w.life,
		Outage: outage.New(outage.Config{
			Etcd: client, Log: zap.New(core), Patience: time.Hour, Unanswered: func() {}, Passing: claimerr.IsPassing,
			Go: func(func(context.Context)) bool { return false },
		}),
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
	m.w.news.note(what)
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
	for _, m := range s.Members() {
		all = append(all, m.(*member).name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// pass lets time pass, and what is due by then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
