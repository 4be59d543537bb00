package acquire

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

const ttl = 30 * time.Second

// layout is where the client of the tests keeps its keys.
var layout = protocol.Layout{Prefix: "/p/", Instance: "me"}

// world is the acquirer of a client on an etcd in memory. No caller waits in line.
type world struct {
	*Acquirer
	etcd  *memetcd.Etcd
	life  *life.Life
	slept atomic.Int64

	mu    sync.Mutex
	sends func(in *pb.TxnRequest) error // answers a transaction in place of etcd
	reply func(in *pb.TxnRequest) error // takes the place of its reply
	sent  []string                      // the transactions
	what  []string                      // what was called
}

// in runs a test in virtual time.
func in(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		test(t, w)
	})
}

// run runs a case of a test.
func run(t *testing.T, name string, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		in(t, test)
	})
}

// end ends the client.
func (w *world) end() {
	w.answers(nil, nil)
	for _, s := range w.Pool.Live() {
		s.Die(claimerr.Loss{Reason: claimerr.Shutdown})
	}
	w.life.BeginEnd()
	w.life.Refuse()
	w.life.End()
}

func newWorld() *world {
	w := &world{etcd: memetcd.NewEtcd(), life: life.New()}
	w.etcd.Sent = func(kind string, in *pb.TxnRequest) error {
		if kind != memetcd.Txn {
			return nil
		}
		w.mu.Lock()
		if what := step(in); what != "" {
			w.sent = append(w.sent, what)
		}
		w.mu.Unlock()
		return call(w, &w.sends, in)
	}
	w.etcd.Replied = func(kind string, in *pb.TxnRequest) error {
		if kind != memetcd.Txn {
			return nil
		}
		return call(w, &w.reply, in)
	}
	client, made, log := w.etcd.Client(), time.Now(), zap.NewNop()
	machine := clock.Clock{
		Boot: func() time.Duration { return time.Since(made) + time.Duration(w.slept.Load()) },
		Wall: func() time.Time { return time.Now().Add(time.Duration(w.slept.Load())) },
	}
	ignore := func(context.Context, time.Time, error) {}
	st := store.New(store.Config{
		IO: w.life.IO, Etcd: client, Log: log, Layout: layout, Timeout: time.Second, Ops: 128, Bytes: 1 << 20,
		Observe: ignore, ObserveOther: ignore, Requested: func(string, time.Time, error) {}, OnRewind: func(error) {},
	})
	out := outage.New(outage.Config{
		Etcd: client, Log: log, Patience: time.Hour, Unanswered: func() {}, Passing: claimerr.IsPassing,
		Go: func(func(context.Context)) bool { return false },
	})
	var terms *term.Terms
	pool := lease.NewPool(lease.Config{
		Etcd: client, Store: st, Clock: machine, Log: log, Owner: "owner", Life: w.life, Outage: out,
		Timing: func(ttl time.Duration) lease.Timing { return lease.NewTiming(ttl, 5*time.Second) },
		Verify: func(ctx context.Context, s *lease.Session, what lease.Turn) (lease.Verified, error) {
			return terms.Verify(ctx, s, what)
		},
		Renewed: func(*lease.Session, lease.Renewal) {}, Began: func(int64) {},
	})
	terms = term.New(term.Config{
		Store: st, Pool: pool, Life: w.life, Outage: out, Clock: machine, Log: log, Owner: "owner", Observer: w, Waiters: w,
		Uptime: func() time.Duration { return time.Since(made) }, Bound: time.Second,
	})
	w.Acquirer = NewAcquirer(terms, exclusions{w}, func(t *term.Term, _ context.Context, tookOver bool, trace string) {
		w.note(fmt.Sprintf("began %s, took over %v %s", t.Key, tookOver, trace))
	})
	return w
}

// step names what a transaction is to an attempt, "" for the first of a session.
func step(in *pb.TxnRequest) string {
	var nested []string
	what := ""
	for _, op := range in.Success {
		if inner := op.GetRequestTxn(); inner != nil {
			nested = append(nested, step(inner))
		}
		put, del := string(op.GetRequestPut().GetKey()), string(op.GetRequestDeleteRange().GetKey())
		switch {
		case strings.HasPrefix(put, layout.Own("")):
			what = "take"
		case strings.HasPrefix(put, layout.Sessions()):
			return ""
		case strings.HasPrefix(del, layout.Own("")) && what == "":
			what = "delete"
		case op.GetRequestRange() != nil && what == "":
			what = "read"
		}
	}
	for _, op := range in.Failure {
		if put := string(op.GetRequestPut().GetKey()); strings.HasPrefix(put, layout.Void("")) {
			what += " or void"
		}
	}
	if what == "" {
		return strings.Join(nested, " & ")
	}
	return what
}

func call(w *world, f *func(in *pb.TxnRequest) error, in *pb.TxnRequest) error {
	w.mu.Lock()
	answer := *f
	w.mu.Unlock()
	if answer == nil || step(in) == "" {
		return nil
	}
	return answer(in)
}

// answers sets what comes in place of transactions, and in place of their replies.
func (w *world) answers(sends, reply func(in *pb.TxnRequest) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sends, w.reply = sends, reply
}

// once returns an answer that is given once, as the others of always are to all transactions.
func once(err error) func(*pb.TxnRequest) error {
	var given atomic.Bool
	return func(*pb.TxnRequest) error {
		if given.Swap(true) {
			return nil
		}
		return err
	}
}

func always(err error) func(*pb.TxnRequest) error { return func(*pb.TxnRequest) error { return err } }

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.what = append(w.what, what)
}

// take returns what was called since it was called last.
func (w *world) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.what, ", ")
	w.what = nil
	return all
}

// steps returns the transactions since it was called last.
func (w *world) steps() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.sent, ", ")
	w.sent = nil
	return all
}

func (w *world) TermLost(t *term.Term, why claimerr.Loss) {
	w.note("lost " + t.Key + ": " + why.Reason.String())
}

func (w *world) TermEnded(t *term.Term)                                     { w.note("ended " + t.Key) }
func (w *world) Context(_ *term.Term, work context.Context) context.Context { return work }
func (w *world) Trace(*term.Term) string                                    { return "" }
func (w *world) Deliver(*mvccpb.KeyValue)                                   {}
func (w *world) QueueOf(string, *lease.Session) *term.Queue                 { return nil }
func (w *world) Share(func(key string) bool)                                {}
func (w *world) NoticesSince(*lease.Session) (rev int64, ok bool)           { return 0, false }
func (w *world) Of(*lease.Session) []term.Wait                              { return nil }

// exclusive is a call for a key that one caller has at a time. shared is one for a key that many have.
func exclusive(key string) *Call {
	return &Call{TTL: ttl, Kind: "exclusive", Mode: protocol.Exclusive{Layout: layout, Key: key}}
}

func shared(key string) *Call {
	return &Call{TTL: ttl, Kind: "shared", Mode: protocol.NewShared(layout, key)}
}

// session returns a session that nobody renews, with a place for a claim.
func (w *world) session(tb testing.TB) *lease.Session {
	tb.Helper()
	s, err := w.Pool.Session(context.Background(), ttl, true)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// open opens the session of claims. Others are reserved places in it.
func (w *world) open(tb testing.TB) *lease.Session {
	tb.Helper()
	s, err := w.Pool.Session(context.Background(), ttl, false)
	if err != nil {
		tb.Fatal(err)
	}
	s.Unreserve()
	synctest.Wait() // it is renewed from then on
	return s
}

// hold claims a key.
func (w *world) hold(tb testing.TB, o *Call) *term.Term {
	tb.Helper()
	held, err := w.Try(context.Background(), o.Mode.Keys().User, o)
	if err != nil {
		tb.Fatal(err)
	}
	w.steps()
	w.take()
	return held
}

// put puts a key in etcd.
func (w *world) put(name, value string, on int64) (rev int64) {
	w.etcd.With(func(m *memetcd.Model) {
		m.Do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Put([]byte(name), value, on)}})
		rev = m.Rev
	})
	return rev
}

// other makes another client the holder of a key, or puts its place in line.
func (w *world) other(name, claim string) {
	w.put(name, protocol.Holder{Claim: claim, Owner: "o", Instance: "other"}.Encode(), 99)
}

// remove removes a key from etcd.
func (w *world) remove(name string) {
	w.etcd.With(func(m *memetcd.Model) { delete(m.Keys, name) })
}

// keys lists what etcd has but for sentinels: claims by their keys, and of others the kind.
func (w *world) keys() string {
	count := make(map[string]int)
	w.etcd.With(func(m *memetcd.Model) {
		for name := range m.Keys {
			name = strings.TrimPrefix(name, layout.Prefix)
			kind, rest, _ := strings.Cut(name, "/")
			switch {
			case kind == "session" && strings.Contains(rest, "/live/"):
			case kind == "own" || kind == "note":
				count[strings.Split(name, "\x00")[0]]++
			default:
				count[kind]++
			}
		}
	})
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(count), "map["), "]")
}

// owner returns whose claim a key has in etcd, "" if it is free.
func (w *world) owner(key string) (claim string) {
	w.etcd.With(func(m *memetcd.Model) {
		if kv := m.Keys[layout.Own(key)]; kv != nil {
			h, _ := protocol.DecodeHolder(kv.Value)
			claim = h.Claim
		}
	})
	return claim
}

// value returns the value of a key in etcd, "" if there is none.
func (w *world) value(name string) (value string) {
	w.etcd.With(func(m *memetcd.Model) {
		if kv := m.Keys[name]; kv != nil {
			value = string(kv.Value)
		}
	})
	return value
}

// balanced checks that sessions have places for the claims that are on their leases, and for no others.
func (w *world) balanced(t *testing.T) {
	t.Helper()
	const most = 8192
	for _, s := range w.Pool.Live() {
		claims := 0
		w.etcd.With(func(m *memetcd.Model) {
			for name, kv := range m.Keys {
				if strings.HasPrefix(name, layout.Own("")) && kv.Lease == int64(s.ID()) {
					claims++
				}
			}
		})
		same(t, "places taken", most-s.ReserveMore(most+1), claims)
	}
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
