package work_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/steps"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// record returns the record of work as etcd has it, or nil.
func (w *world) record(key string) *mvccpb.KeyValue {
	w.Helper()
	return rawKV(w.T, w.Raw, w.Prefix+"work/"+key)
}

// An attempt at work that nobody knows of is undone in the background, and meanwhile leases
// end: that of the client's claims, that of the record before, or both. The record before is
// there again in the end, however it ends: without it work that is at most once runs twice.
func TestUndoOfWorkWithoutALease(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, tt := range map[string]struct {
		before, after []claimtest.Kind // whose replies are errors during the call, and for 4 s after it
		gone          func(w *world, owner *client)
		moved         bool // to the lease of the attempt
	}{
		"of the claim": {
			gone: func(w *world, _ *client) { w.Server.Revoke(w.T, w.Own("k")) },
		},
		"of the claim, which the client cannot see": {
			after: []claimtest.Kind{claimtest.KeepAlive},
			gone:  func(w *world, _ *client) { w.Server.Revoke(w.T, w.Own("k")) },
		},
		// Its owner sees a lease without records.
		"of the record": {
			gone: func(w *world, owner *client) { noErr(w.T, owner.Close(ctx)) }, moved: true,
		},
		"of the record, and the session is given up while its lease lasts": {
			before: []claimtest.Kind{claimtest.KeepAlive},
			after:  []claimtest.Kind{claimtest.KeepAlive},
			gone: func(w *world, owner *client) {
				noErr(w.T, owner.Close(ctx))
				time.Sleep(8 * sec)
			}, moved: true,
		},
		"of both": {
			gone: func(w *world, owner *client) {
				noErr(w.T, owner.Close(ctx))
				w.Server.Revoke(w.T, w.Own("k"))
			}, moved: true,
		},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			owner := w.peer()
			noErr(t, failing(ctx, tryBegin(t, owner, "k", work.AtMostOnce()), etcdclaims.Permanent(errors.New("boom"))))
			before := w.record("k")
			c, host := w.client(config{TTL: 15 * sec})
			host.Inject(claimtest.Fault{On: claimtest.Watch, DelayReply: 10 * sec, Times: -1}) // the client learns of nothing by its watch
			noErr(t, tryBegin(t, c, "warm").Complete(ctx))
			tryClaim(t, c, "busy")
			lose := func(kinds []claimtest.Kind) {
				for _, kind := range kinds {
					host.Inject(claimtest.Fault{On: kind, LoseReply: true, Code: codes.Unavailable, Times: -1})
				}
			}
			lose(tt.before)
			// The first attempt learns of the record, the second is lost.
			lost := []*claimtest.Injection{host.Inject(claimtest.Fault{On: steps.Take, Key: "k", Skip: 1, LoseReply: true, Times: -1})}
			for _, kind := range []claimtest.Kind{steps.Resolve, steps.Undo} {
				lost = append(lost, host.Inject(claimtest.Fault{On: kind, LoseRequest: true, Code: codes.Unavailable, Times: -1}))
			}
			short, cancel := context.WithTimeout(ctx, 3*sec)
			defer cancel()
			_, err := c.TryBegin(short, "k", work.AtMostOnce(), work.Again())
			wantIs(t, err, etcdclaims.ErrUnknown)
			if now := w.record("k"); now.ModRevision == before.ModRevision {
				t.Fatal("the attempt was not carried out")
			}
			attempt := w.record("k").Lease
			lose(tt.after)
			tt.gone(w, owner)
			for _, f := range lost {
				f.Remove()
			}
			time.Sleep(4 * sec)
			host.RemoveFaults()
			time.Sleep(30 * sec)
			now, on := w.record("k"), before.Lease
			if tt.moved {
				on = attempt
			}
			if now == nil || string(now.Value) != string(before.Value) || now.Lease != on {
				t.Errorf("the record is %v\nit was %v, on lease %x", now, before, on)
			}
			_, err = w.peer().TryBegin(ctx, "k", work.AtMostOnce())
			wantIs(t, err, work.ErrDead)
		})
	}
}

// If the lease of a claim ends before its client knows that it has it, the record that is left
// is no orphan to this client: the attempt does not count, and work that is at most once is
// not buried unrun.
func TestOwnAttemptThatIsGoneIsNoOrphan(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, call := range map[string]func(c *client) (*work.Work, error){
		"TryBegin": func(c *client) (*work.Work, error) {
			return c.TryBegin(ctx, "k", work.AtMostOnce())
		},
		"Begin": func(c *client) (*work.Work, error) {
			return c.Begin(ctx, "k", work.AtMostOnce())
		},
		"TryBegin again": func(c *client) (*work.Work, error) {
			short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			if _, err := c.TryBegin(short, "k", work.AtMostOnce()); !errors.Is(err, etcdclaims.ErrUnknown) {
				return nil, err
			}
			time.Sleep(600 * time.Millisecond)
			return c.TryBegin(ctx, "k", work.AtMostOnce())
		},
	} {
		for _, way := range []string{"revoked", "released by an operator"} {
			virtualCase(t, name+", "+way, func(t *testing.T, w *world) {
				c, host := w.client(config{TTL: 15 * sec})
				noErr(t, tryBegin(t, c, "warm").Complete(ctx))
				host.Inject(claimtest.Fault{On: steps.Take, Key: "k", LoseReply: true})
				slow := claimtest.Fault{DelayRequest: sec, Times: -1}
				for _, slow.On = range []claimtest.Kind{steps.Resolve, steps.Undo} {
					host.Inject(slow)
				}
				time.AfterFunc(800*time.Millisecond, func() {
					if way == "revoked" {
						w.Server.Revoke(t, w.Own("k"))
					} else {
						w.Server.Delete(t, w.Own("k"))
					}
				})
				job, err := call(c)
				if err != nil {
					t.Fatalf("%v; the record is %v", err, w.record("k"))
				}
				if p, ok := job.Previous(); job.Attempt() != 1 || ok {
					t.Errorf("attempt %d after %+v", job.Attempt(), p)
				}
				noErr(t, job.Complete(ctx))
				time.Sleep(5 * sec)
				if r, _, err := c.Record(ctx, "k"); err != nil || r.State != work.StateDone || r.Attempt != 1 {
					t.Errorf("the record is %+v, %v", r, err)
				}
			})
		}
	}
}

// An attempt that was given up puts the record back where it was: on its lease.
func TestUndoKeepsTheRetention(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, _ := w.client(config{TTL: 15 * sec})
		b, host := w.client(config{TTL: 15 * sec})
		noErr(t, failing(ctx, tryBegin(t, a, "k"), etcdclaims.RetryAfter(errors.New("x"), 0)))
		before := w.record("k")
		tryBegin(t, b, "warm")
		_, err := b.TryAcquire(ctx, "k", etcdclaims.If(clientv3.Compare(clientv3.Version("/never"), ">", 0))) // a session
		wantIs(t, err, etcdclaims.ErrRefused)
		host.Inject(claimtest.Fault{On: steps.Take, Skip: 1, LoseReply: true, Times: -1})
		host.Inject(claimtest.Fault{On: steps.Resolve, LoseRequest: true, Times: -1})
		short, cancel := context.WithTimeout(ctx, 3*sec)
		defer cancel()
		_, err = b.TryBegin(short, "k")
		wantIs(t, err, etcdclaims.ErrUnknown)
		host.RemoveFaults()
		time.Sleep(10 * sec)
		if now := w.record("k"); now == nil || now.Lease != before.Lease || string(now.Value) != string(before.Value) {
			t.Errorf("the record is %v, it was %v", now, before)
		}
		tryBegin(t, b, "k")
	})
}

// While an attempt at work is being undone, a client that looks for what a restore brought back leaves the attempt's
// claim where it is. Otherwise the next caller takes the attempt for one whose owner died.
func TestUndoneWorkIsNoGhost(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, host := w.client(config{TTL: 30 * sec})
		noErr(t, tryBegin(t, a, "another").Complete(ctx)) // from now on the client has a session
		host.Inject(claimtest.Fault{On: steps.Take, Key: "k", LoseReply: true})
		for _, kind := range []claimtest.Kind{steps.Resolve, steps.Undo} {
			host.Inject(claimtest.Fault{On: kind, LoseRequest: true, Code: codes.Unavailable, Times: -1})
		}
		time.AfterFunc(1500*time.Millisecond, host.Kill)
		short, cancel := context.WithTimeout(ctx, 2*sec)
		defer cancel()
		_, err := a.TryBegin(short, "k", work.AtMostOnce())
		wantIs(t, err, etcdclaims.ErrUnknown)
		if w.record("k") == nil {
			t.Fatal("the attempt was not carried out")
		}
		began := make(chan error, 1)
		var next *work.Work
		b := w.peer()
		go func() {
			var err error
			next, err = b.Begin(ctx, "k", work.AtMostOnce())
			began <- err
		}()
		time.Sleep(sec)
		w.Server.Compact(t) // then the watch of notices begins anew, and the client looks around
		host.Heal()
		time.Sleep(3 * sec)
		host.RemoveFaults()
		noErr(t, <-began)
		if _, has := next.Previous(); has || next.Attempt() != 1 {
			t.Errorf("attempt %d, with one before: %v", next.Attempt(), has)
		}
		noErr(t, next.Complete(ctx))
	})
}
