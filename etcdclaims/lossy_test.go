package etcdclaims_test

import (
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
	"github.com/etcdclaims/claims/fencing"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// outcome of a fault: how the client hears of it.
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

func (m mode) rule(kind string) *rule {
	return &rule{kind: kind, code: m.code, dropped: m.dropped, lost: !m.dropped}
}

// lossy runs a scenario once for each mode; the scenario is given a client with
// a rule already set.
func lossy(t *testing.T, kind string, cfg etcdclaims.Config, play func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule)) {
	t.Helper()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				cfg := cfg
				cfg.TTL = 15 * sec
				cfg.Owner = "a"
				c, f := w.client(cfg)
				other, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "b", MaxAttempts: cfg.MaxAttempts})
				r := m.rule(kind)
				play(w, m, c, other, f, r)
				if n := r.hit.Load(); n != 1 {
					t.Errorf("the fault was met %d times", n)
				}
				if lost := c.Stats().Lost; len(lost) > 0 {
					t.Errorf("lost %v: self-eviction", lost)
				}
				w.closeClean(c, other)
				w.noLeases()
			})
		})
	}
}

// owned checks that the claim is what etcd has, under its fence, and stays.
func (w *world) owned(cl *etcdclaims.Claim, other *etcdclaims.Client) {
	w.Helper()
	resp, err := w.raw.Get(context.Background(), w.prefix+"own/"+cl.Key())
	if err != nil || len(resp.Kvs) != 1 {
		w.Fatalf("the claim's key: %v, %v", resp, err)
	}
	var h struct{ Claim string }
	if err := json.Unmarshal(resp.Kvs[0].Value, &h); err != nil || h.Claim != cl.ID() || resp.Kvs[0].ModRevision != cl.Fence() {
		w.Errorf("etcd has claim %s at %d, the client believes in %s at %d", h.Claim, resp.Kvs[0].ModRevision, cl.ID(), cl.Fence())
	}
	if _, err := other.TryAcquire(context.Background(), cl.Key()); !errors.Is(err, etcdclaims.ErrHeld) {
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

// free checks that the key can be had by another at once.
func (w *world) free(key string, other *etcdclaims.Client) {
	w.Helper()
	cl, err := other.TryAcquire(context.Background(), key)
	if err != nil {
		w.Errorf("the key is not free: %v", err)
		return
	}
	if err := cl.Release(context.Background()); err != nil {
		w.Error(err)
	}
}

func TestLossyTryAcquire(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"grant", "sentinel", "acquire"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			lossy(t, kind, etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
				f.add(r)
				cl, err := c.TryAcquire(context.Background(), "k", etcdclaims.Note([]byte("n")))
				if err != nil {
					// Nothing was claimed, and an answer that nobody knows is
					// one to report. The lease lapses.
					if kind != "grant" || m.code != codes.Unknown {
						w.Errorf("acquiring: %v", err)
					}
					time.Sleep(17 * sec)
					w.free("k", other)
					return
				}
				w.owned(cl, other)
				if err := cl.Release(context.Background()); err != nil {
					w.Error(err)
				}
				w.free("k", other)
				time.Sleep(31 * sec) // leases whose grant was lost lapse
			})
		})
	}
}

// Acquire on a free key: the transaction that would take a place takes the key.
func TestLossyAcquireFreeKey(t *testing.T) {
	t.Parallel()
	lossy(t, "enqueue", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		w.joined(c, "k")
		f.add(r)
		ctx, cancel := context.WithTimeout(context.Background(), 10*sec)
		defer cancel()
		cl, err := c.Acquire(ctx, "k")
		if err != nil {
			w.Errorf("acquiring a free key: %v; etcd has %v", err, w.all())
			return
		}
		w.owned(cl, other)
		if err := cl.Release(context.Background()); err != nil {
			w.Error(err)
		}
		w.free("k", other)
	})
}

func TestLossyAcquireInLine(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"enqueue", "advance"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			lossy(t, kind, etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
				held := mustTry(w, other, "k")
				f.add(r)
				got := make(chan *etcdclaims.Claim)
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 30*sec)
					defer cancel()
					var opts []etcdclaims.AcquireOption
					if kind == "advance" { // one that cannot be handed the key
						opts = append(opts, etcdclaims.Note([]byte("n")))
					}
					cl, err := c.Acquire(ctx, "k", opts...)
					if err != nil {
						w.Errorf("acquiring in line: %v; etcd has %v", err, w.all())
					}
					got <- cl
				}()
				time.Sleep(10 * sec)
				if err := held.Release(context.Background()); err != nil {
					w.Error(err)
				}
				begin := time.Now()
				cl := <-got
				if cl == nil {
					return
				}
				if d := time.Since(begin); d > 3*sec {
					w.Errorf("handed over after %v", d)
				}
				w.owned(cl, other)
				if err := cl.Release(context.Background()); err != nil {
					w.Error(err)
				}
				w.free("k", other)
			})
		})
	}
}

// The holder's word to the first in line is lost: it gets the key all the same,
// once, and the holder does not take its own hand-over for a loss.
func TestLossyHandOver(t *testing.T) {
	t.Parallel()
	lossy(t, "handover", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		held := mustTry(w, c, "k")
		f.add(r)
		third, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		got := make(chan *etcdclaims.Claim, 2)
		for _, c := range []*etcdclaims.Client{other, third} {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 60*sec)
				defer cancel()
				cl, err := c.Acquire(ctx, "k")
				if err != nil {
					w.Errorf("acquiring in line: %v; etcd has %v", err, w.all())
				}
				got <- cl
			}()
			time.Sleep(sec)
		}
		begin := time.Now()
		if err := held.Release(context.Background()); err != nil {
			w.Errorf("releasing: %v", err)
		}
		first := <-got
		if first == nil {
			return
		}
		if d := time.Since(begin); d > 3*sec {
			w.Errorf("handed over after %v", d)
		}
		w.owned(first, c)
		if err := first.Release(context.Background()); err != nil {
			w.Error(err)
		}
		second := <-got
		if second == nil {
			return
		}
		if second.Fence() <= first.Fence() || first.Fence() <= held.Fence() {
			w.Errorf("fences %d, %d, %d", held.Fence(), first.Fence(), second.Fence())
		}
		w.owned(second, c)
		if err := second.Release(context.Background()); err != nil {
			w.Error(err)
		}
		w.free("k", c)
		w.closeClean(c, third, other)
	})
}

func TestLossyRenewal(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"keepalive", "verify"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			lossy(t, kind, etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
				cl := mustTry(w, c, "k")
				f.add(r)
				time.Sleep(31 * sec)
				if cl.Context().Err() != nil {
					w.Errorf("the context ended: %v", context.Cause(cl.Context()))
				}
				w.owned(cl, other)
			})
		})
	}
}

func TestLossyNote(t *testing.T) {
	t.Parallel()
	lossy(t, "note", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		cl := mustTry(w, c, "k")
		f.add(r)
		for i := range 3 {
			want := fmt.Sprintf("note %d", i)
			if err := cl.Note(context.Background(), []byte(want)); err != nil {
				w.Errorf("noting: %v", err)
			}
			if i, err := other.Lookup(context.Background(), "k"); err != nil || string(i.Note) != want {
				w.Errorf("note is %q, %v; want %q", i.Note, err, want)
			}
		}
		w.owned(cl, other)
	})
}

func TestLossyRelease(t *testing.T) {
	t.Parallel()
	lossy(t, "release", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		cl := mustTry(w, c, "k", etcdclaims.Note([]byte("n")))
		f.add(r)
		if err := cl.Release(context.Background()); err != nil {
			w.Errorf("releasing: %v", err)
		}
		w.free("k", other)
		if n := c.Stats().Released; n != 1 {
			w.Errorf("%d released", n)
		}
	})
}

func TestLossyWorkEnding(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		end   func(*etcdclaims.Work, clientv3.Op) error
		state etcdclaims.State
	}{
		"Complete": {func(wk *etcdclaims.Work, op clientv3.Op) error { return wk.Complete(context.Background(), op) }, etcdclaims.StateDone},
		"Fail": {func(wk *etcdclaims.Work, op clientv3.Op) error {
			return wk.Fail(context.Background(), errors.New("oops"), op)
		}, etcdclaims.StateFailed},
		"Dead": {func(wk *etcdclaims.Work, op clientv3.Op) error {
			return wk.Fail(context.Background(), etcdclaims.Permanent(errors.New("oops")), op)
		}, etcdclaims.StateDead},
		"Release": {func(wk *etcdclaims.Work, op clientv3.Op) error { return wk.Release(context.Background()) }, ""},
	}
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lossy(t, "ending", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
				wk, err := c.TryBegin(context.Background(), "k")
				if err != nil {
					w.Fatal(err)
				}
				f.add(r)
				if err := e.end(wk, clientv3.OpPut("/effect", "x")); err != nil {
					w.Errorf("ending: %v", err)
				}
				rec, ok, err := other.Record(context.Background(), "k")
				if err != nil || rec.State != e.state || ok != (e.state != "") {
					w.Errorf("record %+v, %v, %v", rec, ok, err)
				}
				if e.state != "" {
					got, err := w.raw.Get(context.Background(), "/effect")
					if err != nil || len(got.Kvs) != 1 || got.Kvs[0].Version != 1 {
						w.Errorf("the effect happened %v times, %v", got, err)
					}
				}
				if _, held := w.all()[w.prefix+"own/k"]; held {
					w.Error("the key is still held")
				}
			})
		})
	}
}

// Lost replies in beginning work: one attempt is counted.
func TestLossyBegin(t *testing.T) {
	t.Parallel()
	lossy(t, "acquire", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		f.add(r)
		wk, err := c.TryBegin(context.Background(), "k")
		if err != nil {
			w.Errorf("beginning: %v", err)
			return
		}
		if wk.Attempt() != 1 {
			w.Errorf("attempt %d", wk.Attempt())
		}
		w.owned(wk.Claim, other)
		if err := wk.Complete(context.Background()); err != nil {
			w.Error(err)
		}
		if rec, ok, err := other.Record(context.Background(), "k"); err != nil || !ok || rec.State != etcdclaims.StateDone || rec.Attempt != 1 || rec.Fence != wk.Fence() {
			w.Errorf("record %+v, %v, %v", rec, ok, err)
		}
	})
}

func TestLossyRehome(t *testing.T) {
	t.Parallel()
	lossy(t, "rehome", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		begin := time.Now()
		cl := mustTry(w, c, "k", etcdclaims.MinHold(10*sec))
		f.add(r)
		if err := cl.Release(context.Background()); err != nil {
			w.Errorf("releasing: %v", err)
		}
		i, err := other.Lookup(context.Background(), "k")
		if err != nil || i.Kind != "resting" || i.Fence <= cl.Fence() {
			w.Errorf("resting: %+v, %v", i, err)
		}
		time.Sleep(time.Until(begin.Add(10*sec - time.Millisecond)))
		if _, err := other.TryAcquire(context.Background(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
			w.Errorf("before MinHold: %v", err)
		}
		time.Sleep(5 * sec)
		w.free("k", other)
		time.Sleep(15 * sec) // leases whose grant or use was lost lapse
	})
}

// An acquisition whose caller gave up is undone, though the undoing is lost too.
func TestLossyUndo(t *testing.T) {
	t.Parallel()
	lossy(t, "undo", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		mustTry(w, c, "warm")
		f.add(&rule{kind: "acquire", lost: true})
		f.add(r)
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		_, err := c.TryAcquire(ctx, "k")
		if !errors.Is(err, etcdclaims.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v, want ErrUnknown and DeadlineExceeded", err)
		}
		if _, there := w.all()[w.prefix+"own/k"]; !there && !m.dropped && m.code == codes.OK {
			w.Log("undone at once")
		}
		time.Sleep(6 * sec)
		w.free("k", other)
	})
}

// The same for work: the record is as it was before.
func TestLossyUndoOfWork(t *testing.T) {
	t.Parallel()
	lossy(t, "undo", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		mustTry(w, c, "warm")
		first, err := other.TryBegin(context.Background(), "k")
		if err != nil {
			w.Fatal(err)
		}
		if err := first.Fail(context.Background(), etcdclaims.RetryAfter(errors.New("oops"), 0)); err != nil {
			w.Fatal(err)
		}
		before := w.get("work/k")
		// The first attempt learns of the record, the second is lost.
		f.add(&rule{kind: "acquire", lost: true, skip: 1})
		f.add(r)
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		if _, err := c.TryBegin(ctx, "k"); !errors.Is(err, etcdclaims.ErrUnknown) {
			w.Errorf("got %v, want ErrUnknown", err)
		}
		time.Sleep(6 * sec)
		if after := w.get("work/k"); after != before {
			w.Errorf("record was\n%s, is\n%s", before, after)
		}
		again, err := other.TryBegin(context.Background(), "k")
		if err != nil || again.Attempt() != 2 {
			w.Errorf("attempt %v, %v", again, err)
		}
	})
}

func TestLossyRevoke(t *testing.T) {
	t.Parallel()
	lossy(t, "revoke", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		cl := mustTry(w, c, "k", etcdclaims.Manual())
		f.add(r)
		if err := cl.Release(context.Background()); err != nil {
			w.Error(err)
		}
		w.free("k", other)
		time.Sleep(31 * sec)
	})
}

func TestLossyTryAcquireAll(t *testing.T) {
	t.Parallel()
	lossy(t, "acquire", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		f.add(r)
		all, err := c.TryAcquireAll(context.Background(), []string{"a", "b", "c"})
		if err != nil {
			w.Errorf("acquiring: %v; etcd has %v", err, w.all())
			return
		}
		for _, cl := range all {
			w.owned(cl, other)
		}
	})
}

func TestLossyTryAcquireEach(t *testing.T) {
	t.Parallel()
	lossy(t, "acquire", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
		f.add(r)
		all, errs := c.TryAcquireEach(context.Background(), []string{"a", "b", "c"})
		for i, cl := range all {
			if errs[i] != nil {
				w.Errorf("acquiring: %v", errs[i])
				continue
			}
			w.owned(cl, other)
		}
	})
}

// A guarded transaction whose reply is lost is reported as unknown, and is not
// sent twice: it need not be idempotent.
func TestLossyGuardedTxnIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
				cl := mustTry(t, c, "k")
				f.add(m.rule("other"))
				_, err := cl.Txn(context.Background()).Then(clientv3.OpPut("/effect", "x")).Commit()
				if !errors.Is(err, etcdclaims.ErrUnknown) {
					t.Errorf("got %v, want ErrUnknown", err)
				}
				if n := f.count("other"); n != 1 {
					t.Errorf("the transaction was sent %d times", n)
				}
				if got, err := w.raw.Get(context.Background(), "/effect"); err != nil || len(got.Kvs) == 1 && got.Kvs[0].Version != 1 {
					t.Errorf("carried out %v, %v", got, err)
				}
				if err := cl.Check(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A request to claim that arrives after its caller gave up, and after that was
// undone, claims nothing.
func TestLateAcquireIsVoid(t *testing.T) {
	t.Parallel()
	calls := map[string]struct {
		kind string
		call func(context.Context, *etcdclaims.Client) error
	}{
		"TryAcquire": {"acquire", func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.TryAcquire(ctx, "k"); return err }},
		"TryBegin":   {"acquire", func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.TryBegin(ctx, "k"); return err }},
		"Acquire":    {"enqueue", func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.Acquire(ctx, "k"); return err }},
		"All": {"acquire", func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := c.TryAcquireAll(ctx, []string{"j", "k"})
			return err
		}},
		"Each": {"acquire", func(ctx context.Context, c *etcdclaims.Client) error {
			_, errs := c.TryAcquireEach(ctx, []string{"j", "k"})
			return errors.Join(errs...)
		}},
	}
	for name, call := range calls {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s held %v", name, held), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
					other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					mustTry(t, c, "warm")
					if call.kind == "enqueue" {
						w.joined(c, "k")
					}
					undone := f.count("undo")
					var holder *etcdclaims.Claim
					if held {
						holder = mustTry(t, other, "k")
					}
					r := f.add(&rule{kind: call.kind, hold: make(chan struct{}), arrived: make(chan struct{})})
					ctx, cancel := context.WithTimeout(context.Background(), sec)
					defer cancel()
					err := call.call(ctx, c)
					if !errors.Is(err, etcdclaims.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want ErrUnknown and DeadlineExceeded", err)
					}
					time.Sleep(3 * sec)
					if f.count("undo") == undone {
						t.Error("nothing was undone")
					}
					before := w.all()
					close(r.hold)
					<-r.arrived
					after := w.all()
					for k, v := range after {
						if _, there := before[k]; !there {
							t.Errorf("the late request put %s = %s", k, v)
						}
					}
					if holder != nil {
						if err := holder.Release(context.Background()); err != nil {
							t.Error(err)
						}
					}
					w.free("k", other)
					w.closeClean(c, other)
				})
			})
		}
	}
}

// A late note does not overwrite a younger one.
func TestLateNoteIsRefused(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("first note %v", first), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
				cl := mustTry(t, c, "k")
				if !first {
					if err := cl.Note(context.Background(), []byte("zero")); err != nil {
						t.Fatal(err)
					}
				}
				r := f.add(&rule{kind: "note", hold: make(chan struct{}), arrived: make(chan struct{})})
				ctx, cancel := context.WithTimeout(context.Background(), sec)
				defer cancel()
				if err := cl.Note(ctx, []byte("old")); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, etcdclaims.ErrUnknown) {
					t.Errorf("got %v", err)
				}
				if err := cl.Note(context.Background(), []byte("young")); err != nil {
					t.Fatal(err)
				}
				close(r.hold)
				<-r.arrived
				if i, err := c.Lookup(context.Background(), "k"); err != nil || string(i.Note) != "young" {
					t.Errorf("note is %q, %v", i.Note, err)
				}
				// And after the release none comes back.
				r = f.add(&rule{kind: "note", hold: make(chan struct{}), arrived: make(chan struct{})})
				ctx, cancel = context.WithTimeout(context.Background(), sec)
				defer cancel()
				_ = cl.Note(ctx, []byte("ghost"))
				if err := cl.Release(context.Background()); err != nil {
					t.Error(err)
				}
				close(r.hold)
				<-r.arrived
				w.closeClean(c)
			})
		})
	}
}

// A release that arrives again, after the key has another owner, frees nothing.
func TestLateReleaseIsRefused(t *testing.T) {
	t.Parallel()
	ends := map[string]func(context.Context, *etcdclaims.Work) error{
		"Release claim": func(ctx context.Context, wk *etcdclaims.Work) error { return wk.Claim.Release(ctx) },
		"Complete":      func(ctx context.Context, wk *etcdclaims.Work) error { return wk.Complete(ctx) },
		"Fail": func(ctx context.Context, wk *etcdclaims.Work) error {
			return wk.Fail(ctx, etcdclaims.RetryAfter(errors.New("oops"), 0))
		},
		"Release work": func(ctx context.Context, wk *etcdclaims.Work) error { return wk.Release(ctx) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
				other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
				wk, err := c.TryBegin(context.Background(), "k")
				if err != nil {
					t.Fatal(err)
				}
				kind := "ending"
				if name == "Release claim" {
					kind = "release"
				}
				r := f.add(&rule{kind: kind, hold: make(chan struct{}), arrived: make(chan struct{})})
				ctx, cancel := context.WithTimeout(context.Background(), sec)
				defer cancel()
				if err := end(ctx, wk); !errors.Is(err, etcdclaims.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want ErrUnknown and DeadlineExceeded", err)
				}
				if wk.Check() == nil {
					t.Error("still held by its own account")
				}
				time.Sleep(5 * sec) // done in the background
				next, err := other.TryAcquire(context.Background(), "k")
				if err != nil {
					t.Fatalf("the key is not free: %v", err)
				}
				record := w.get("work/k")
				close(r.hold)
				<-r.arrived
				if ok, err := next.Owns(context.Background()); !ok || err != nil {
					t.Errorf("the late request ended the next owner's claim: %v, %v", ok, err)
				}
				if got := w.get("work/k"); got != record {
					t.Errorf("record was %s, is %s", record, got)
				}
				w.closeClean(c, other)
			})
		})
	}
}

// Whatever etcd answers to whatever request: nobody runs without a token that
// is the key's, and nobody believes past D.
func TestFailClosedOnEveryCode(t *testing.T) {
	t.Parallel()
	kinds := []string{"grant", "sentinel", "acquire", "enqueue", "resolve", "undo", "keepalive", "verify", "release", "revoke", "watch", "*"}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
				for _, lost := range []bool{false, true} {
					switch code {
					case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange,
						codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.ResourceExhausted:
						if lost {
							continue // these say that nothing was done
						}
					}
					virtually(t, func(w *world) { failClosed(w, kind, code, lost) })
				}
			}
		})
	}
}

func failClosed(w *world, kind string, code codes.Code, lost bool) {
	c, f := w.client(etcdclaims.Config{TTL: 5 * sec})
	name := fmt.Sprintf("%s %v lost %v", kind, code, lost)
	begin := time.Now()
	held := mustTry(w, c, "held")
	_, hard := timing(5 * sec)
	r := &rule{kind: kind, n: -1, code: code, lost: lost}
	if kind == "grant" || kind == "sentinel" {
		_ = c.Close(context.Background())
		c, f = w.client(etcdclaims.Config{TTL: 5 * sec})
		held = nil
	}
	if kind == "resolve" || kind == "undo" {
		f.add(&rule{kind: "acquire", n: -1, code: codes.Unavailable, lost: lost})
		f.add(&rule{kind: "enqueue", n: -1, code: codes.Unavailable, lost: lost})
	}
	f.add(r)
	// Without token: the key's owner is not who the handler says it is.
	var without, ran atomic.Int64
	fn := func(ctx context.Context) error {
		ran.Add(1)
		tok, ok := fencing.FromContext(ctx)
		resp, err := w.raw.Get(context.Background(), w.prefix+"own/"+tok.Key)
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
			if age := time.Since(begin); age >= hard && (kind == "keepalive" || kind == "verify" || kind == "*") {
				w.Errorf("%s: Check is nil %v after the only renewal that counts", name, age)
				break
			}
			resp, err := w.raw.Get(context.Background(), w.prefix+"own/held")
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
	f.clear()
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
	w.closeClean(c, other)
}

// Requests that share a round trip share its fate, and no more: its reply or the
// whole of it may be lost, and each of its riders comes to what is true.
func TestLossyCoalesced(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				const n = 60
				c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
				other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
				mustTry(t, c, "warm")
				taken := mustTry(t, other, "k7")
				// Two are under way, so that the others ride together behind.
				f.add(&rule{kind: "acquire", n: 2, before: 100 * time.Millisecond})
				r := f.add(m.rule("acquire"))
				sent := f.count("acquire")
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
				t.Logf("%d round trips", f.count("acquire")-sent)
				if r.hit.Load() != 1 {
					t.Errorf("met %d times", r.hit.Load())
				}
				time.Sleep(20 * sec)
				fences := map[string]int64{}
				resp, err := w.raw.Get(context.Background(), w.prefix+"own/", clientv3.WithPrefix())
				if err != nil {
					t.Fatal(err)
				}
				for _, kv := range resp.Kvs {
					fences[strings.TrimPrefix(string(kv.Key), w.prefix+"own/")] = kv.ModRevision
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
				f.add(&rule{kind: "release", n: 2, before: 100 * time.Millisecond})
				r = f.add(m.rule("release"))
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
				if r.hit.Load() != 1 {
					t.Errorf("met %d times", r.hit.Load())
				}
				for k := range w.all() {
					if strings.HasPrefix(k, w.prefix+"own/k") && k != w.prefix+"own/k7" {
						t.Errorf("%s is still held", k)
					}
				}
				if err := taken.Check(); err != nil {
					t.Error(err)
				}
				w.closeClean(c, other)
				w.noLeases()
			})
		})
	}
}

// Callers that give up while they ride leave nothing, however late the round
// trip arrives, and those that stay get what they came for.
func TestLateCoalescedIsVoidForThoseWhoLeft(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const n = 40
		c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
		other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		mustTry(t, c, "warm")
		f.add(&rule{kind: "acquire", n: 2, before: 100 * time.Millisecond})
		f.add(&rule{kind: "acquire", before: 1500 * time.Millisecond})
		claims := make([]*etcdclaims.Claim, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+i%2*9)*sec)
				defer cancel()
				cl, err := c.TryAcquire(ctx, fmt.Sprint("k", i))
				if i%2 == 1 && err != nil || i%2 == 0 && err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("k%d: %v", i, err)
				}
				claims[i] = cl
			})
		}
		wg.Wait()
		time.Sleep(3 * sec)
		left := 0
		for i, cl := range claims {
			if cl != nil {
				if ok, err := cl.Owns(context.Background()); !ok || err != nil {
					t.Errorf("k%d: %v, %v", i, ok, err)
				}
				continue
			}
			left++
			w.free(fmt.Sprint("k", i), other)
		}
		if left < n/2-2 {
			t.Errorf("%d of %d gave up", left, n)
		}
		w.closeClean(c, other)
	})
}

// A grant or a keepalive that fails for good gives errors, not claims, and a
// session whose lease has gone is replaced by the next acquisition.
func TestSessionIsReplaced(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
		a := mustTry(t, c, "a")
		f.cut()
		<-a.Done()
		f.heal()
		b := mustTry(t, c, "b")
		if err := b.Check(); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * sec)
		a2 := mustTry(t, c, "a")
		if a2.Fence() <= a.Fence() {
			t.Errorf("fence went from %d to %d", a.Fence(), a2.Fence())
		}
		lossOf(t, a.Err(), etcdclaims.ReasonExpired)
		w.closeClean(c)
		w.noLeases()
	})
}

// A void key lives as long as its session: only what may still arrive gets one.
func TestVoidKeysDoNotPileUp(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		c, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		mustTry(t, other, "k")
		for range 100 {
			ctx, cancel := context.WithTimeout(context.Background(), sec)
			if _, err := c.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		time.Sleep(time.Minute)
		n := 0
		for k := range w.all() {
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
	virtually(t, func(w *world) {
		c, f := w.client(etcdclaims.Config{TTL: 60 * sec})
		other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		mustTry(t, c, "warm")
		f.add(&rule{kind: "keepalive", n: -1, dropped: true})
		time.Sleep(40 * sec) // D_soft is at 41.4 s
		f.add(&rule{kind: "acquire", after: 2 * sec})
		ctx, cancel := context.WithTimeout(context.Background(), 5*sec)
		defer cancel()
		wk, err := c.TryBegin(ctx, "k", etcdclaims.AtMostOnce())
		if err == nil {
			t.Fatalf("began %v past D_soft", wk)
		}
		t.Logf("refused: %v", err)
		f.clear()
		time.Sleep(30 * sec)
		wk, err = other.TryBegin(context.Background(), "k", etcdclaims.AtMostOnce())
		if err != nil {
			t.Fatalf("work that never ran: %v", err)
		}
		if wk.Attempt() != 1 {
			t.Errorf("attempt %d, but it never ran before", wk.Attempt())
		}
	})
}
