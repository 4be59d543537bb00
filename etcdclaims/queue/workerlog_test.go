package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A repeated attempt is a warning with the time of the next one, a dead letter an error without
// one. The stack of a panic is in a field of its own, also if the handler had ended the lease.
func TestFailuresAreLogged(t *testing.T) {
	virtually(t, func(w *world) {
		core, logs := observer.New(zap.InfoLevel)
		q := w.queue(queue.Config{MaxAttempts: 2, Logger: zap.New(core)})
		w.enqueue(q, "fails", queue.Topic("fails"))
		w.enqueue(q, "panics", queue.Topic("panics"), queue.MaxAttempts(1))
		w.enqueue(q, "ended", queue.Topic("ended"))
		stop := w.works(q, queue.WorkerConfig{Handlers: map[string]queue.Handler{
			"fails":  func(context.Context, *queue.Delivery) error { return errors.New("no luck") },
			"panics": func(context.Context, *queue.Delivery) error { panic("boom") },
			"ended": func(ctx context.Context, l *queue.Delivery) error {
				w.ok(l.Complete(ctx))
				panic("after its end")
			},
		}})
		time.Sleep(10 * sec)
		stop()
		got := map[string]string{}
		for _, e := range logs.All() {
			m := e.ContextMap()
			line := e.Level.String() + " " + e.Message
			if cause, ok := m["error"].(string); ok {
				line += ": " + cause
			}
			if _, ok := m["until"]; ok {
				line += ", again"
			}
			if stack, ok := m["stack"].(string); ok && strings.Contains(stack, "workerlog_test.go") {
				line += ", with its stack"
			}
			item, _ := m["item"].(string)
			got[item] += line + "\n"
		}
		w.want(got["fails"], "warn item failed: no luck, again\nerror item failed: no luck\n")
		w.want(got["panics"], "error handler panicked, with its stack\nerror item failed: handler panicked: boom\n")
		w.want(got["ended"], "error handler panicked, with its stack\n")
	})
}

// An idle worker that was frozen, or cut off, logs what ended its keeper: the loss of the claim,
// and nothing that failed because of it.
func TestLostKeeperIsLogged(t *testing.T) {
	for name, fault := range map[string]func(host *claimtest.Host){
		"frozen":  func(host *claimtest.Host) { host.Suspend(time.Minute) },
		"cut off": func(host *claimtest.Host) { host.Cut(); time.Sleep(time.Minute); host.Heal() },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				core, logs := observer.New(zap.InfoLevel)
				q, host := w.process(queue.Config{Logger: zap.New(core)})
				stop := w.works(q, queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error { return nil }})
				time.Sleep(20 * sec)
				fault(host)
				time.Sleep(time.Minute)
				stop()
				for _, e := range logs.FilterMessageSnippet("keeper").All() {
					cause, _ := e.ContextMap()["error"].(string)
					if e.Message != "queue keeper lost its claim" || e.Level != zap.InfoLevel || !strings.HasPrefix(cause, `etcdclaims: claim on "queue/q/keeper" `) || !strings.Contains(cause, "lost: expired") {
						t.Errorf("%s %s: %s", e.Level, e.Message, cause)
					}
				}
				if logs.FilterMessage("queue keeper lost its claim").Len() != 1 {
					t.Errorf("logged: %v", logs.All())
				}
			})
		})
	}
}
