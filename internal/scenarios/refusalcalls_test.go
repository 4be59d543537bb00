package scenarios_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/refusals"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/sched"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// preparedCall is a call of which each needs something that was made for it.
type preparedCall struct {
	name string
	// of makes that with a name, before etcd refuses, and returns the call.
	of func(w *world, name string) func(ctx context.Context) error
	// bare allows its errors to be those of clientv3, without the call and what it was for.
	bare bool
}

// theCalls are those that no loop has.
var theCalls = []preparedCall{
	{name: "Runner.Forget", of: func(w *world, name string) func(context.Context) error {
		w.fail(name)
		return func(ctx context.Context) error { return testwork.Of(w.claims).Forget(ctx, name) }
	}},
	{name: "Runner.Retry", of: func(w *world, name string) func(context.Context) error {
		w.fail(name)
		return func(ctx context.Context) error { return second(testwork.Of(w.claims).Retry(ctx, name)) }
	}},
	{name: "admin.Resize", of: func(w *world, name string) func(context.Context) error {
		return func(ctx context.Context) error { return admin.Resize(ctx, w.claims, name, 3) }
	}},
	{name: "core.GrantLease", bare: true, of: func(w *world, _ string) func(context.Context) error {
		return func(ctx context.Context) error { return second(core.Of(w.claims).GrantLease(ctx, time.Minute)) }
	}},
	{name: "core.RevokeLease", bare: true, of: func(w *world, _ string) func(context.Context) error {
		id := must[clientv3.LeaseID](w.T)(core.Of(w.other).GrantLease(w.Context(), time.Minute))
		return func(ctx context.Context) error { return core.Of(w.claims).RevokeLease(ctx, id) }
	}},
	{name: "Client.Health", of: func(w *world, _ string) func(context.Context) error {
		time.Sleep(2 * time.Second) // an answer is good for one
		return func(ctx context.Context) error { return second(w.claims.Health(ctx)) }
	}},
	{name: "Claim.Txn", of: func(w *world, name string) func(context.Context) error {
		c := must[*etcdclaims.Claim](w.T)(w.claims.TryAcquire(w.Context(), name))
		return func(ctx context.Context) error { return second(c.Txn(ctx).Then(clientv3.OpPut(name, "")).Commit()) }
	}},
	{name: "Queue.Cancel", of: ofItem(func(ctx context.Context, q *queue.Queue, id string) error { return q.Cancel(ctx, id) })},
	{name: "Queue.SetPriority", of: ofItem(func(ctx context.Context, q *queue.Queue, id string) error { return q.SetPriority(ctx, id, 9) })},
	{name: "Queue.Redrive", of: ofDead(func(ctx context.Context, q *queue.Queue, id string) error { return q.Redrive(ctx, id) })},
	{name: "Queue.RedriveAll", of: ofDead(func(ctx context.Context, q *queue.Queue, _ string) error { return second(q.RedriveAll(ctx)) })},
	{name: "Queue.Purge", of: ofDead(func(ctx context.Context, q *queue.Queue, _ string) error {
		return second(q.Purge(ctx, time.Now().Add(time.Hour)))
	})},
	{name: "Queue.Reconfigure", of: func(w *world, _ string) func(context.Context) error {
		q, producer, item := w.newQueue(w.claims), w.newQueue(w.other), queue.NewItem(nil)
		must[bool](w.T)(producer.Enqueue(w.Context(), item))
		if err := producer.Cancel(w.Context(), item.ID()); err != nil {
			w.Fatal(err)
		}
		if err := producer.Close(w.Context()); err != nil {
			w.Fatal(err)
		}
		return q.Reconfigure
	}},
	{name: "Scheduler.Define", of: ofJob(func(ctx context.Context, s *sched.Scheduler, job string) error {
		return second(s.Define(ctx, sched.Definition{Name: job, Kind: "kind", Schedule: "@every 2h", Version: sched.AnyVersion}))
	})},
	{name: "Scheduler.Undefine", of: ofJob(func(ctx context.Context, s *sched.Scheduler, job string) error {
		return s.Undefine(ctx, job, sched.AnyVersion)
	})},
	{name: "Scheduler.Pause", of: ofJob(func(ctx context.Context, s *sched.Scheduler, job string) error { return s.Pause(ctx, job, "a test") })},
	{name: "Scheduler.Resume", of: ofJob(func(ctx context.Context, s *sched.Scheduler, job string) error { return s.Resume(ctx, job) }, "paused")},
	{name: "Scheduler.RunNow", of: ofJob(func(ctx context.Context, s *sched.Scheduler, job string) error { return second(s.RunNow(ctx, job)) })},
	{name: "Scheduler.Backfill", of: ofJob(func(ctx context.Context, s *sched.Scheduler, job string) error {
		return second(s.Backfill(ctx, job, time.Now().Add(-2*time.Hour), time.Now(), nil))
	})},
	{name: "Scheduler.Cancel", of: ofJob(func(ctx context.Context, s *sched.Scheduler, job string) error { return s.Cancel(ctx, job, "a test") })},
	{name: "Scheduler.Forget", of: ofJob(func(ctx context.Context, s *sched.Scheduler, job string) error { return s.Forget(ctx, job) }, "undefined")},
	{name: "Scheduler.ResetMark", of: ofJob(func(ctx context.Context, s *sched.Scheduler, job string) error {
		return unless(sched.ErrUnchanged)(s.ResetMark(ctx, job, "a test", true))
	})},
	{name: "View.Evict", of: ofGroup(func(ctx context.Context, v *group.View) error { return v.Evict(ctx, "nobody", "a test", time.Minute) })},
	{name: "View.Readmit", of: ofGroup(func(ctx context.Context, v *group.View) error { return v.Readmit(ctx, "nobody") })},
	{name: "group.Open", of: func(w *world, name string) func(context.Context) error {
		w.join(name)
		return func(ctx context.Context) error {
			v, err := group.Open(ctx, w.claims, name)
			if err == nil {
				v.Close()
			}
			return err
		}
	}},
	{name: "group.Remove", of: func(w *world, name string) func(context.Context) error {
		if err := w.join(name).Leave(w.Context()); err != nil {
			w.Fatal(err)
		}
		return func(ctx context.Context) error { return group.Remove(ctx, w.claims, name) }
	}},
}

// fail makes work that has failed.
func (w *world) fail(key string) {
	job := must[*work.Work](w.T)(testwork.Of(w.other).TryBegin(w.Context(), key))
	must[work.Record](w.T)(job.Fail(w.Context(), errors.New("it failed")))
}

// join makes a group with a member.
func (w *world) join(name string) *group.Member {
	m := must[*group.Member](w.T)(group.Join(w.Context(), w.other, group.Config{Group: name, Partitions: 1}, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
		<-ctx.Done()
		return nil
	}))
	w.Cleanup(func() { _ = m.Leave(context.Background()) })
	return m
}

// ofItem returns a call for an item that waits.
func ofItem(do func(ctx context.Context, q *queue.Queue, id string) error) func(w *world, name string) func(context.Context) error {
	return func(w *world, _ string) func(context.Context) error {
		q, producer, item := w.newQueue(w.claims), w.newQueue(w.other), queue.NewItem(nil)
		must[bool](w.T)(producer.Enqueue(w.Context(), item))
		return func(ctx context.Context) error { return do(ctx, q, item.ID()) }
	}
}

// ofDead returns a call for a dead letter.
func ofDead(do func(ctx context.Context, q *queue.Queue, id string) error) func(w *world, name string) func(context.Context) error {
	return func(w *world, _ string) func(context.Context) error {
		q, producer := w.newQueue(w.claims), w.newQueue(w.other)
		must[bool](w.T)(producer.Enqueue(w.Context(), queue.NewItem(nil)))
		l := must[queue.Batch](w.T)(producer.TryClaim(w.Context(), 1)).Deliveries[0]
		if err := l.Discard(w.Context(), "a test"); err != nil {
			w.Fatal(err)
		}
		return func(ctx context.Context) error { return do(ctx, q, l.ID()) }
	}
}

// ofJob returns a call for a job that is defined and registered, and as given.
func ofJob(do func(ctx context.Context, s *sched.Scheduler, job string) error, as ...string) func(w *world, name string) func(context.Context) error {
	return func(w *world, job string) func(context.Context) error {
		s, owner := must[*sched.Scheduler](w.T)(sched.New(w.claims, sched.Config{Group: "default"})), must[*sched.Scheduler](w.T)(sched.New(w.other, sched.Config{Group: "default"}))
		if err := owner.Handle("kind", func(context.Context, sched.Tick, json.RawMessage) error { return nil }); err != nil {
			w.Fatal(err)
		}
		runs, stop := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- owner.Run(runs) }()
		end := func() { stop(); <-ended }
		must[int64](w.T)(owner.Define(w.Context(), sched.Definition{Name: job, Kind: "kind", Schedule: "@every 1h"}))
		time.Sleep(time.Second)
		var err error
		switch strings.Join(as, "") {
		case "paused":
			err = owner.Pause(w.Context(), job, "a test")
		case "undefined":
			err = owner.Undefine(w.Context(), job, sched.AnyVersion)
		}
		if err != nil {
			w.Fatal(err)
		}
		end()
		return func(ctx context.Context) error { return do(ctx, s, job) }
	}
}

// ofGroup returns a call of a view.
func ofGroup(do func(ctx context.Context, v *group.View) error) func(w *world, name string) func(context.Context) error {
	return func(w *world, name string) func(context.Context) error {
		w.join(name)
		v := must[*group.View](w.T)(group.Open(w.Context(), w.claims, name))
		w.Cleanup(v.Close)
		return func(ctx context.Context) error { return do(ctx, v) }
	}
}

// refused makes a call while etcd refuses everything, and again afterwards if it has failed.
func (c preparedCall) refused(w *world, name string, refusal error) {
	do := c.of(w, "of-"+name)
	fault := w.refuse(refusal)
	defer fault.Remove()
	over := time.AfterFunc(refusing, fault.Remove)
	defer over.Stop()
	ctx, cancel := context.WithTimeout(w.Context(), refusing+patience)
	defer cancel()
	begun := time.Now()
	err := do(ctx)
	switch took := time.Since(begun); {
	case fault.Hits() == 0:
		w.Errorf("%s: after %v: nothing was refused", c.name, refusal)
	case err == nil && took < refusing:
		w.Errorf("%s: after %v: a success within %v", c.name, refusal, took)
	case took > refusing+patience+time.Second:
		w.Errorf("%s: after %v: it took %v", c.name, refusal, took)
	case err == nil:
		return
	}
	if wrong := wrongError(err, refusal, c.bare, false); wrong != "" {
		w.Errorf("%s: after %v: %v: %s", c.name, refusal, err, wrong)
	}
	fault.Remove()
	time.Sleep(recovery)
	ctx, cancel = context.WithTimeout(w.Context(), patience)
	defer cancel()
	if err := do(ctx); err != nil && !errors.Is(err, etcdclaims.ErrReleased) && !errors.Is(err, etcdclaims.ErrLost) {
		w.Errorf("%s: again after %v: %v", c.name, refusal, err)
	}
}

// wrongError returns what is wrong with the error of a call of which all requests were refused.
// bare allows it to be the error of clientv3, and settled an unknown outcome, because it is settled
// in the background.
func wrongError(err, refusal error, bare, settled bool) string {
	cause := clientv3.ContextError(context.Background(), refusal)
	text := errtext.Bare(err)
	switch verdict := txn.Judge(refusal); {
	case errors.Is(cause, rpctypes.ErrLeaseNotFound) && errors.Is(err, etcdclaims.ErrLost):
		return "" // etcd says so
	case txn.Judge(err) != verdict && !(verdict == txn.Passing && txn.MayBeDone(err)):
		return fmt.Sprintf("it has the verdict %d, want %d", txn.Judge(err), verdict)
	case errors.Is(err, etcdclaims.ErrUnknown) && !txn.MayBeDone(refusal) && !settled:
		return "it is an unknown outcome, of what was not carried out"
	case bare:
		return ""
	case errors.Is(err, etcdclaims.ErrPermissionDenied) != errors.Is(txn.Denied(cause), etcdclaims.ErrPermissionDenied):
		return "it matches ErrPermissionDenied, or does not"
	case !strings.Contains(text, cause.Error()):
		return "it does not have the text of etcd"
	case strings.HasPrefix(text, cause.Error()) || strings.HasPrefix(text, "outcome unknown") || strings.HasPrefix(text, "permission denied by etcd"):
		return "it does not name the call"
	case strings.Contains(text, "\n"):
		return "it has more than one line"
	}
	return ""
}

// A refused release ends, and does not try again without a pause.
func TestRefusedReleaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := ofClaims[slices.IndexFunc(ofClaims, func(l loop) bool { return l.name == "Claim.Release" })]
		endsOnce(t, l, rpctypes.ErrGRPCLeaseNotFound)
	})
}

// An eviction waits for its lease while etcd cannot grant one.
func TestEvictionOutlivesRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		w := &world{T: t, host: server.Host(t)}
		w.claims = claimtest.NewClient(t, w.host, etcdclaims.Config{})
		w.other = claimtest.NewClient(t, server.Host(t), etcdclaims.Config{})
		w.join("g")
		v := must[*group.View](t)(group.Open(t.Context(), w.claims, "g"))
		defer v.Close()
		fault := w.refuse(refusals.Others()["proposal dropped"]) // clientv3 repeats others by itself
		defer fault.Remove()
		defer time.AfterFunc(time.Second, fault.Remove).Stop()
		if err := v.Evict(t.Context(), "nobody", "a test", time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// A call that etcd refuses fails with its error, or succeeds when etcd refuses no more. What was
// not sent is never an unknown outcome, and the call succeeds when it is made again.
func TestCallsMeetRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range theCalls {
		t.Run(c.name, func(t *testing.T) {
			testetcd.Third(t)
			t.Parallel()
			for _, pass := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					server := claimtest.Start(t)
					w := &world{T: t, host: server.Host(t)}
					w.claims = claimtest.NewClient(t, w.host, etcdclaims.Config{})
					w.other = claimtest.NewClient(t, server.Host(t), etcdclaims.Config{})
					n := 0
					for _, refusal := range sample(theRefusals(t, pass), 5) {
						n++
						c.refused(w, fmt.Sprint("k", n), refusal)
					}
				})
			}
		})
	}
}
