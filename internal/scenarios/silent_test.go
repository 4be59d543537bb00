package scenarios_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/jobs"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// failure is a line of the log that names its fields.
type failure struct {
	event  string
	cause  string // part of its error
	fields []string
}

// logged returns how many lines of the log, at the level warn or above, are such a failure.
func (f failure) logged(logs *observer.ObservedLogs) (n int) {
	for _, line := range logs.FilterMessage(f.event).All() {
		of := line.ContextMap()
		cause, _ := of["error"].(string)
		if line.Level < zap.WarnLevel || !strings.Contains(cause, f.cause) {
			continue
		}
		n++
		for _, field := range f.fields {
			if of[field] == nil || of[field] == "" {
				n--
				break
			}
		}
	}
	return n
}

// With nothing but the Logger of the client each failure is a line: of a run, of an item, of a
// partition, a panic, the last attempt, a dead letter, work that is dead.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		core, logs := observer.New(zap.DebugLevel)
		c := claimtest.NewClient(t, server, etcdclaims.Config{Logger: zap.New(core)})
		testwork.With(c, work.Config{MaxAttempts: 1})
		every := calendar.Must(calendar.Every(10*time.Minute, 0))
		s, err := sched.New(c, sched.Config{Group: "billing"})
		noErr(t, err)
		fails := errors.New("cannot reach the bank")
		noErr(t, s.Add(sched.Job{Name: "fails", Schedule: every, Handler: func(context.Context, sched.Tick) error { return fails }}))
		noErr(t, s.Add(sched.Job{Name: "panics", Schedule: every, Handler: func(context.Context, sched.Tick) error { panic("nil map") }}))
		noErr(t, s.Add(sched.Job{Name: "retries", Schedule: every, Retry: sched.Retry{Max: 1}, Handler: func(context.Context, sched.Tick) error { return fails }}))
		q, err := queue.New(c, queue.Config{Name: "mail", MaxAttempts: 2})
		noErr(t, err)
		for _, topic := range []string{"fails", "panics", "unknown"} {
			_, err := q.Enqueue(t.Context(), queue.NewItem(nil, queue.Topic(topic)))
			noErr(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Run(ctx) })
		wg.Go(func() {
			_ = q.Work(ctx, queue.WorkerConfig{Handlers: map[string]queue.Handler{
				"fails":  func(context.Context, *queue.Delivery) error { return fails },
				"panics": func(context.Context, *queue.Delivery) error { panic("nil map") },
			}})
		})
		_, err = group.Join(ctx, c, group.Config{Group: "log", Partitions: 1}, func(context.Context, int, *etcdclaims.Claim) error { return fails })
		noErr(t, err)
		wg.Go(func() { // its key is held for good
			_ = middleware.Singleton(ctx, c, "leader", func(ctx context.Context) error {
				if admin.ForceRelease(ctx, c, "leader", "maintenance") == nil {
					<-ctx.Done()
				}
				return nil
			}, middleware.SingletonConfig{Backoff: func(int) time.Duration { return time.Hour }})
		})
		ticks, err := jobs.NewTicks(c, testwork.Of(c), "nightly", calendar.Must(calendar.Every(10*time.Minute, 0)), jobs.TicksConfig{Alone: true})
		noErr(t, err)
		wg.Go(func() {
			time.Sleep(11 * time.Minute)
			ticks.Job(func(context.Context) error { return fails }).Run()
		})
		noErr(t, ignore(testwork.Of(c).TryRun(ctx, "invoice/1", func(context.Context, *work.Work) error { return fails })))
		wg.Wait()
		run, item := []string{"group", "job", "tick", "key", "attempt", "fence"}, []string{"queue", "item", "attempt", "fence"}
		for _, f := range []failure{
			{"run ended with an error", fails.Error(), run},
			{"run ended with an error", "panic: nil map", run},
			{"handler panicked", "", append(run, "panic", "stack")},
			{"run failed; its tick has no attempt left", fails.Error(), run},
			{"item failed", fails.Error(), append(item, "dead")},
			{"item failed", "panicked: nil map", append(item, "dead")},
			{"handler panicked", "", append(item, "panic", "stack")},
			{"no handler for topic, item goes to the dead letters", "", []string{"queue", "item", "topic"}},
			{"partition handler returned; it is called again", fails.Error(), []string{"group", "member", "partition", "key", "fence", "attempt"}},
			{"work is dead", fails.Error(), []string{"key", "attempt", "fence"}},
			{"not leading; trying again", "maintenance", []string{"key"}},
			{"tick failed", fails.Error(), []string{"key"}},
		} {
			if f.logged(logs) == 0 {
				t.Errorf("no line %q of %q with all of %v", f.event, f.cause, f.fields)
			}
		}
		for _, line := range logs.All() {
			if key, _ := line.ContextMap()["key"].(string); strings.HasPrefix(key, etcdclaims.DefaultPrefix) {
				t.Errorf("%s: the field key is %s, which is not the key of a claim", line.Message, key)
			}
		}
		if t.Failed() {
			for _, line := range logs.All() {
				t.Log(line.Level, line.Message, line.ContextMap())
			}
		}
	})
}

// ignore drops the error of work that is meant to fail.
func ignore(err error) error {
	if errors.Is(err, work.ErrDead) {
		return nil
	}
	return err
}
