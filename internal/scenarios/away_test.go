package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// call is a call that may have to wait for etcd. before is done while etcd is there yet, and
// returns the call. names is what the report of the outage names, "" if the call ends by
// itself before there is one: then its error says what the report would.
type call struct {
	names  string
	before func(ctx context.Context, c *etcdclaims.Client) (func(ctx context.Context) error, error)
}

// drain takes all of a sequence, and returns its errors.
func drain[T any](all iter.Seq2[T, error]) (err error) {
	for _, e := range all {
		err = errors.Join(err, e)
	}
	return err
}

// of makes a call of what made returns.
func of[T any](names string, made func(ctx context.Context, c *etcdclaims.Client) (T, error), f func(ctx context.Context, it T) error) call {
	return call{names, func(ctx context.Context, c *etcdclaims.Client) (func(ctx context.Context) error, error) {
		it, err := made(ctx, c)
		return func(ctx context.Context) error { return f(ctx, it) }, err
	}}
}

func onClient(names string, f func(ctx context.Context, c *etcdclaims.Client) error) call {
	return of(names, func(_ context.Context, c *etcdclaims.Client) (*etcdclaims.Client, error) { return c, nil }, f)
}

func onClaim(f func(ctx context.Context, cl *etcdclaims.Claim) error) call {
	return of("", func(ctx context.Context, c *etcdclaims.Client) (*etcdclaims.Claim, error) {
		return c.TryAcquire(ctx, c.Owner())
	}, f)
}

func onWork(f func(ctx context.Context, w *work.Work) error) call {
	return of("", func(ctx context.Context, c *etcdclaims.Client) (*work.Work, error) {
		return testwork.Of(c).TryBegin(ctx, c.Owner())
	}, f)
}

func onLocks(f func(ctx context.Context, l locks.Locks) error) call {
	return onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return f(ctx, locks.New(c)) })
}

func onQueue(names string, f func(ctx context.Context, q *queue.Queue) error) call {
	return of(names, func(_ context.Context, c *etcdclaims.Client) (*queue.Queue, error) {
		return queue.New(c, queue.Config{Name: "mail"})
	}, f)
}

// taken is an item in the hand of a worker.
type taken struct {
	q *queue.Queue
	l *queue.Delivery
}

func take(ctx context.Context, c *etcdclaims.Client) (taken, error) {
	q, err := queue.New(c, queue.Config{Name: c.Owner()})
	if err != nil {
		return taken{}, err
	}
	if _, err := q.Enqueue(ctx, queue.NewItem(nil)); err != nil {
		return taken{}, err
	}
	b, err := q.Claim(ctx, 1)
	if err != nil {
		return taken{}, err
	}
	return taken{q, b.Deliveries[0]}, nil
}

func onItem(f func(ctx context.Context, l *queue.Delivery) error) call {
	return of("", take, func(ctx context.Context, it taken) error { return f(ctx, it.l) })
}

func onScheduler(names string, f func(ctx context.Context, s *sched.Scheduler) error) call {
	return of(names, func(_ context.Context, c *etcdclaims.Client) (*sched.Scheduler, error) {
		s, err := sched.New(c, sched.Config{Group: "billing"})
		if err == nil {
			err = s.Add(sched.Job{Name: "invoices", Schedule: calendar.Must(calendar.Every(time.Hour, 0)), Handler: func(context.Context, sched.Tick) error { return nil }})
		}
		return s, err
	}, f)
}

func onMember(f func(ctx context.Context, m *group.Member) error) call {
	return of("", func(ctx context.Context, c *etcdclaims.Client) (*group.Member, error) {
		return group.Join(ctx, c, group.Config{Group: c.Owner(), Partitions: 1}, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
			<-ctx.Done()
			return nil
		})
	}, f)
}

func onView(names string, f func(ctx context.Context, v *group.View) error) call {
	return of(names, func(ctx context.Context, c *etcdclaims.Client) (*group.View, error) { return group.Open(ctx, c, "log") }, f)
}

func never(context.Context) error { return nil }

// awayCalls are all calls that can wait for etcd, by type and method.
var awayCalls = map[string]call{
	"Client.TryAcquire": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.TryAcquire(ctx, "k"); return err }),
	"Client.Acquire":    onClient("k", func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.Acquire(ctx, "k"); return err }),
	"Client.TryAcquireAll": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, err := c.TryAcquireAll(ctx, []string{"k"})
		return err
	}),
	"Client.TryAcquireEach": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, errs := c.TryAcquireEach(ctx, []string{"k"})
		return errors.Join(errs...)
	}),
	"Runner.TryBegin": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, err := testwork.Of(c).TryBegin(ctx, "k")
		return err
	}),
	"Runner.Begin": onClient("k", func(ctx context.Context, c *etcdclaims.Client) error {
		_, err := testwork.Of(c).Begin(ctx, "k")
		return err
	}),
	"Client.TryRun": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return c.TryRun(ctx, "k", never) }),
	"Client.Run":    onClient("k", func(ctx context.Context, c *etcdclaims.Client) error { return c.Run(ctx, "k", never) }),
	"Runner.TryRun": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		return testwork.Of(c).TryRun(ctx, "k", func(context.Context, *work.Work) error { return nil })
	}),
	"Runner.Run": onClient("k", func(ctx context.Context, c *etcdclaims.Client) error {
		return testwork.Of(c).Run(ctx, "k", func(context.Context, *work.Work) error { return nil })
	}),
	"Runner.TryOnce": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, _, err := testwork.Of(c).TryOnce(ctx, "k", func(context.Context) ([]byte, error) { return nil, nil })
		return err
	}),
	"Runner.Once": onClient("k", func(ctx context.Context, c *etcdclaims.Client) error {
		_, _, err := testwork.Of(c).Once(ctx, "k", func(context.Context) ([]byte, error) { return nil, nil })
		return err
	}),
	"Client.Owns": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, err := c.Owns(ctx, fencing.Token{Key: "k", Fence: 7})
		return err
	}),
	"Client.ReleaseAll": onClaimOf(func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.ReleaseAll(ctx); return err }),
	"core.GrantLease": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, err := core.Of(c).GrantLease(ctx, time.Minute)
		return err
	}),
	"core.RevokeLease": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return core.Of(c).RevokeLease(ctx, 7) }),
	"admin.Actions": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, err := admin.Actions(ctx, c, 10, time.Time{})
		return err
	}),
	"admin.ForceRelease": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return admin.ForceRelease(ctx, c, "k", "why") }),
	"admin.ForceReleaseTerm": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		return admin.ForceReleaseTerm(ctx, c, fencing.Token{Key: "k", Fence: 7}, "why")
	}),
	"Client.Health": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.Health(ctx); return err }),
	"admin.History": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, err := admin.History(ctx, c, "k")
		return err
	}),
	"Client.Lookup": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.Lookup(ctx, "k"); return err }),
	"Client.List":   onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return drain(c.List(ctx, "")) }),
	"admin.Line":    onClient("", func(ctx context.Context, c *etcdclaims.Client) error { _, err := admin.Line(ctx, c, "k"); return err }),
	"admin.Lines": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		return drain(admin.Lines(ctx, c, []string{"k"}))
	}),
	"Runner.Record": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, _, err := testwork.Of(c).Record(ctx, "k")
		return err
	}),
	"Runner.Orphans": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return drain(testwork.Of(c).Orphans(ctx, "")) }),
	"Runner.Records": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return drain(testwork.Of(c).Records(ctx, "")) }),
	"Runner.Retry": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, err := testwork.Of(c).Retry(ctx, "k")
		return err
	}),
	"Runner.Forget":  onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return testwork.Of(c).Forget(ctx, "k") }),
	"admin.Resize":   onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return admin.Resize(ctx, c, "k", 2) }),
	"admin.Sessions": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return drain(admin.Sessions(ctx, c)) }),
	"Client.Watch":   onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return drain(c.Watch(ctx, "")) }),

	"Claim.Owns":        onClaim(func(ctx context.Context, cl *etcdclaims.Claim) error { _, err := cl.Owns(ctx); return err }),
	"Claim.Note":        onClaim(func(ctx context.Context, cl *etcdclaims.Claim) error { return cl.Note(ctx, []byte("x")) }),
	"Claim.Renew":       onClaim(func(ctx context.Context, cl *etcdclaims.Claim) error { return cl.Renew(ctx) }),
	"Claim.ReleaseWith": onClaim(func(ctx context.Context, cl *etcdclaims.Claim) error { return cl.ReleaseWith(ctx) }),
	"Claim.Release":     onClaim(func(ctx context.Context, cl *etcdclaims.Claim) error { return cl.Release(ctx) }),
	"Claim.Run": onClaim(func(ctx context.Context, cl *etcdclaims.Claim) error {
		return cl.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}),
	"Claim.Txn": onClaim(func(ctx context.Context, cl *etcdclaims.Claim) error {
		_, err := cl.Txn(ctx).Then(clientv3.OpGet("x")).Commit()
		return err
	}),

	"Work.Run":          onWork(func(ctx context.Context, w *work.Work) error { return w.Run(ctx, never) }),
	"Work.Complete":     onWork(func(ctx context.Context, w *work.Work) error { return w.Complete(ctx) }),
	"Work.CompleteWith": onWork(func(ctx context.Context, w *work.Work) error { return w.CompleteWith(ctx, nil) }),
	"Work.Fail": onWork(func(ctx context.Context, w *work.Work) error {
		_, err := w.Fail(ctx, errors.New("x"))
		return err
	}),
	"Work.ReleaseWith": onWork(func(ctx context.Context, w *work.Work) error { return w.ReleaseWith(ctx) }),
	"Work.Release":     onWork(func(ctx context.Context, w *work.Work) error { return w.Release(ctx) }),

	"Locks.TryAcquire": onLocks(func(ctx context.Context, l locks.Locks) error {
		_, _, err := l.TryAcquire(ctx, "k", "me", time.Minute)
		return err
	}),
	"Locks.Release": onLocks(func(ctx context.Context, l locks.Locks) error { _, err := l.Release(ctx, "k", "me"); return err }),
	"Locks.Renew": onLocks(func(ctx context.Context, l locks.Locks) error {
		_, _, err := l.Renew(ctx, "k", "me", time.Minute)
		return err
	}),
	"Locks.ReleaseAll": onLocks(func(ctx context.Context, l locks.Locks) error { _, err := l.ReleaseAll(ctx, "me"); return err }),
	"Locks.IsLocked":   onLocks(func(ctx context.Context, l locks.Locks) error { _, err := l.IsLocked(ctx, "k"); return err }),
	"Locks.Owner":      onLocks(func(ctx context.Context, l locks.Locks) error { _, _, err := l.Owner(ctx, "k"); return err }),

	"Queue.TryClaim":    onQueue("", func(ctx context.Context, q *queue.Queue) error { _, err := q.TryClaim(ctx, 1); return err }),
	"Queue.Claim":       onQueue("queue mail", func(ctx context.Context, q *queue.Queue) error { _, err := q.Claim(ctx, 1); return err }),
	"Queue.DeadLetters": onQueue("", func(ctx context.Context, q *queue.Queue) error { return drain(q.DeadLetters(ctx)) }),
	"Queue.Taken":       onQueue("", func(ctx context.Context, q *queue.Queue) error { return drain(q.Taken(ctx)) }),
	"Queue.Waiting":     onQueue("", func(ctx context.Context, q *queue.Queue) error { return drain(q.Waiting(ctx)) }),
	"Queue.Redrive":     onQueue("", func(ctx context.Context, q *queue.Queue) error { return q.Redrive(ctx, "x") }),
	"Queue.RedriveAll":  onQueue("", func(ctx context.Context, q *queue.Queue) error { _, err := q.RedriveAll(ctx); return err }),
	"Queue.Purge":       onQueue("", func(ctx context.Context, q *queue.Queue) error { _, err := q.Purge(ctx, time.Now()); return err }),
	"Queue.Reconfigure": onQueue("", func(ctx context.Context, q *queue.Queue) error { return q.Reconfigure(ctx) }),
	"Queue.Enqueue": onQueue("", func(ctx context.Context, q *queue.Queue) error {
		_, err := q.Enqueue(ctx, queue.NewItem(nil))
		return err
	}),
	"Queue.EnqueueAll": onQueue("", func(ctx context.Context, q *queue.Queue) error {
		_, err := q.EnqueueAll(ctx, []queue.Item{queue.NewItem(nil)})
		return err
	}),
	"Queue.Adopt":       of("", take, func(ctx context.Context, it taken) error { _, err := it.q.Adopt(ctx, it.l.Handle()); return err }),
	"Queue.Sweep":       onQueue("", func(ctx context.Context, q *queue.Queue) error { _, err := q.Sweep(ctx); return err }),
	"Queue.Wait":        onQueue("", func(ctx context.Context, q *queue.Queue) error { _, err := q.Wait(ctx, "x"); return err }),
	"Queue.Look":        onQueue("", func(ctx context.Context, q *queue.Queue) error { _, err := q.Look(ctx, "x"); return err }),
	"Queue.Cancel":      onQueue("", func(ctx context.Context, q *queue.Queue) error { return q.Cancel(ctx, "x") }),
	"Queue.SetPriority": onQueue("", func(ctx context.Context, q *queue.Queue) error { return q.SetPriority(ctx, "x", 1) }),
	"Queue.Pause":       onQueue("", func(ctx context.Context, q *queue.Queue) error { return q.Pause(ctx, "why") }),
	"Queue.Resume":      onQueue("", func(ctx context.Context, q *queue.Queue) error { return q.Resume(ctx) }),
	"Queue.Stats":       onQueue("", func(ctx context.Context, q *queue.Queue) error { _, err := q.Stats(ctx); return err }),
	"Queue.Watch":       onQueue("", func(ctx context.Context, q *queue.Queue) error { return drain(q.Watch(ctx)) }),
	"Queue.Work": onQueue("queue mail", func(ctx context.Context, q *queue.Queue) error {
		return q.Work(ctx, queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error { return nil }})
	}),

	"Delivery.Heartbeat": onItem(func(ctx context.Context, l *queue.Delivery) error {
		_, err := l.Heartbeat(ctx, time.Minute)
		return err
	}),
	"Delivery.Complete": onItem(func(ctx context.Context, l *queue.Delivery) error { return l.Complete(ctx) }),
	"Delivery.Fail":     onItem(func(ctx context.Context, l *queue.Delivery) error { _, err := l.Fail(ctx, errors.New("x")); return err }),
	"Delivery.Snooze":   onItem(func(ctx context.Context, l *queue.Delivery) error { _, err := l.Snooze(ctx, time.Minute); return err }),
	"Delivery.Release":  onItem(func(ctx context.Context, l *queue.Delivery) error { return l.Release(ctx) }),
	"Delivery.Discard":  onItem(func(ctx context.Context, l *queue.Delivery) error { return l.Discard(ctx, "why") }),

	"Scheduler.Define": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error {
		_, err := s.Define(ctx, sched.Definition{Name: "j", Kind: "k", Schedule: "* * * * *"})
		return err
	}),
	"Scheduler.Undefine":    onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return s.Undefine(ctx, "j", 0) }),
	"Scheduler.Definition":  onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { _, err := s.Definition(ctx, "j"); return err }),
	"Scheduler.Definitions": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return drain(s.Definitions(ctx)) }),
	"Scheduler.Explain": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error {
		_, err := s.Explain(ctx, "invoices", time.Now())
		return err
	}),
	"Scheduler.Jobs": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return drain(s.Jobs(ctx)) }),
	"Scheduler.Inspect": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error {
		_, err := s.Inspect(ctx, "invoices")
		return err
	}),
	"Scheduler.History":     onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return drain(s.History(ctx, "invoices")) }),
	"Scheduler.Pause":       onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return s.Pause(ctx, "invoices", "why") }),
	"Scheduler.Resume":      onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return s.Resume(ctx, "invoices") }),
	"Scheduler.PauseGroup":  onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return s.PauseGroup(ctx, "why") }),
	"Scheduler.ResumeGroup": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return s.ResumeGroup(ctx) }),
	"Scheduler.PauseTag":    onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return s.PauseTag(ctx, "tag", "why") }),
	"Scheduler.ResumeTag":   onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return s.ResumeTag(ctx, "tag") }),
	"Scheduler.PausedJobs":  onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { _, err := s.PausedJobs(ctx); return err }),
	"Scheduler.RunNow": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error {
		_, err := s.RunNow(ctx, "invoices")
		return err
	}),
	"Scheduler.Backfill": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error {
		_, err := s.Backfill(ctx, "invoices", time.Now().Add(-3*time.Hour), time.Now(), sched.Allow{})
		return err
	}),
	"Scheduler.Cancel": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return s.Cancel(ctx, "invoices", "why") }),
	"Scheduler.Forget": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error { return s.Forget(ctx, "invoices") }),
	"Scheduler.ResetMark": onScheduler("", func(ctx context.Context, s *sched.Scheduler) error {
		_, err := s.ResetMark(ctx, "invoices", "why", false)
		return err
	}),
	"Scheduler.Run": onScheduler("sched/billing/owner", func(ctx context.Context, s *sched.Scheduler) error { return s.Run(ctx) }),

	"Member.Leave": onMember(func(ctx context.Context, m *group.Member) error { return m.Leave(ctx) }),
	"View.Watch": onView("", func(ctx context.Context, v *group.View) error {
		for range v.Watch(ctx) {
			continue
		}
		return nil
	}),
	"View.Evict":   onView("", func(ctx context.Context, v *group.View) error { return v.Evict(ctx, "m", "why", time.Minute) }),
	"View.Readmit": onView("", func(ctx context.Context, v *group.View) error { return v.Readmit(ctx, "m") }),
	"View.Call": onView("", func(ctx context.Context, v *group.View) error {
		return v.Call(ctx, 0, func(context.Context, group.Route) error { return nil })
	}),

	"queue.WorkMany": onClient("queues", func(ctx context.Context, c *etcdclaims.Client) error {
		return queue.WorkMany(ctx, c, queue.ManyConfig{Worker: queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error { return nil }}})
	}),
	"queue.Open": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, err := queue.Open(ctx, c, "mail")
		return err
	}),
	"queue.Names":  onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return drain(queue.Names(ctx, c)) }),
	"queue.Active": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return drain(queue.Active(ctx, c)) }),
	"group.Join": onClient("", func(ctx context.Context, c *etcdclaims.Client) error {
		_, err := group.Join(ctx, c, group.Config{Group: "log", Partitions: 1}, func(context.Context, int, *etcdclaims.Claim) error { return nil })
		return err
	}),
	"group.Open":   onClient("", func(ctx context.Context, c *etcdclaims.Client) error { _, err := group.Open(ctx, c, "log"); return err }),
	"group.Read":   onClient("", func(ctx context.Context, c *etcdclaims.Client) error { _, err := group.Read(ctx, c, "log"); return err }),
	"group.Names":  onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return drain(group.Names(ctx, c)) }),
	"group.Remove": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return group.Remove(ctx, c, "log") }),
	"sched.Groups": onClient("", func(ctx context.Context, c *etcdclaims.Client) error { return drain(sched.Groups(ctx, c)) }),
	"middleware.Singleton": onClient("k", func(ctx context.Context, c *etcdclaims.Client) error {
		return middleware.Singleton(ctx, c, "k", never, middleware.SingletonConfig{})
	}),
}

// awayExempt are methods that take a context and are not in the table, with the reason.
var awayExempt = map[string]string{
	"Client.Close": "ends the client, and with it the report",
	"Queue.Close":  "ends within ten seconds, and returns an error",
	"Claim.Bind":   "sends nothing",
	"Member.Admit": "sends nothing",
	"admin.As":     "sends nothing",

	"admin.RaiseEpoch": "takes no client that could report",
}

func onClaimOf(f func(ctx context.Context, c *etcdclaims.Client) error) call {
	return of("", func(ctx context.Context, c *etcdclaims.Client) (*etcdclaims.Client, error) {
		_, err := c.TryAcquire(ctx, c.Owner())
		return c, err
	}, f)
}

// functionsOf returns the exported functions of a package below etcdclaims that take a context first.
func functionsOf(t *testing.T, name string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "etcdclaims", name, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range tree.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || len(f.Type.Params.List) == 0 {
				continue
			}
			if first, ok := f.Type.Params.List[0].Type.(*ast.SelectorExpr); ok && first.Sel.Name == "Context" {
				names = append(names, name+"."+f.Name.Name)
			}
		}
	}
	return names
}

// Each method that takes a context is in the table, or is exempt. So is each such function of package admin.
func TestAwayCallsAreAll(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, of := range []any{&etcdclaims.Client{}, &etcdclaims.Claim{}, &work.Runner{}, &work.Work{}, locks.Locks{}, &queue.Queue{}, &queue.Delivery{}, &sched.Scheduler{}, &group.Member{}, &group.View{}} {
		typ := reflect.TypeOf(of)
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			name := fmt.Sprint(reflect.Indirect(reflect.ValueOf(of)).Type().Name(), ".", m.Name)
			if strings.HasPrefix(name, "Work.") && awayCalls["Claim."+m.Name].before != nil && awayCalls[name].before == nil || awayExempt["Claim."+m.Name] != "" && strings.HasPrefix(name, "Work.") {
				continue // promoted from its Claim
			}
			if m.Type.NumIn() < 2 || m.Type.In(1) != reflect.TypeFor[context.Context]() {
				continue
			}
			seen[name] = true
			if _, listed := awayCalls[name]; listed == (awayExempt[name] != "") {
				t.Errorf("%s takes a context: it is in the table (%v), or exempt (%q)", name, listed, awayExempt[name])
			}
		}
	}
	for _, name := range functionsOf(t, "admin") {
		seen[name] = true
		if _, listed := awayCalls[name]; listed == (awayExempt[name] != "") {
			t.Errorf("%s takes a context: it is in the table (%v), or exempt (%q)", name, listed, awayExempt[name])
		}
	}
	for name := range awayCalls {
		if !seen[name] && (name[0] >= 'A' && name[0] <= 'Z' || strings.HasPrefix(name, "admin.")) {
			t.Errorf("%s is in the table, and is no method or function that takes a context", name)
		}
	}
}

// While etcd is away each call that waits for it is in the report of its client, or has failed
// with the same facts; the report is repeated each minute, and ends with one line.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		first := claimtest.NewClient(t, server, etcdclaims.Config{})
		_, err := group.Join(t.Context(), first, group.Config{Group: "log", Partitions: 1}, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error { <-ctx.Done(); return nil })
		if err != nil {
			t.Fatal(err)
		}
		hosts := map[string]*claimtest.Host{}
		logs := map[string]*observer.ObservedLogs{}
		calls := map[string]func(context.Context) error{}
		for name, row := range awayCalls {
			core, observed := observer.New(zap.InfoLevel)
			host := server.Host(t)
			c := claimtest.NewClient(t, host, etcdclaims.Config{Owner: name, Logger: zap.New(core)})
			f, err := row.before(t.Context(), c)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			hosts[name], logs[name], calls[name] = host, observed, f
		}
		time.Sleep(sec)
		for _, h := range hosts {
			h.Kill()
		}
		const long = 150 * sec
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		var wg sync.WaitGroup
		for _, f := range calls {
			wg.Go(func() { _ = f(ctx) })
		}
		time.Sleep(long - sec)
		for name, row := range awayCalls {
			checkAway(t, name, row.names, logs[name])
		}
		for _, h := range hosts {
			h.Heal()
		}
		time.Sleep(10 * sec)
		cancel()
		wg.Wait()
		for name := range awayCalls {
			if n := logs[name].FilterMessage("etcd reachable again").Len(); n != 1 {
				t.Errorf("%s: %d lines say that etcd is back", name, n)
			}
		}
	})
}

func checkAway(t *testing.T, name, names string, logs *observer.ObservedLogs) {
	t.Helper()
	began, again := logs.FilterMessage("etcd unreachable").All(), logs.FilterMessage("etcd still unreachable").All()
	if len(began) != 1 || len(again) != 2 {
		t.Errorf("%s: %d lines at the beginning, %d later: %v", name, len(began), len(again), logs.All())
		return
	}
	for _, line := range append(began, again...) {
		f := line.ContextMap()
		if line.Level != zap.WarnLevel || len(f["endpoints"].([]any)) == 0 || !strings.Contains(fmt.Sprint(f["error"]), "connect") || f["since"] == nil {
			t.Errorf("%s: %s %v", name, line.Message, f)
		}
		if names != "" && (!slices.Contains(f["waitingFor"].([]any), any(names)) || f["waiting"] == int64(0)) {
			t.Errorf("%s: %s names %v, want %s", name, line.Message, f["waitingFor"], names)
		}
	}
}
