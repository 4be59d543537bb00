package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/raft/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// verbs are the requests of a worker, each with what it must have done.
var verbs = map[string]struct {
	do    func(ctx context.Context, l *queue.Delivery) error
	where queue.Where // the item is then; "" for nowhere
	fence bool        // the lease goes on with another fence
}{
	"complete": {do: func(ctx context.Context, l *queue.Delivery) error {
		return l.Complete(ctx, clientv3.OpPut("/effect", "1"))
	}},
	"fail": {do: func(ctx context.Context, l *queue.Delivery) error {
		_, err := l.Fail(ctx, errors.New("x"), queue.Backoff(etcdclaims.ExponentialBackoff(time.Hour, time.Hour)))
		return err
	}, where: queue.Later},
	"snooze":  {do: func(ctx context.Context, l *queue.Delivery) error { _, err := l.Snooze(ctx, time.Hour); return err }, where: queue.Later},
	"release": {do: func(ctx context.Context, l *queue.Delivery) error { return l.Release(ctx) }, where: queue.Ready},
	"discard": {do: func(ctx context.Context, l *queue.Delivery) error { return l.Discard(ctx, "x") }, where: queue.Dead},
	"heartbeat": {do: func(ctx context.Context, l *queue.Delivery) error {
		_, err := l.Heartbeat(ctx, time.Minute)
		return err
	}, where: queue.Taken, fence: true},
}

// dropped is what etcd answers for a while when it has lost its leader, without a code of
// its own.
var dropped = claimtest.Fault{LoseRequest: true, Err: status.Error(codes.Unknown, raft.ErrProposalDropped.Error()), Times: 3}

// Each verb takes effect once, and says so, whether its request or its reply is lost.
func TestVerbsUnderFaults(t *testing.T) {
	for name, v := range verbs {
		for fault, f := range map[string]claimtest.Fault{
			"reply lost":         {LoseReply: true},
			"reply lost twice":   {LoseReply: true, Times: 2},
			"request lost":       {LoseRequest: true},
			"reply lost at once": {LoseReply: true, Err: context.DeadlineExceeded},
			"proposal dropped":   dropped,
		} {
			t.Run(name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					q, host := w.process(queue.Config{TTL: 30 * sec})
					w.enqueue(q, "a")
					l := w.claim(q)
					if v.fence { // its other session, too
						w.enqueue(q, "b")
						_, err := w.claim(q).Heartbeat(w.Context(), time.Minute)
						w.ok(err)
					}
					f.On = claimtest.Other
					injected := host.Inject(f)
					w.ok(v.do(w.Context(), l))
					if injected.Hits() == 0 {
						t.Fatal("the fault did not happen")
					}
					if !v.fence {
						w.wantErr(l.Err(), etcdclaims.ErrReleased)
					}
					w.want(v.fence, l.Err() == nil)
					info, err := q.Look(w.Context(), "a")
					if v.where == "" {
						w.want(info.Where, queue.Completed)
						resp, err := w.server.Admin().Get(w.Context(), "/effect")
						w.ok(err)
						w.want(resp.Kvs[0].Version, int64(1))
						return
					}
					w.ok(err)
					w.want(info.Where, v.where)
				})
			})
		}
	}
}

// A verb that arrives long after its process died and the item went to another is
// refused by etcd.
func TestLateVerb(t *testing.T) {
	for name, v := range verbs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				victim, host := w.process(queue.Config{})
				q := w.queue(queue.Config{})
				w.enqueue(q, "a")
				l := w.claim(victim)
				if v.fence {
					w.enqueue(q, "b")
					_, err := w.claim(victim).Heartbeat(w.Context(), time.Minute)
					w.ok(err)
				}
				w.want(len(w.tryClaim(q, 1)), 0) // keeps house from now on
				held, ended := make(chan struct{}), make(chan struct{})
				host.Inject(claimtest.Fault{On: claimtest.Other, Hold: held, Ended: func(any, error) { close(ended) }})
				told := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), sec)
					defer cancel()
					told <- v.do(ctx, l)
				}()
				time.Sleep(100 * time.Millisecond)
				host.Cut()                               // and the request is on its way
				w.wantErr(<-told, etcdclaims.ErrUnknown) // neither done nor refused yet
				b, err := q.Claim(w.Context(), 1)
				w.ok(err)
				mine := b.Deliveries[0]
				w.want(mine.Attempt(), 2)
				host.Heal()
				close(held)
				<-ended
				w.wantErr(v.do(w.Context(), l), etcdclaims.ErrLost) // it is known by now
				w.ok(mine.Check())
				w.want(w.look(q, "a").Where, queue.Taken)
				w.want(w.look(q, "a").Owner, mine.Holder())
				w.ok(mine.Complete(w.Context()))
			})
		})
	}
}

// What a claiming request of unknown outcome took is the caller's, or nobody's.
func TestClaimUnderFaults(t *testing.T) {
	for fault, f := range map[string]claimtest.Fault{
		"reply lost": {LoseReply: true}, "reply lost twice": {LoseReply: true, Times: 2}, "request lost": {LoseRequest: true},
		"proposal dropped": dropped,
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: time.Minute})
				for _, id := range []string{"a", "b", "c"} {
					w.enqueue(q, id)
				}
				f.On = claimtest.Other
				host.Inject(f)
				ctx, cancel := context.WithTimeout(w.Context(), 50*sec)
				defer cancel()
				b, err := q.Claim(ctx, 3)
				w.ok(err)
				w.want(ids(b.Deliveries), "a b c")
				for _, l := range b.Deliveries {
					w.want(l.Attempt(), 1)
					w.ok(l.Complete(w.Context()))
				}
			})
		})
	}
	t.Run("proposal of a new process dropped", func(t *testing.T) {
		t.Parallel()
		virtually(t, func(w *world) {
			w.enqueue(w.queue(queue.Config{TTL: time.Minute}), "a")
			q, host := w.process(queue.Config{TTL: time.Minute})
			f := dropped
			f.On = claimtest.Other
			host.Inject(f)
			b, err := q.Claim(w.Context(), 1)
			w.ok(err)
			w.want(ids(b.Deliveries), "a")
		})
	})
	t.Run("request late", func(t *testing.T) {
		t.Parallel()
		virtually(t, func(w *world) {
			q, host := w.process(queue.Config{TTL: time.Minute})
			p := w.queue(queue.Config{})
			w.enqueue(q, "a")
			held, ended := make(chan struct{}), make(chan struct{})
			host.Inject(claimtest.Fault{On: claimtest.Other, Hold: held, Ended: func(any, error) { close(ended) }})
			ctx, cancel := context.WithTimeout(w.Context(), sec)
			defer cancel()
			_, err := q.Claim(ctx, 1)
			w.wantErr(err, context.DeadlineExceeded)
			time.Sleep(20 * sec) // the claimer has looked it up, and claimed again for nobody, by now
			close(held)
			<-ended
			time.Sleep(sec)
			w.want(w.claim(p).Attempt(), 1)
		})
	})
}

// An item is enqueued once, and a request that comes when it is long completed does
// not enqueue it again, also without an id of its own.
func TestEnqueueUnderFaults(t *testing.T) {
	for fault, f := range map[string]claimtest.Fault{
		"reply lost": {LoseReply: true}, "reply lost twice": {LoseReply: true, Times: 2}, "request lost": {LoseRequest: true},
		"proposal dropped": dropped,
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: time.Minute})
				w.enqueue(q, "first")
				f.On = claimtest.Other
				host.Inject(f)
				w.enqueue(q, "a")
				w.want(ids(w.tryClaim(q, 5)), "first a")
			})
		})
	}
	t.Run("request late", func(t *testing.T) {
		t.Parallel()
		virtually(t, func(w *world) {
			q, host := w.process(queue.Config{TTL: time.Minute})
			w.enqueue(q, "first")
			w.ok(w.claim(q).Complete(w.Context()))
			held, ended := make(chan struct{}), make(chan struct{})
			host.Inject(claimtest.Fault{On: claimtest.Other, Hold: held, Ended: func(any, error) { close(ended) }})
			added, err := q.Enqueue(w.Context(), queue.NewItem([]byte("x")))
			w.ok(err)
			w.want(added, true)
			w.ok(w.claim(q).Complete(w.Context()))
			close(held)
			<-ended
			w.want(len(w.tryClaim(q, 5)), 0)
		})
	})
}

// When etcd has compacted how a lease ended, a lost reply stays unknown.
func TestCompactedHistory(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: 30 * sec})
		w.enqueue(q, "a")
		l := w.claim(q)
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true, Saw: func(any) {
			go func() {
				time.Sleep(sec)
				resp, err := w.server.Admin().Put(context.Background(), "/later", "") // so that the end itself is compacted
				if err == nil {
					_, err = w.server.Admin().Compact(context.Background(), resp.Header.Revision)
				}
				if err != nil {
					t.Error(err)
				}
			}()
		}})
		w.wantErr(l.Complete(w.Context()), etcdclaims.ErrUnknown)
		w.want(w.look(q, "a").Where, queue.Completed)
	})
}

// The end of a worker's belief comes before others can have its items: when the
// network is cut, and when the queue is closed.
func TestBeliefEndsFirst(t *testing.T) {
	for _, how := range []string{"cut", "closed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				victim, host := w.process(queue.Config{})
				q := w.queue(queue.Config{})
				w.enqueue(q, "a")
				l := w.claim(victim)
				closed := make(chan struct{})
				if how == "cut" {
					host.Cut()
					close(closed)
				} else {
					host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayReply: 500 * time.Millisecond})
					go func() { defer close(closed); _ = victim.Close(context.Background()) }()
				}
				b, err := q.Claim(w.Context(), 1)
				w.ok(err)
				if err := l.Check(); err == nil {
					t.Error("two believe that the item is theirs")
				}
				w.ok(b.Deliveries[0].Check())
				<-closed
			})
		})
	}
}

// A worker does not believe in an item any more while it gives it up, nor when it
// cannot know whether it has: others may have it already.
func TestBeliefEndsWithVerbs(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: 30 * sec})
		p := w.queue(queue.Config{TTL: 30 * sec})
		w.enqueue(q, "a")
		l := w.claim(q)
		host.Inject(claimtest.Fault{On: claimtest.Other, DelayReply: 2 * sec})
		told := make(chan error, 1)
		go func() { told <- l.Release(w.Context()) }()
		time.Sleep(sec)
		mine := w.claim(p)
		w.ok(mine.Check())
		w.wantErr(l.Check(), etcdclaims.ErrReleased)
		w.ok(<-told)
		w.ok(mine.Release(w.Context()))
		// A verb that etcd refuses for another reason leaves the item where it is.
		l = w.claim(q)
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseRequest: true, Code: codes.PermissionDenied})
		if err := l.Release(w.Context()); err == nil {
			t.Error("the verb was told to be done")
		}
		w.ok(l.Check())
		w.ok(l.Release(w.Context()))
	})
}

// A session whose lease is revoked as it is opened is opened again.
func TestSessionRevokedAtBirth(t *testing.T) {
	calls := map[string]func(ctx context.Context, q *queue.Queue) error{
		"claim": func(ctx context.Context, q *queue.Queue) error { _, err := q.Claim(ctx, 1); return err },
		"enqueue": func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Enqueue(ctx, queue.NewItem(nil))
			return err
		},
		"pause": func(ctx context.Context, q *queue.Queue) error { return q.Pause(ctx, "") },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				p := w.queue(queue.Config{})
				q, host := w.process(queue.Config{})
				w.enqueue(p, "a")
				f := claimtest.Fault{On: claimtest.Acquire, LoseRequest: true, Err: rpctypes.ErrGRPCLeaseNotFound, Times: 3}
				injected := host.Inject(f)
				w.ok(call(w.Context(), q))
				w.want(injected.Hits(), 3)
				ctx, cancel := context.WithTimeout(w.Context(), 5*sec)
				defer cancel()
				q, host = w.process(queue.Config{})
				f.Times = -1
				host.Inject(f)
				err := call(ctx, q)
				if name == "claim" { // it waits, and its claimer goes on
					w.wantErr(err, context.DeadlineExceeded)
				} else {
					w.wantErr(err, etcdclaims.ErrLost)
				}
				if errors.Is(err, rpctypes.ErrLeaseNotFound) {
					t.Error(err)
				}
			})
		})
	}
}

// A verb that is called again after its outcome was unknown returns what the first call
// did, and not what this call would have done.
func TestVerbCalledAgain(t *testing.T) {
	fail := func(cause error, wait time.Duration) func(ctx context.Context, l *queue.Delivery) (queue.Outcome, error) {
		return func(ctx context.Context, l *queue.Delivery) (queue.Outcome, error) {
			return l.Fail(ctx, cause, queue.Backoff(func(int) time.Duration { return wait }))
		}
	}
	snooze := func(d time.Duration) func(ctx context.Context, l *queue.Delivery) (queue.Outcome, error) {
		return func(ctx context.Context, l *queue.Delivery) (queue.Outcome, error) {
			until, err := l.Snooze(ctx, d)
			return queue.Outcome{Until: until}, err
		}
	}
	cause := errors.New("x")
	for name, calls := range map[string][2]func(ctx context.Context, l *queue.Delivery) (queue.Outcome, error){
		"fail":                {fail(cause, time.Hour), fail(cause, time.Minute)},
		"fail, then for good": {fail(cause, time.Hour), fail(etcdclaims.Permanent(cause), 0)},
		"fail for good":       {fail(etcdclaims.Permanent(cause), 0), fail(cause, time.Hour)},
		"snooze":              {snooze(time.Hour), snooze(time.Minute)},
	} {
		for _, compacted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/compacted=%t", name, compacted), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					q, host := w.process(queue.Config{TTL: 30 * sec})
					w.enqueue(q, "a")
					l := w.claim(q)
					host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
					ctx, cancel := context.WithTimeout(w.Context(), sec)
					defer cancel()
					_, err := calls[0](ctx, l)
					w.wantErr(err, etcdclaims.ErrUnknown)
					is := w.look(q, "a")
					if compacted {
						resp, err := w.server.Admin().Put(w.Context(), "/later", "")
						w.ok(err)
						_, err = w.server.Admin().Compact(w.Context(), resp.Header.Revision)
						w.ok(err)
					}
					out, err := calls[1](w.Context(), l)
					if compacted {
						w.wantErr(err, etcdclaims.ErrUnknown)
						w.want(out, queue.Outcome{})
						return
					}
					w.ok(err)
					w.want(out.Dead, is.Where == queue.Dead)
					if !out.Dead && !out.Until.Equal(is.Vesting) {
						w.Errorf("told until %v, the item waits until %v", out.Until, is.Vesting)
					}
					if name != "snooze" {
						w.want(out.Attempts, is.Attempts)
					}
					w.wantErr(l.Err(), etcdclaims.ErrReleased)
				})
			})
		}
	}
}

// So it does if the outcome of another verb was unknown in between.
func TestVerbCalledAgainAfterAnother(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: 30 * sec})
		w.enqueue(q, "a")
		l := w.claim(q)
		short := func() context.Context {
			ctx, cancel := context.WithTimeout(w.Context(), sec)
			t.Cleanup(cancel)
			return ctx
		}
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
		_, err := l.Fail(short(), errors.New("x"))
		w.wantErr(err, etcdclaims.ErrUnknown)
		lost := host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, LoseRequest: true})
		w.wantErr(l.Release(short()), etcdclaims.ErrUnknown)
		lost.Remove()
		out, err := l.Fail(w.Context(), errors.New("x"))
		w.ok(err)
		w.want(out.Attempts, 1)
	})
}

// Pause that is refused after a request of unknown outcome does not say that nothing was done.
func TestPauseRefusedAfterUnknown(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		w.enqueue(q, "a")
		lost := host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true, Code: codes.Unavailable})
		denied := host.Inject(claimtest.Fault{On: claimtest.Other, Skip: 1, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied}) // the look-up passes
		err := q.Pause(w.Context(), "why")
		w.want(lost.Hits(), 1)
		if denied.Hits() == 0 {
			t.Error("not refused")
		}
		w.wantErr(err, etcdclaims.ErrUnknown)
		w.wantErr(err, etcdclaims.ErrPermissionDenied)
		host.RemoveFaults()
	})
}
