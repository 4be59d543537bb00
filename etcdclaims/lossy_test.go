package etcdclaims_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mode is how the client hears of a message that is lost.
type mode struct {
	name    string
	code    codes.Code // OK: nothing is heard until the request's time is up
	dropped bool       // the request did not arrive, else its reply did not
}

var modes = []mode{
	{"lost reply, Unavailable", codes.Unavailable, false},
	{"lost reply, silence", codes.OK, false},
	{"lost reply, Internal", codes.Internal, false},
	{"lost reply, Unknown", codes.Unknown, false},
	// The clientv3 interceptor sends these again by itself, even a Txn: its
	// isContextError does not ask whether the request may be repeated.
	{"lost reply, DeadlineExceeded", codes.DeadlineExceeded, false},
	{"lost reply, Canceled", codes.Canceled, false},
	{"lost request, Unavailable", codes.Unavailable, true},
	{"lost request, silence", codes.OK, true},
	{"lost request, DeadlineExceeded", codes.DeadlineExceeded, true},
}

func (m mode) fault(kind claimtest.Kind) claimtest.Fault {
	return claimtest.Fault{On: kind, Code: m.code, LoseRequest: m.dropped, LoseReply: !m.dropped}
}

// loss is a world in which one message is lost, once the test says from when on.
type loss struct {
	*world
	mode     mode
	c, other *etcdclaims.Client
	host     *claimtest.Host // of c, whose message it is
	fault    claimtest.Fault
	met      *claimtest.Injection
}

// strike lets the next message of the kind be lost.
func (l *loss) strike() { l.met = l.host.Inject(l.fault) }

// lossy plays a test once for each mode, and checks that it does no harm.
func lossy(t *testing.T, kind claimtest.Kind, play func(t *testing.T, l *loss)) {
	t.Helper()
	for _, m := range modes {
		virtualCase(t, m.name, func(t *testing.T, w *world) {
			l := &loss{world: w, mode: m, fault: m.fault(kind)}
			l.c, l.host = w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "a"})
			l.other, _ = w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "b"})
			play(t, l)
			if n := l.met.Hits(); n != 1 {
				t.Errorf("the fault was met %d times", n)
			}
			if lost := l.c.Stats().Lost; len(lost) > 0 {
				t.Errorf("lost %v: self-eviction", lost)
			}
			w.CloseClean(l.c, l.other)
			w.NoLeases()
		})
	}
}

// owned checks that the claim is what etcd has, under its fence, and stays.
func (w *world) owned(cl *etcdclaims.Claim, other *etcdclaims.Client) {
	w.Helper()
	resp, err := w.Raw.Get(context.Background(), w.Own(cl.Key()))
	if err != nil || len(resp.Kvs) != 1 {
		w.Fatalf("the claim's key: %v, %v", resp, err)
	}
	var h struct{ Claim string }
	if err := json.Unmarshal(resp.Kvs[0].Value, &h); err != nil || h.Claim != cl.ID() || resp.Kvs[0].ModRevision != cl.Fence() {
		w.Errorf("etcd has claim %s at %d, the client believes in %s at %d", h.Claim, resp.Kvs[0].ModRevision, cl.ID(), cl.Fence())
	}
	if _, err := other.TryAcquire(context.Background(), cl.Key(), option.OwnKey{}); !errors.Is(err, etcdclaims.ErrHeld) {
		w.Errorf("another acquiring got %v, want ErrHeld", err)
	}
	time.Sleep(31 * sec)
	if err := cl.Check(); err != nil {
		w.Errorf("31 s later: %v", err)
	}
	if ok, err := cl.Owns(context.Background()); !ok || err != nil {
		w.Errorf("31 s later: owns %v, %v", ok, err)
	}
}

func TestLossyTryAcquire(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{claimtest.Grant, steps.Sentinel, steps.Take} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lossy(t, kind, func(t *testing.T, l *loss) {
				l.strike()
				cl, err := l.c.TryAcquire(context.Background(), "k", etcdclaims.Note([]byte("n")))
				if err != nil {
					// Nothing was claimed, and an answer that nobody knows is
					// one to report. The lease lapses.
					if kind != claimtest.Grant || l.mode.code != codes.Unknown {
						t.Errorf("acquiring: %v", err)
					}
					time.Sleep(17 * sec)
					l.Available("k", l.other)
					return
				}
				l.owned(cl, l.other)
				release(t, cl)
				l.Available("k", l.other)
				time.Sleep(31 * sec) // leases whose grant was lost lapse
			})
		})
	}
}

// Acquire on a free key: the transaction that would take a place takes the key.
func TestLossyAcquireFreeKey(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Enqueue, func(t *testing.T, l *loss) {
		l.Joined(l.c, "k")
		l.strike()
		ctx, cancel := context.WithTimeout(context.Background(), 10*sec)
		defer cancel()
		cl, err := l.c.Acquire(ctx, "k")
		if err != nil {
			t.Errorf("acquiring a free key: %v; etcd has %v", err, l.All())
			return
		}
		l.owned(cl, l.other)
		release(t, cl)
		l.Available("k", l.other)
	})
}

func TestLossyAcquireInLine(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{steps.Enqueue, steps.Advance} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lossy(t, kind, func(t *testing.T, l *loss) {
				held := tryClaim(t, l.other, "k")
				l.strike()
				ctx, cancel := context.WithTimeout(context.Background(), 30*sec)
				defer cancel()
				var opts []etcdclaims.AcquireOption
				if kind == steps.Advance { // one that cannot be handed the key
					opts = append(opts, etcdclaims.Note([]byte("n")))
				}
				got := acquiring(ctx, l.c, "k", opts...)
				time.Sleep(10 * sec)
				release(t, held)
				cl := l.within(3*sec, got)
				l.owned(cl, l.other)
				release(t, cl)
				l.Available("k", l.other)
			})
		})
	}
}

// The holder's word to the first in line is lost: it gets the key all the same,
// once, and the holder does not take its own hand-over for a loss.
func TestLossyHandOver(t *testing.T) {
	t.Parallel()
	lossy(t, steps.HandOver, func(t *testing.T, l *loss) {
		held := tryClaim(t, l.c, "k")
		l.strike()
		third := l.peer()
		ctx, cancel := context.WithTimeout(context.Background(), 60*sec)
		defer cancel()
		one := acquiring(ctx, l.other, "k")
		time.Sleep(sec)
		two := acquiring(ctx, third, "k")
		time.Sleep(sec)
		begin := time.Now()
		release(t, held)
		first := l.within(3*sec-time.Since(begin), one)
		l.owned(first, l.c)
		release(t, first)
		second := l.within(3*sec, two)
		if second.Fence() <= first.Fence() || first.Fence() <= held.Fence() {
			t.Errorf("fences %d, %d, %d", held.Fence(), first.Fence(), second.Fence())
		}
		l.owned(second, l.c)
		release(t, second)
		l.Available("k", l.c)
		l.CloseClean(l.c, third, l.other)
	})
}

func TestLossyRenewal(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{claimtest.KeepAlive, claimtest.Verify} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lossy(t, kind, func(t *testing.T, l *loss) {
				cl := tryClaim(t, l.c, "k")
				l.strike()
				time.Sleep(31 * sec)
				if cl.Context().Err() != nil {
					t.Errorf("the context ended: %v", context.Cause(cl.Context()))
				}
				l.owned(cl, l.other)
			})
		})
	}
}

func TestLossyNote(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Note, func(t *testing.T, l *loss) {
		cl := tryClaim(t, l.c, "k")
		l.strike()
		for i := range 3 {
			want := fmt.Sprintf("note %d", i)
			if err := cl.Note(context.Background(), []byte(want)); err != nil {
				t.Errorf("noting: %v", err)
			}
			if i, err := l.other.Lookup(context.Background(), "k"); err != nil || string(i.Note) != want {
				t.Errorf("note is %q, %v; want %q", i.Note, err, want)
			}
		}
		l.owned(cl, l.other)
	})
}

func TestLossyRelease(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Free, func(t *testing.T, l *loss) {
		cl := tryClaim(t, l.c, "k", etcdclaims.Note([]byte("n")))
		l.strike()
		release(t, cl)
		l.Available("k", l.other)
		if n := l.c.Stats().Released; n != 1 {
			t.Errorf("%d released", n)
		}
	})
}

func TestLossyWorkEnding(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		end   func(*work.Work, clientv3.Op) error
		state work.State
	}{
		"Complete": {func(wk *work.Work, op clientv3.Op) error { return wk.Complete(context.Background(), op) }, work.StateDone},
		"Fail": {func(wk *work.Work, op clientv3.Op) error {
			return failing(context.Background(), wk, errors.New("oops"), op)
		}, work.StateFailed},
		"Dead": {func(wk *work.Work, op clientv3.Op) error {
			return failing(context.Background(), wk, etcdclaims.Permanent(errors.New("oops")), op)
		}, work.StateDead},
		"Release": {func(wk *work.Work, op clientv3.Op) error { return wk.Release(context.Background()) }, ""},
	}
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lossy(t, claimtest.Ending, func(t *testing.T, l *loss) {
				wk := tryBegin(t, l.c, "k")
				l.strike()
				if err := e.end(wk, clientv3.OpPut("/effect", "x")); err != nil {
					t.Errorf("ending: %v", err)
				}
				rec, ok, err := works(l.other).Record(context.Background(), "k")
				if err != nil || rec.State != e.state || ok != (e.state != "") {
					t.Errorf("record %+v, %v, %v", rec, ok, err)
				}
				if e.state != "" {
					got, err := l.Raw.Get(context.Background(), "/effect")
					if err != nil || len(got.Kvs) != 1 || got.Kvs[0].Version != 1 {
						t.Errorf("the effect happened %v times, %v", got, err)
					}
				}
				if _, held := l.All()[l.Own("k")]; held {
					t.Error("the key is still held")
				}
			})
		})
	}
}

// Lost replies in beginning work: one attempt is counted.
func TestLossyBegin(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Take, func(t *testing.T, l *loss) {
		l.strike()
		wk, err := works(l.c).TryBegin(context.Background(), "k")
		if err != nil {
			t.Errorf("beginning: %v", err)
			return
		}
		if wk.Attempt() != 1 {
			t.Errorf("attempt %d", wk.Attempt())
		}
		l.owned(wk.Claim, l.other)
		if err := wk.Complete(context.Background()); err != nil {
			t.Error(err)
		}
		if rec, ok, err := works(l.other).Record(context.Background(), "k"); err != nil || !ok || rec.State != work.StateDone || rec.Attempt != 1 || rec.Fence != wk.Fence() {
			t.Errorf("record %+v, %v, %v", rec, ok, err)
		}
	})
}

func TestLossyRehome(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Rehome, func(t *testing.T, l *loss) {
		begin := time.Now()
		cl := tryClaim(t, l.c, "k", etcdclaims.MinHold(10*sec))
		l.strike()
		release(t, cl)
		i, err := l.other.Lookup(context.Background(), "k")
		if err != nil || i.Kind != "resting" || i.Fence <= cl.Fence() {
			t.Errorf("resting: %+v, %v", i, err)
		}
		time.Sleep(time.Until(begin.Add(10*sec - time.Millisecond)))
		if _, err := l.other.TryAcquire(context.Background(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("before MinHold: %v", err)
		}
		time.Sleep(5 * sec)
		l.Available("k", l.other)
		time.Sleep(15 * sec) // leases whose grant or use was lost lapse
	})
}

// An acquisition whose caller gave up is undone, though the undoing is lost too.
func TestLossyUndo(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Undo, func(t *testing.T, l *loss) {
		tryClaim(t, l.c, "warm")
		l.host.Inject(claimtest.Fault{On: steps.Take, LoseReply: true})
		l.strike()
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		_, err := l.c.TryAcquire(ctx, "k")
		if !errors.Is(err, etcdclaims.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrUnknown and DeadlineExceeded", err)
		}
		if _, there := l.All()[l.Own("k")]; !there && !l.mode.dropped && l.mode.code == codes.OK {
			t.Log("undone at once")
		}
		time.Sleep(6 * sec)
		l.Available("k", l.other)
	})
}

// The same for work: the record is as it was before.
func TestLossyUndoOfWork(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Undo, func(t *testing.T, l *loss) {
		tryClaim(t, l.c, "warm")
		first := tryBegin(t, l.other, "k")
		if err := failing(context.Background(), first, etcdclaims.RetryAfter(errors.New("oops"), 0)); err != nil {
			t.Fatal(err)
		}
		before := l.get("work/k")
		// The first attempt learns of the record, the second is lost.
		l.host.Inject(claimtest.Fault{On: steps.Take, LoseReply: true, Skip: 1})
		l.strike()
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		if _, err := works(l.c).TryBegin(ctx, "k"); !errors.Is(err, etcdclaims.ErrUnknown) {
			t.Errorf("got %v, want ErrUnknown", err)
		}
		time.Sleep(6 * sec)
		if after := l.get("work/k"); after != before {
			t.Errorf("record was\n%s, is\n%s", before, after)
		}
		again, err := works(l.other).TryBegin(context.Background(), "k")
		if err != nil || again.Attempt() != 2 {
			t.Errorf("attempt %v, %v", again, err)
		}
	})
}

func TestLossyRevoke(t *testing.T) {
	t.Parallel()
	lossy(t, claimtest.Revoke, func(t *testing.T, l *loss) {
		cl := tryClaim(t, l.c, "k", etcdclaims.Manual())
		l.strike()
		release(t, cl)
		l.Available("k", l.other)
		time.Sleep(31 * sec)
	})
}

func TestLossyTryAcquireAll(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Take, func(t *testing.T, l *loss) {
		l.strike()
		all, err := l.c.TryAcquireAll(context.Background(), []string{"a", "b", "c"})
		if err != nil {
			t.Errorf("acquiring: %v; etcd has %v", err, l.All())
			return
		}
		for _, cl := range all {
			l.owned(cl, l.other)
		}
	})
}

func TestLossyTryAcquireEach(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Take, func(t *testing.T, l *loss) {
		l.strike()
		all, errs := l.c.TryAcquireEach(context.Background(), []string{"a", "b", "c"})
		for i, cl := range all {
			if errs[i] != nil {
				t.Errorf("acquiring: %v", errs[i])
				continue
			}
			l.owned(cl, l.other)
		}
	})
}

// A guarded transaction whose reply is lost is reported as unknown, and is not
// sent twice: it need not be idempotent.
func TestLossyGuardedTxnIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		virtualCase(t, m.name, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			cl := tryClaim(t, c, "k")
			host.Inject(m.fault(claimtest.Other))
			_, err := cl.Txn(context.Background()).Then(clientv3.OpPut("/effect", "x")).Commit()
			if !errors.Is(err, etcdclaims.ErrUnknown) {
				t.Errorf("got %v, want ErrUnknown", err)
			}
			if n := len(host.Sent(claimtest.Other)); n != 1 {
				t.Errorf("the transaction was sent %d times", n)
			}
			if got, err := w.Raw.Get(context.Background(), "/effect"); err != nil || len(got.Kvs) == 1 && got.Kvs[0].Version != 1 {
				t.Errorf("carried out %v, %v", got, err)
			}
			if err := cl.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whatever etcd answers to whatever request: nobody runs without a token that
// is the key's, and nobody believes past D.
func TestFailClosedOnEveryCode(t *testing.T) {
	t.Parallel()
	kinds := []claimtest.Kind{
		claimtest.Grant, steps.Sentinel, steps.Take, steps.Enqueue, steps.Resolve, steps.Undo, claimtest.KeepAlive,
		claimtest.Verify, steps.Free, claimtest.Revoke, claimtest.Watch, claimtest.Every,
	}
	for _, kind := range kinds {
		t.Run(cmp.Or(string(kind), "every"), func(t *testing.T) {
			t.Parallel()
			testetcd.Sample(t)
			for code := codes.Canceled; code <= codes.Unauthenticated; code += testetcd.Fewer[codes.Code](1, 3) {
				switch code {
				case codes.InvalidArgument, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented, codes.DataLoss:
					if !testetcd.Long() { // etcd and gRPC return the others more often
						continue
					}
				}
				for _, lost := range []bool{false, true} {
					if lost && !txn.MayBeDone(status.Error(code, "")) {
						continue // these say that nothing was done
					}
					virtually(t, func(_ *testing.T, w *world) { failClosed(w, kind, code, lost) })
				}
			}
		})
	}
}

func failClosed(w *world, kind claimtest.Kind, code codes.Code, lost bool) {
	c, host := w.client(etcdclaims.Config{TTL: 5 * sec})
	name := fmt.Sprintf("%s %v lost %v", kind, code, lost)
	begin := time.Now()
	held := tryClaim(w, c, "held")
	_, hard := timing(5 * sec)
	r := claimtest.Fault{On: kind, Times: -1, Code: code, LoseReply: lost}
	if kind == claimtest.Grant || kind == steps.Sentinel {
		_ = c.Close(context.Background())
		c, host = w.client(etcdclaims.Config{TTL: 5 * sec})
		held = nil
	}
	if kind == steps.Resolve || kind == steps.Undo {
		host.Inject(claimtest.Fault{On: steps.Take, Times: -1, Code: codes.Unavailable, LoseReply: lost})
		host.Inject(claimtest.Fault{On: steps.Enqueue, Times: -1, Code: codes.Unavailable, LoseReply: lost})
	}
	host.Inject(r)
	// Without token: the key's owner is not who the handler says it is.
	var without, ran atomic.Int64
	fn := func(ctx context.Context) error {
		ran.Add(1)
		tok, ok := fencing.FromContext(ctx)
		resp, err := w.Raw.Get(context.Background(), w.Own(tok.Key))
		if !ok || err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != tok.Fence {
			without.Add(1)
		}
		return nil
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for i := range 2 {
			ctx, cancel := context.WithTimeout(context.Background(), 3*sec)
			_ = c.TryRun(ctx, fmt.Sprintf("try%d", i), fn)
			cancel()
			ctx, cancel = context.WithTimeout(context.Background(), 3*sec)
			_ = c.Run(ctx, fmt.Sprintf("run%d", i), fn)
			cancel()
		}
	}()
	for held != nil {
		time.Sleep(150 * time.Millisecond)
		// The last renewal that can have counted was sent at the latest now.
		if held.Check() == nil {
			if age := time.Since(begin); age >= hard && (kind == claimtest.KeepAlive || kind == claimtest.Verify || kind == claimtest.Every) {
				w.Errorf("%s: Check is nil %v after the only renewal that counts", name, age)
				break
			}
			resp, err := w.Raw.Get(context.Background(), w.Own("held"))
			if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != held.Fence() {
				w.Errorf("%s: Check is nil though the key is not ours: %v, %v", name, resp, err)
			}
		}
		select {
		case <-stop:
		default:
			continue
		}
		break
	}
	<-stop
	if without.Load() > 0 {
		w.Errorf("%s: %d of %d handlers ran without a valid token", name, without.Load(), ran.Load())
	}
	host.RemoveFaults()
	other, _ := w.client(etcdclaims.Config{TTL: 5 * sec})
	time.Sleep(6 * sec)
	for i := range 2 {
		for _, k := range []string{"try", "run"} {
			key := fmt.Sprintf("%s%d", k, i)
			cl, err := other.TryAcquire(context.Background(), key)
			if err != nil {
				w.Errorf("%s: %s is not free when all is well again: %v", name, key, err)
				continue
			}
			_ = cl.Release(context.Background())
		}
	}
	synctest.Wait()
	w.CloseClean(c, other)
}

// Requests that share a round trip share its fate, and no more: its reply or the
// whole of it may be lost, and each of its riders comes to what is true.
func TestLossyCoalesced(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		virtualCase(t, m.name, func(t *testing.T, w *world) {
			const n = 60
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			other := w.peer()
			tryClaim(t, c, "warm")
			taken := tryClaim(t, other, "k7")
			// Two are under way, so that the others ride together behind.
			host.Inject(claimtest.Fault{On: steps.Take, Times: 2, DelayRequest: 100 * time.Millisecond})
			r := host.Inject(m.fault(steps.Take))
			sent := len(host.Sent(steps.Take))
			claims := make([]*etcdclaims.Claim, n)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					cl, err := c.TryAcquire(context.Background(), fmt.Sprint("k", i))
					if i == 7 && !errors.Is(err, etcdclaims.ErrHeld) || i != 7 && err != nil {
						t.Errorf("k%d: %v", i, err)
					}
					claims[i] = cl
				})
			}
			wg.Wait()
			t.Logf("%d round trips", len(host.Sent(steps.Take))-sent)
			if r.Hits() != 1 {
				t.Errorf("met %d times", r.Hits())
			}
			time.Sleep(20 * sec)
			fences := map[string]int64{}
			resp, err := w.Raw.Get(context.Background(), w.Own(""), clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range resp.Kvs {
				fences[strings.TrimPrefix(string(kv.Key), w.Own(""))] = kv.ModRevision
			}
			for i, cl := range claims {
				if i == 7 || cl == nil {
					continue
				}
				if err := cl.Check(); err != nil || fences[cl.Key()] != cl.Fence() {
					t.Errorf("%s: %v, fence %d, in etcd %d", cl.Key(), err, cl.Fence(), fences[cl.Key()])
				}
			}
			// And all are released as well.
			host.Inject(claimtest.Fault{On: steps.Free, Times: 2, DelayRequest: 100 * time.Millisecond})
			r = host.Inject(m.fault(steps.Free))
			for _, cl := range claims {
				if cl != nil {
					wg.Go(func() {
						if err := cl.Release(context.Background()); err != nil {
							t.Errorf("releasing %s: %v", cl.Key(), err)
						}
					})
				}
			}
			wg.Wait()
			if r.Hits() != 1 {
				t.Errorf("met %d times", r.Hits())
			}
			for k := range w.All() {
				if strings.HasPrefix(k, w.Own("k")) && k != w.Own("k7") {
					t.Errorf("%s is still held", k)
				}
			}
			if err := taken.Check(); err != nil {
				t.Error(err)
			}
			w.CloseClean(c, other)
			w.NoLeases()
		})
	}
}

// A grant or a keepalive that fails for good gives errors, not claims, and a
// session whose lease has gone is replaced by the next acquisition.
func TestSessionIsReplaced(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		a := tryClaim(t, c, "a")
		host.Cut()
		<-a.Done()
		host.Heal()
		b := tryClaim(t, c, "b")
		if err := b.Check(); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * sec)
		a2 := tryClaim(t, c, "a")
		if a2.Fence() <= a.Fence() {
			t.Errorf("fence went from %d to %d", a.Fence(), a2.Fence())
		}
		lossOf(t, a.Err(), etcdclaims.ReasonExpired)
		w.CloseClean(c)
		w.NoLeases()
	})
}

// A void key lives as long as its session: only what may still arrive gets one.
func TestVoidKeysDoNotPileUp(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, other := w.peer(), w.peer()
		tryClaim(t, other, "k")
		for range 100 {
			ctx, cancel := context.WithTimeout(context.Background(), sec)
			if _, err := c.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		time.Sleep(time.Minute)
		n := 0
		for k := range w.All() {
			if strings.Contains(k, "/void/") {
				n++
			}
		}
		if n > 10 {
			t.Errorf("%d void keys a minute after 100 waits were given up, none of which had a request in flight", n)
		}
	})
}

// Work whose claim was given up before its caller had it is as it was before:
// else the attempt would count, and with AtMostOnce it would be dead unrun.
func TestWorkGivenUpBeforeItBeganIsNotCounted(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 60 * sec})
		other := w.peer()
		tryClaim(t, c, "warm")
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, LoseRequest: true})
		time.Sleep(40 * sec) // D_soft is at 41.4 s
		host.Inject(claimtest.Fault{On: steps.Take, DelayReply: 2 * sec})
		ctx, cancel := context.WithTimeout(context.Background(), 5*sec)
		defer cancel()
		wk, err := works(c).TryBegin(ctx, "k", work.AtMostOnce())
		if err == nil {
			t.Fatalf("began %v past D_soft", wk)
		}
		t.Logf("refused: %v", err)
		host.RemoveFaults()
		time.Sleep(30 * sec)
		wk, err = works(other).TryBegin(context.Background(), "k", work.AtMostOnce())
		if err != nil {
			t.Fatalf("work that never ran: %v", err)
		}
		if wk.Attempt() != 1 {
			t.Errorf("attempt %d, but it never ran before", wk.Attempt())
		}
	})
}
