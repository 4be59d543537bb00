package scenarios_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// Close of the client alone ends all that was made from it, and loses nothing: an item goes back
// without an attempt, a run is recorded as interrupted, a partition goes to the member that waits
// for it. Whoever ends them afterwards finds them ended. That no goroutine is left is what the
// bubble checks.
func TestCloseEndsAll(t *testing.T) {
	t.Parallel()
	for _, late := range []string{"nothing", "all", "all before"} {
		synctest.Test(t, func(t *testing.T) {
			server := claimtest.Start(t)
			c, err := etcdclaims.New(server.Etcd(t), etcdclaims.Config{})
			noErr(t, err)
			other := claimtest.NewClient(t, server, etcdclaims.Config{})

			var began atomic.Int64
			hold := func(ctx context.Context) error {
				began.Add(1)
				<-ctx.Done()
				return context.Cause(ctx)
			}
			q, err := queue.New(c, queue.Config{Name: "mail"})
			noErr(t, err)
			_, err = q.Enqueue(t.Context(), queue.NewItem(nil, queue.ID("letter")))
			noErr(t, err)
			s, err := sched.New(c, sched.Config{Group: "billing"})
			noErr(t, err)
			noErr(t, s.Add(sched.Job{Name: "invoices", Schedule: calendar.Must(calendar.Every(time.Minute, 0)), Handler: func(ctx context.Context, _ sched.Tick) error {
				// It uses a queue of its client to the end.
				err := hold(ctx)
				_, enqueued := q.Enqueue(context.WithoutCancel(ctx), queue.NewItem(nil, queue.ID("invoice")))
				return errors.Join(err, enqueued)
			}}))
			var wg sync.WaitGroup
			var worked, ran error
			wg.Go(func() {
				worked = q.Work(t.Context(), queue.WorkerConfig{Concurrency: 1, Timeout: time.Hour, Handler: func(ctx context.Context, _ *queue.Delivery) error { return hold(ctx) }})
			})
			wg.Go(func() { ran = s.Run(t.Context()) })
			serve := func(ctx context.Context, _ int, _ *etcdclaims.Claim) error { return hold(ctx) }
			m, err := group.Join(t.Context(), c, group.Config{Group: "log", Partitions: 1, Name: "a"}, serve)
			noErr(t, err)
			v, err := group.Open(t.Context(), c, "log")
			noErr(t, err)
			time.Sleep(90 * sec)
			if began.Load() != 3 {
				t.Errorf("%d of 3 handlers have begun", began.Load())
			}

			endAll := func() {
				noErr(t, q.Close(t.Context()))
				noErr(t, m.Leave(t.Context()))
				v.Close()
			}
			if late == "all before" {
				endAll()
			}
			t0 := time.Now()
			noErr(t, c.Close(t.Context()))
			wg.Wait()
			if took := time.Since(t0); took > 10*sec {
				t.Errorf("Close took %v", took)
			}
			if late == "all" {
				endAll()
			}
			if !errors.Is(worked, etcdclaims.ErrClosed) || !errors.Is(ran, etcdclaims.ErrClosed) || m.Err() == nil {
				t.Errorf("Work returned %v, Run %v; the member %v", worked, ran, m.Err())
			}

			look, err := queue.New(other, queue.Config{Name: "mail"})
			noErr(t, err)
			st, err := look.Stats(t.Context())
			noErr(t, err)
			item, err := look.Look(t.Context(), "letter")
			noErr(t, err)
			want := 2 // the letter, and what the handler enqueued when its scheduler stopped
			if late == "all before" {
				want = 1 // its queue was closed before it
			}
			if st.Ready != want || st.Taken != 0 || item.Attempts != 0 {
				t.Errorf("%d items are visible, %d taken; the first has had %d attempts", st.Ready, st.Taken, item.Attempts)
			}
			again, err := sched.New(other, sched.Config{Group: "billing"})
			noErr(t, err)
			var outcomes []sched.Outcome
			for e, err := range again.History(t.Context(), "invoices") {
				noErr(t, err)
				outcomes = append(outcomes, e.Outcome)
			}
			if len(outcomes) != 1 || outcomes[0] != sched.OutcomeInterrupted {
				t.Errorf("the run ended as %v, want interrupted", outcomes)
			}
			for held, err := range other.List(t.Context(), "") {
				t.Errorf("%s is still held (%v)", held.Key, err)
			}
		})
	}
}

func noErr(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// A handler may close its own client. It is not waited for longer than any handler.
func TestCloseByAHandler(t *testing.T) {
	t.Parallel()
	starts := map[string]func(ctx context.Context, c *etcdclaims.Client, handle func()) error{
		"queue": func(ctx context.Context, c *etcdclaims.Client, handle func()) error {
			q, err := queue.New(c, queue.Config{Name: "mail"})
			if err == nil {
				_, err = q.Enqueue(ctx, queue.NewItem(nil))
			}
			go func() {
				_ = q.Work(ctx, queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error { handle(); return nil }})
			}()
			return err
		},
		"scheduler": func(ctx context.Context, c *etcdclaims.Client, handle func()) error {
			s, err := sched.New(c, sched.Config{Group: "billing"})
			if err == nil {
				err = s.Add(sched.Job{Name: "invoices", Schedule: calendar.Must(calendar.Every(time.Minute, 0)), Handler: func(context.Context, sched.Tick) error { handle(); return nil }})
			}
			go func() { _ = s.Run(ctx) }()
			return err
		},
		"member": func(ctx context.Context, c *etcdclaims.Client, handle func()) error {
			_, err := group.Join(ctx, c, group.Config{Group: "log", Partitions: 1}, func(context.Context, int, *etcdclaims.Claim) error { handle(); return nil })
			return err
		},
		"claim": func(ctx context.Context, c *etcdclaims.Client, handle func()) error {
			go func() { _ = c.Run(ctx, "k", func(context.Context) error { handle(); return nil }) }()
			return nil
		},
	}
	for name, start := range starts {
		synctest.Test(t, func(t *testing.T) {
			server := claimtest.Start(t)
			c, err := etcdclaims.New(server.Etcd(t), etcdclaims.Config{})
			noErr(t, err)
			closed := make(chan time.Duration, 1)
			noErr(t, start(t.Context(), c, func() {
				began := time.Now()
				_ = c.Close(context.Background())
				closed <- time.Since(began)
			}))
			if took := <-closed; took > time.Minute {
				t.Errorf("%s: Close took %v", name, took)
			}
			time.Sleep(time.Minute) // until what called the handler has found the client closed
		})
	}
}

// What is made from a client that is closed has ended: the call says so at once,
// and nothing is left in the background, which is what the bubble checks.
func TestMadeAfterClose(t *testing.T) {
	t.Parallel()
	serve := func(ctx context.Context, _ int, _ *etcdclaims.Claim) error { <-ctx.Done(); return nil }
	makes := map[string]func(ctx context.Context, c *etcdclaims.Client) error{
		"group.Open": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := group.Open(ctx, c, "log")
			return err
		},
		"group.Join": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := group.Join(ctx, c, group.Config{Group: "log", Partitions: 1}, serve)
			return err
		},
		"queue.New": func(_ context.Context, c *etcdclaims.Client) error {
			_, err := queue.New(c, queue.Config{Name: "mail"})
			return err
		},
		"queue.Open": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := queue.Open(ctx, c, "mail")
			return err
		},
		"queue.WorkMany": func(ctx context.Context, c *etcdclaims.Client) error {
			return queue.WorkMany(ctx, c, queue.ManyConfig{Worker: queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error { return nil }}})
		},
		"Scheduler.Run": func(ctx context.Context, c *etcdclaims.Client) error {
			s, err := sched.New(c, sched.Config{Group: "billing"})
			if err != nil {
				return errors.New("it fails before Run: " + err.Error())
			}
			return s.Run(ctx)
		},
		"webui.New": func(_ context.Context, c *etcdclaims.Client) error {
			_, err := webui.New(c, webui.Config{})
			return err
		},
	}
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		other := claimtest.NewClient(t, server, etcdclaims.Config{})
		_, err := group.Join(t.Context(), other, group.Config{Group: "log", Partitions: 1, Name: "a"}, serve)
		noErr(t, err)
		q, err := queue.New(other, queue.Config{Name: "mail"})
		noErr(t, err)
		_, err = q.Enqueue(t.Context(), queue.NewItem(nil))
		noErr(t, err)
		c, err := etcdclaims.New(server.Etcd(t), etcdclaims.Config{})
		noErr(t, err)
		noErr(t, c.Close(t.Context()))
		for name, make := range makes {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t0 := time.Now()
			if err := make(ctx, c); !errors.Is(err, etcdclaims.ErrClosed) || time.Since(t0) > sec {
				t.Errorf("%s returned after %v: %v", name, time.Since(t0), err)
			}
			cancel()
		}
	})
}
