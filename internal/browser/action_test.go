package browser_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// acts carries out an action as a person does: it opens what hides the form, types a
// reason if the form asks for one, presses the button, and reads what the page says.
func (s *stage) acts(where string, action webui.Action, key, says string) {
	s.Helper()
	s.opens(where)
	form, summary := fmt.Sprintf(`form:has(input[name="action"][value=%q])`, action), fmt.Sprintf(`summary:has(+ form input[name="action"][value=%q])`, action)
	if key != "" { // one of several forms
		form += fmt.Sprintf(`:has(input[name="key"][value=%q])`, key)
		summary += fmt.Sprintf(`:has(+ form input[name="key"][value=%q])`, key)
	}
	s.until(`document.querySelector('`+form+`') !== null`, 15*time.Second)
	hidden, err := evaluate[bool](s, `document.querySelector('`+form+`').closest("details") !== null`)
	s.ok(err)
	if hidden {
		s.do(chromedp.Click(chromedp.CSS(summary)))
	}
	asks, err := evaluate[bool](s, `document.querySelector('`+form+` input[name="reason"]') !== null`)
	s.ok(err)
	requires, err := evaluate[bool](s, `document.querySelector('`+form+` input[name="reason"]:required') !== null`)
	s.ok(err)
	if requires {
		s.do(chromedp.Click(chromedp.CSS(form + ` button`))) // the browser sends no form without a reason
		sent, err := evaluate[bool](s, `document.querySelector(".banner.good") !== null || document.querySelector('`+form+` input[name="reason"]:invalid') === null`)
		s.ok(err)
		if sent {
			s.Errorf("%s was sent without a reason", action)
		}
	}
	if asks {
		s.do(chromedp.SendKeys(chromedp.CSS(form+` input[name="reason"]`), "it is stuck"))
	}
	s.do(chromedp.Click(chromedp.CSS(form + ` button`)))
	s.until(`document.querySelector(".banner.good") !== null`, 20*time.Second)
	s.shows(says, 5*time.Second)
}

// eventually waits until something has come true outside of the browser.
func (s *stage) eventually(what string, holds func() bool) {
	s.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("it does not come true that %s", what)
		}
	}
}

// Each action of the page is done in a tab, and does what it says.
func TestEachAction(t *testing.T) {
	s := newStage(t, webui.Config{Access: permissive})
	a, b := s.client("api-7"), s.client("api-8")
	ctx := t.Context()

	taken := s.claim(a, "orders/42")
	slots := s.shares("ports", etcdclaims.Slots(2), a, b)
	readers := s.shares("table", etcdclaims.Shared(), a, b)
	s.dies(a, "invoices/1")
	s.dies(a, "charge/1", work.AtMostOnce())
	jobs, cancelled := s.schedules(b)
	q, err := queue.New(b, queue.Config{Name: "mails"})
	s.ok(err)
	t.Cleanup(func() { s.ok(q.Close(context.Background())) })
	s.buries(q, "mail-0", "mail-1")
	delivery := s.takes(q, "taken")
	s.joins(a, "pod-a")
	evicted := func() bool {
		st, _ := group.Read(ctx, s.claims, "shards") // fails when the group has no members
		return len(st.Members) == 1 && st.Members[0].Evicted != nil
	}

	record := func(key string) work.State {
		r, _, err := testwork.Of(s.claims).Record(ctx, key)
		s.ok(err)
		return r.State
	}
	job := func(name string) sched.JobInfo {
		info, err := jobs.Inspect(ctx, name)
		s.ok(err)
		return info
	}
	counts := func(dead, ready int) func() bool {
		return func() bool {
			st, err := q.Stats(ctx)
			s.ok(err)
			return st.Dead == dead && st.Ready == ready
		}
	}
	ended := func(claims ...*etcdclaims.Claim) func() bool {
		return func() bool {
			return !slices.ContainsFunc(claims, func(c *etcdclaims.Claim) bool { return c.Err() == nil })
		}
	}
	slot0 := slots[slices.IndexFunc(slots, func(c *etcdclaims.Claim) bool { return c.Slot() == 0 })]
	const nightly, long = "job?group=billing&job=nightly", "job?group=billing&job=long"
	for _, step := range []struct {
		where  string
		action webui.Action
		key    string
		says   string
		done   func() bool
	}{
		{"key?key=orders/42", "release", "", "The term was ended.", ended(taken)},
		{"key?key=ports", "release", slot0.Key(), "The term was ended.", ended(slot0)},
		{"key?key=table", "release", "table", "The term was ended.", ended(readers...)},
		{"key?key=invoices/1", "retry-work", "", "The work can be begun again.", func() bool { return record("invoices/1") == work.StateFree }},
		{"key?key=charge/1", "retry-work", "", "The work can be begun again.", func() bool { return record("charge/1") == work.StateFree }},
		{"key?key=invoices/1", "forget-work", "", "The record of the work was deleted.", func() bool { return record("invoices/1") == "" }},
		{nightly, "pause-job", "", "The job is paused.", func() bool { return job("nightly").Paused != nil }},
		{nightly, "resume-job", "", "The job is not paused any more.", func() bool { return job("nightly").Paused == nil }},
		{nightly, "run-job", "", "A run was requested.", func() bool { return job("nightly").Last != nil }},
		{long, "run-job", "", "A run was requested.", func() bool { return len(job("long").Running) == 1 }},
		{long, "cancel-job", "", "The runs of the job were cancelled.", func() bool { return len(cancelled) == 1 }},
		{"queue?queue=mails", "pause-queue", "", "The queue is paused.", func() bool { return s.paused(q) }},
		{"queue?queue=mails", "resume-queue", "", "The queue is not paused any more.", func() bool { return !s.paused(q) }},
		{"item?queue=mails&id=mail-0", "redrive", "", "The item waits again.", counts(1, 1)},
		{"item?queue=mails&id=mail-0", "cancel-item", "", "The item was removed.", counts(1, 0)},
		{"item?queue=mails&id=taken", "cancel-taken", "", "The item was removed.", func() bool { return delivery.Err() != nil }},
		{"queue?queue=mails", "redrive-all", "", "The dead letters wait again.", counts(0, 1)},
		{"queue?queue=mails", "purge", "", "The dead letters were deleted.", counts(0, 0)},
		{"group?group=shards", "evict-member", "", "The member was evicted.", evicted},
		{"group?group=shards", "readmit-member", "", "The name may join again.", func() bool { return !evicted() }},
		{"health", "trial", "", "The trial has ended.", func() bool { return true }},
	} {
		if step.action == "purge" {
			s.buries(q)
		}
		t.Logf("%s on %s", step.action, step.where) // shown if it fails
		s.acts(step.where, step.action, step.key, step.says)
		s.eventually(fmt.Sprintf("%s on %s is done", step.action, step.where), step.done)
	}
	for _, claim := range slots {
		if err := claim.Check(); (err != nil) != (claim == slot0) {
			t.Errorf("slot %d: %v", claim.Slot(), err)
		}
	}
}

// shares lets clients hold a key together.
func (s *stage) shares(key string, o etcdclaims.AcquireOption, clients ...*etcdclaims.Client) (claims []*etcdclaims.Claim) {
	s.Helper()
	for _, c := range clients {
		claim, err := c.TryAcquire(s.Context(), key, o)
		s.ok(err)
		claims = append(claims, claim)
	}
	return claims
}

// joins makes the client the member of the group "shards".
func (s *stage) joins(c *etcdclaims.Client, name string) {
	s.Helper()
	cfg := group.Config{Group: "shards", Partitions: 4, Name: name}
	m, err := group.Join(s.Context(), c, cfg, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
		<-ctx.Done()
		return nil
	})
	s.ok(err)
	s.Cleanup(func() { _ = m.Leave(context.Background()) }) // it was evicted
}

// dies makes work that is dead.
func (s *stage) dies(c *etcdclaims.Client, key string, opts ...work.Option) {
	s.Helper()
	dead := func(context.Context, *work.Work) error { return etcdclaims.Permanent(errors.New("no address")) }
	if err := testwork.Of(c).TryRun(s.Context(), key, dead, opts...); err == nil {
		s.Fatal("the work did not fail")
	}
}

// schedules runs two jobs that are not due. The runs of the job "long" last until they are
// cancelled.
func (s *stage) schedules(c *etcdclaims.Client) (jobs *sched.Scheduler, cancelled chan struct{}) {
	s.Helper()
	jobs, err := sched.New(c, sched.Config{Group: "billing"})
	s.ok(err)
	cancelled = make(chan struct{}, 100)
	never := calendar.Must(calendar.Cron("30 2 29 2 *"))
	s.ok(jobs.Add(sched.Job{Name: "nightly", Schedule: never, Handler: func(context.Context, sched.Tick) error { return nil }}))
	s.ok(jobs.Add(sched.Job{Name: "long", Schedule: never, Handler: func(ctx context.Context, _ sched.Tick) error {
		<-ctx.Done()
		cancelled <- struct{}{}
		return ctx.Err()
	}}))
	ctx, stop := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- jobs.Run(ctx) }()
	s.Cleanup(func() {
		stop()
		s.ok(<-ended)
	})
	return jobs, cancelled
}

// takes enqueues an item, and claims it.
func (s *stage) takes(q *queue.Queue, id string) *queue.Delivery {
	s.Helper()
	_, err := q.Enqueue(s.Context(), queue.NewItem(nil, queue.ID(id)))
	s.ok(err)
	b, err := q.TryClaim(s.Context(), 1)
	s.ok(err)
	return b.Deliveries[0]
}

// buries enqueues items, and makes dead letters of all that are in the queue.
func (s *stage) buries(q *queue.Queue, ids ...string) {
	s.Helper()
	for _, id := range ids {
		_, err := q.Enqueue(s.Context(), queue.NewItem(nil, queue.ID(id)))
		s.ok(err)
	}
	batch, err := q.TryClaim(s.Context(), 10)
	s.ok(err)
	for _, lease := range batch.Deliveries {
		s.ok(lease.Discard(s.Context(), "no such mailbox"))
	}
}

func (s *stage) paused(q *queue.Queue) bool {
	st, err := q.Stats(s.Context())
	s.ok(err)
	return !st.Paused.At.IsZero()
}
