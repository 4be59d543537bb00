package telemetry_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// The requests of what is built on a client count once each, with their kind: also
// those that it does not send through claims.
func TestRequestsOfAll(t *testing.T) {
	for name, use := range map[string]func(w *world, claims *etcdclaims.Client){
		"queue": useQueue, "group": useGroup, "scheduler": useScheduler,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var mu sync.Mutex
				done, all := map[string]int{}, map[string]int{}
				claims, host := w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: etcdclaims.Hooks{Requested: func(r etcdclaims.Request) {
					mu.Lock()
					defer mu.Unlock()
					all[r.Kind]++
					if r.Err == nil {
						done[r.Kind]++
					}
				}}})
				use(w, claims)
				if err := claims.Close(w.Context()); err != nil {
					w.Fatal(err)
				}
				sent := func(kind claimtest.Kind) int { return len(host.Sent(kind)) }
				for kind, want := range map[string]int{
					"range": sent(claimtest.Range), "lease_grant": sent(claimtest.Grant), "txn": transactions(host),
				} {
					// A request whose context has ended may have been sent.
					if want < done[kind] || want > all[kind] || (want == 0) != (done[kind] == 0) {
						w.Errorf("%d of kind %s arrived in the hook, %d of them without an error; %d were sent", all[kind], kind, done[kind], want)
					}
				}
			})
		})
	}
}

// transactions counts the transactions of a host. Those of one caller at a time have one
// kind each.
func transactions(host *claimtest.Host) (n int) {
	for _, kind := range []claimtest.Kind{
		steps.Take, steps.Enqueue, steps.Advance, steps.Resolve, steps.Undo, steps.Note, steps.Free,
		steps.HandOver, steps.Pass, claimtest.Ending, steps.Rehome, steps.Leave, steps.Notify, steps.Unnotify,
		steps.Sentinel, claimtest.Verify, claimtest.Other,
	} {
		n += len(host.Sent(kind))
	}
	return n
}

func useQueue(w *world, claims *etcdclaims.Client) {
	q, err := queue.New(claims, queue.Config{Name: "mail"})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("a"))); err != nil {
		w.Fatal(err)
	}
	got, err := q.TryClaim(w.Context(), 1)
	if err != nil || len(got.Deliveries) != 1 {
		w.Fatal(got, err)
	}
	if err := got.Deliveries[0].Complete(w.Context()); err != nil {
		w.Fatal(err)
	}
	for _, err := range queue.Names(w.Context(), claims) {
		if err != nil {
			w.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	if err := q.Close(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func useGroup(w *world, claims *etcdclaims.Client) {
	m, err := group.Join(w.Context(), claims, group.Config{Group: "g", Partitions: 2, Name: "a", Away: time.Minute},
		func(ctx context.Context, _ int, _ *etcdclaims.Claim) error { <-ctx.Done(); return nil })
	if err != nil {
		w.Fatal(err)
	}
	time.Sleep(time.Minute)
	if err := m.Leave(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func useScheduler(w *world, claims *etcdclaims.Client) {
	s, err := sched.New(claims, sched.Config{Group: "billing"})
	if err != nil {
		w.Fatal(err)
	}
	if err := s.Add(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Cron("* * * * *")), Handler: func(context.Context, sched.Tick) error { return nil }}); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), 3*time.Minute)
	defer cancel()
	if err := s.Run(ctx); err != nil {
		w.Fatal(err)
	}
	if _, err := s.Inspect(w.Context(), "a"); err != nil {
		w.Fatal(err)
	}
}

// A request that fails counts with its error.
func TestFailedRead(t *testing.T) {
	inWorld(t, func(w *world) {
		claims, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		host.Cut()
		ctx, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		if _, err := core.Of(claims).KV().Get(ctx, "a"); err == nil {
			w.Fatal("no error")
		}
		for name := range w.metrics() {
			if strings.HasPrefix(name, "etcdclaims.request.count{") && strings.Contains(name, "request.kind=range") && strings.Contains(name, "error.type=") {
				return
			}
		}
		w.Errorf("the failed read is missing: %v", w.metrics())
	})
}
