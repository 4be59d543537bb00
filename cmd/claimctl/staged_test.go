package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// Failures are staged by programs, and found and mended by claimctl alone, as the
// recipes in docs/operations.md do.

// types runs claimctl as an operator does, with a transcript in the test's log.
func (w *world) types(code int, args ...string) string {
	w.Helper()
	var r result
	if args[0] == "doctor" {
		r = w.doctor(args[1:]...)
	} else {
		r = w.ctl(args...)
	}
	shown := r.out
	if args[0] == "doctor" {
		var bad []string
		for l := range strings.Lines(r.out) {
			if !strings.Contains(l, "  ok  ") {
				bad = append(bad, l)
			}
		}
		shown = strings.Join(bad, "")
	}
	w.Logf("$ claimctl %s   # exit code %d\n%s%s", strings.Join(args, " "), r.code, shown, r.err)
	if r.code != code {
		w.Fatalf("claimctl %q: exit code %d, want %d", args, r.code, code)
	}
	return r.out + r.err
}

// finds wants that the operator sees a text.
func (w *world) finds(out string, texts ...string) {
	w.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			w.Errorf("it does not say %q: %s", text, out)
		}
	}
}

func TestStagedStuckKey(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	stuck := w.claim(w.client("api-7"), "orders/42", etcdclaims.Note([]byte("step 3 of 5"))) // and its handler hangs
	got := make(chan *etcdclaims.Claim, 1)
	b := w.client("api-8")
	go func() {
		claim, err := b.Acquire(t.Context(), "orders/42")
		if err != nil {
			t.Error(err)
		}
		got <- claim
	}()
	eventually(t, "api-8 waits", func() bool {
		line, err := admin.Line(t.Context(), b, "orders/42")
		return err == nil && len(line) == 1
	})
	fence := fmt.Sprint(stuck.Fence())
	// The operator knows no key yet.
	w.finds(w.types(0, "ls"), "orders/42", "api-7", "WAITING")
	if line := as[[]claimView](w, "ls"); len(line) != 1 || line[0].Waiters != 1 || line[0].WaitingOwner != "api-8" {
		t.Errorf("%+v", line)
	}
	w.finds(w.types(0, "explain", "orders/42"), "api-7", "step 3 of 5", "Next:      api-8", w.command("claimctl")+" release --fence "+fence+" --reason WHY orders/42")
	w.types(0, "release", "orders/42", "--fence", fence, "--reason", "api-7 hangs, INC-311")
	if next := <-got; next.Fence() <= stuck.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), stuck.Fence())
	}
	<-stuck.Done()
	w.finds(w.types(0, "history", "orders/42"), "forced by operator: api-7 hangs, INC-311", "api-8")
	w.types(exitFailure, "release", "orders/42", "--fence", fence) // a second operator is late, and harms nobody
}

func TestStagedStuckSlot(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	a, b := w.client("api-7"), w.client("api-8")
	w.claim(a, "licence", etcdclaims.Slots(2))
	stuck := w.claim(b, "licence", etcdclaims.Slots(2)) // and its handler hangs
	got := make(chan *etcdclaims.Claim, 1)
	c := w.client("api-9")
	go func() {
		claim, err := c.Acquire(t.Context(), "licence", etcdclaims.Slots(2))
		if err != nil {
			t.Error(err)
		}
		got <- claim
	}()
	eventually(t, "api-9 waits", func() bool {
		line, err := admin.Line(t.Context(), c, "licence")
		return err == nil && len(line) == 1
	})
	fence, slot := fmt.Sprint(stuck.Fence()), etcdclaims.SlotKey("licence", stuck.Slot())
	w.finds(w.types(0, "explain", "licence"), "2 slots, 2 held", slot+": api-8, fence "+fence+", asked ", w.command("claimctl")+" explain 'licence#slot-0'")
	w.finds(w.types(0, "explain", slot), "Renewed: ", "Next:      api-9", " release --fence "+fence+" --reason WHY '"+slot+"'")
	w.finds(w.types(exitFailure, "release", "licence", "--fence", "1"), "none of its slots has fence 1")
	w.types(0, "release", "licence", "--fence", fence, "--reason", "api-8 hangs, INC-311")
	if next := <-got; next.Slot() != stuck.Slot() || next.Fence() <= stuck.Fence() {
		t.Errorf("slot %d with fence %d after %d with %s", next.Slot(), next.Fence(), stuck.Slot(), fence)
	}
	<-stuck.Done()
	w.types(exitFailure, "release", "licence", "--fence", fence) // a second operator is late
	w.types(exitFailure, "release", slot, "--fence", fence)
	// Where no caller may wait any longer, the number is raised.
	w.types(0, "resize", "licence", "3")
	w.types(0, "run", "--slots", "3", "licence", "--", "true")
	w.types(exitFailure, "run", "--slots", "2", "licence", "--", "true")
}

// No caller begins orphaned work again that is at most once: the operator must see that, to retry it.
func TestStagedOrphanAtMostOnce(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	_, err := testwork.Of(w.client("worker-1")).TryBegin(t.Context(), "payments/7", work.AtMostOnce())
	w.noErr(err)
	w.finds(w.types(0, "work", "show", "payments/7"), "At most once: yes", "no caller begins it again if its owner dies")
	_, err = w.etcd.Delete(t.Context(), w.prefix+"own/payments/7") // as etcd does when the lease of a dead owner ends
	w.noErr(err)
	w.finds(w.types(1, "doctor"), "1 orphaned and at most once", "payments/7", w.command("claimctl")+" work retry payments/7")
	w.finds(w.types(0, "work", "ls"), "AT MOST ONCE", "  yes  ")
	w.finds(w.types(0, "work", "show", "payments/7"), "no caller begins it again. If its effect did not happen, retry it")
	w.types(0, "work", "retry", "payments/7")
	w.types(0, "run", "--once", "payments/7", "--", "true")
	w.types(0, "doctor")
}

func TestStagedPoison(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q, err := queue.New(w.client("worker-1"), queue.Config{Name: "thumbnails"})
	w.noErr(err)
	defer func() { w.noErr(q.Close(context.Background())) }()
	mended, handled := make(chan struct{}), make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		done <- q.Work(ctx, queue.WorkerConfig{Handler: func(_ context.Context, l *queue.Delivery) error {
			select {
			case <-mended:
				handled <- l.ID()
				return nil
			default:
				return etcdclaims.Permanent(errors.New("not a JPEG"))
			}
		}})
	}()
	_, err = q.Enqueue(ctx, queue.NewItem([]byte("photo.png"), queue.ID("17")))
	w.noErr(err)
	eventually(t, "it is dead", func() bool {
		i, err := q.Look(ctx, "17")
		return err == nil && i.Where == queue.Dead
	})
	w.finds(w.types(1, "doctor"), `"thumbnails" has 1 dead letter`, w.command("claimctl")+" queue dead ls thumbnails")
	w.finds(w.types(0, "queue", "dead", "ls", "thumbnails"), "17", "not a JPEG")
	w.finds(w.types(0, "queue", "show", "thumbnails", "17"), "photo.png")
	close(mended) // the handler is mended, and deployed
	w.types(0, "queue", "dead", "redrive", "thumbnails", "17")
	if id := <-handled; id != "17" {
		t.Errorf("handled %q", id)
	}
	eventually(t, "doctor is content", func() bool { return w.doctor().code == 0 })
	cancel()
	w.noErr(<-done)
}

func TestStagedPause(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := sched.New(w.client("cron-1"), sched.Config{Group: "billing"})
	w.noErr(err)
	ran := make(chan struct{}, 10)
	w.noErr(s.Add(sched.Job{
		Name: "invoices", Schedule: calendar.Must(calendar.Cron("30 2 1 1 *")),
		Handler: func(context.Context, sched.Tick) error { ran <- struct{}{}; return nil },
	}))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	eventually(t, "the job is registered", func() bool { return w.ctl("sched", "show", "-g", "billing", "invoices").code == 0 })
	w.noErr(s.Pause(ctx, "invoices", "audit, forgotten since"))
	w.finds(w.types(0, "doctor"), `"invoices" of group "billing" is paused by cron-1`, w.command("claimctl")+" sched resume -g billing invoices")
	w.finds(w.types(0, "sched", "jobs", "-g", "billing"), "audit, forgotten since")
	w.types(0, "sched", "resume", "-g", "billing", "invoices")
	w.types(0, "sched", "run", "-g", "billing", "invoices") // what was missed
	<-ran
	w.types(0, "doctor")
	cancel()
	w.noErr(<-done)
	// And when nobody runs the group at all.
	w.finds(w.types(1, "doctor"), `no process runs group "billing"`)
	w.types(0, "sched", "forget", "-g", "billing", "invoices", "--yes")
	w.types(0, "doctor")
}
