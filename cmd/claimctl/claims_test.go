package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if out := w.ok("ls", "-o", "json"); out != "[]\n" {
		t.Errorf("of nothing: %q", out)
	}
	a := w.client("api-7")
	first := w.claim(a, "orders/1", etcdclaims.Note([]byte("half\x1b[2J done\nand more")))
	second := w.claim(a, "orders/2")
	w.claim(w.client("other"), "users/1")
	list := as[[]claimView](w, "ls", "orders/")
	if len(list) != 2 || list[0].Fence != first.Fence() || list[0].Owner != "api-7" || list[1].Fence != second.Fence() || list[1].Lease == "" {
		t.Errorf("%+v", list)
	}
	if out := w.ok("ls", "--output=name"); out != "orders/1\norders/2\nusers/1\n" {
		t.Errorf("names: %q", out)
	}
	if out := w.ok("ls", "-w", "name", "--held-by", "other"); out != "users/1\n" {
		t.Errorf("of one owner: %q", out)
	}
	if out := w.ok("ls", "-o", "jsonl"); strings.Count(out, "\n") != 3 || !strings.HasPrefix(out, `{"key":"orders/1"`) {
		t.Errorf("lines: %q", out)
	}
	if out := w.ctl("__complete", "explain", "orders/").out; !strings.HasPrefix(out, "orders/1\norders/2\n") {
		t.Errorf("completion: %q", out)
	}
}

// ls shows the longest wait for each key. The number of its requests does not grow with the
// number of keys.
func TestListLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	a, b := w.client("api-7"), w.client("api-8")
	var keys []string
	for i := range 200 {
		keys = append(keys, fmt.Sprintf("orders/%03d", i))
	}
	_, errs := a.TryAcquireEach(ctx, keys)
	w.noErr(errors.Join(errs...))
	w.claim(a, "zones", etcdclaims.Slots(1))
	var wg sync.WaitGroup
	wait := func(c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) {
		wg.Go(func() { _, _ = c.Acquire(ctx, key, opts...) })
		eventually(t, "it waits", func() bool {
			for l, err := range admin.Lines(ctx, a, []string{key}) {
				return err == nil && l.Waiting > 0
			}
			return false
		})
	}
	wait(b, "orders/042")
	wait(b, "zones", etcdclaims.Slots(1))
	c := w.client("api-9")
	wg.Go(func() { _, _ = c.Acquire(ctx, "orders/042") })
	eventually(t, "both wait", func() bool { l, err := admin.Line(ctx, a, "orders/042"); return err == nil && len(l) == 2 })

	var out bytes.Buffer
	ls := &app{format: formatJSON, out: &out}
	before := b.Stats().Requests
	w.noErr(ls.printClaims(ctx, b, listed(b.List(ctx, ""), "")))
	if n := b.Stats().Requests - before; n == 0 || n > 10 {
		t.Errorf("%d requests", n)
	}
	var list []claimView
	w.noErr(json.Unmarshal(out.Bytes(), &list))
	waiting := map[string]int{}
	for _, v := range list {
		if v.Waiters > 0 {
			waiting[v.Key] = v.Waiters
			if v.WaitingOwner != "api-8" || time.Since(v.WaitingSince) > time.Minute {
				t.Errorf("%+v", v)
			}
		}
	}
	if len(list) != 202 || len(waiting) != 2 || waiting["orders/042"] != 2 || waiting["zones"] != 1 {
		t.Errorf("%d keys, waiting %v", len(list), waiting)
	}
	if r := w.ctl("ls", "orders/04"); r.code != 0 || !strings.Contains(r.out, "WAITING  LONGEST") {
		t.Errorf("%+v", r)
	}
	cancel()
	wg.Wait()
}

func TestExplain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	w.fails(exitFailure, `explain "nosuch": the key has no claim, no record, no line`, "explain", "nosuch")
	a, b := w.client("api-7"), w.client("api-8")
	first, err := testwork.Of(a).TryBegin(ctx, "orders/42")
	w.noErr(err)
	_, err = first.Fail(ctx, etcdclaims.RetryAfter(errors.New("disk\nfull"), 0))
	w.noErr(err)
	second, err := testwork.Of(a).TryBegin(ctx, "orders/42", etcdclaims.Note([]byte("step 3 of 5")))
	w.noErr(err)
	waiting, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := b.Acquire(waiting, "orders/42")
		done <- err
	}()
	eventually(t, "b waits", func() bool {
		line, err := admin.Line(ctx, a, "orders/42")
		return err == nil && len(line) == 1
	})
	x := as[explanation](w, "explain", "orders/42")
	if !x.Held || x.Fence != second.Fence() || len(x.Waiting) != 1 || x.Waiting[0].Owner != "api-8" || x.Work == nil || x.Work.Attempt != 2 ||
		x.Previous == nil || x.Previous.Ending != "failed" || x.Previous.Fence != first.Fence() || x.Note != "step 3 of 5" {
		t.Errorf("%+v", x)
	}
	if x.Next == nil || x.Next.Owner != "api-8" || x.Next.At.IsZero() || x.Renewal == nil || x.Renewal.Overdue || x.Renewal.TTL != "15s" ||
		time.Since(x.Renewal.Renewed) > 10*time.Second {
		t.Errorf("%+v, %+v", x.Next, x.Renewal)
	}
	for _, want := range []string{"Renewed:", "of a lease of 15s", "Next:      api-8, when the key is released", "To free it: " + w.command("claimctl") + " release --fence " + fmt.Sprint(second.Fence()) + " --reason WHY orders/42"} {
		if out := w.ok("explain", "orders/42"); !strings.Contains(out, want) {
			t.Errorf("it does not say %q: %s", want, out)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("b: %v", err)
	}
}

// A key with slots is explained by those who hold them, and is no finding of doctor's.
func TestSlots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	a := w.client("api-7")
	one, err := a.TryAcquire(ctx, "licence", etcdclaims.Slots(2))
	w.noErr(err)
	if out := w.ok("ls"); !strings.Contains(out, one.Key()) || !strings.Contains(out, "2 slots") {
		t.Errorf("ls: %s", out)
	}
	x := as[explanation](w, "explain", "licence")
	if x.Slots != 2 || len(x.Holders) != 1 || x.Holders[0].Fence != one.Fence() {
		t.Errorf("%+v", x)
	}
	if out := w.ok("explain", "licence"); !strings.Contains(out, "2 slots, 1 held") || !strings.Contains(out, one.Key()+": api-7, fence "+fmt.Sprint(one.Fence())) {
		t.Errorf("explain: %s", out)
	}
	_, free, found := strings.Cut(w.ok("explain", "licence"), "To free it: "+w.command("claimctl")+" ")
	if !found {
		t.Error("explain has no command that frees a slot")
	}
	free, _, _ = strings.Cut(free, "\n")
	w.ok(words(free)...)
	w.isFree(one.Key())
	w.ok("resize", "licence", "3")
	two, err := a.TryAcquire(ctx, "licence", etcdclaims.Slots(3))
	w.noErr(err)
	three, err := a.TryAcquire(ctx, "licence", etcdclaims.Slots(3))
	w.noErr(err)
	w.ok("resize", "licence", "1") // the holder of the surplus slot keeps it
	if x := as[explanation](w, "explain", "licence"); x.Slots != 1 || len(x.Holders) != 2 || x.Previous != nil {
		t.Errorf("%+v", x)
	}
	w.noErr(three.Release(ctx))
	w.fails(exitFailure, "held", "resize", "licence", "0")
	w.fails(exitUsage, "not a number", "resize", "licence", "--", "-1")
	w.noErr(two.Release(ctx))
	w.ok("resize", "licence", "0")
	if out := w.ok("ls"); strings.Contains(out, "licence") {
		t.Errorf("ls: %s", out)
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	one, err := w.client("api-7").TryAcquire(ctx, "dataset", etcdclaims.Shared())
	w.noErr(err)
	_, err = w.client("api-8").TryAcquire(ctx, "dataset", etcdclaims.Shared())
	w.noErr(err)
	if out := w.ok("ls"); strings.Count(out, etcdclaims.SharedPrefix("dataset")) != 2 || !strings.Contains(out, "shared") {
		t.Errorf("ls: %s", out)
	}
	x := as[explanation](w, "explain", "dataset")
	if x.Shared != 2 || len(x.Holders) != 2 || x.Fence != one.Fence() {
		t.Errorf("%+v", x)
	}
	if out := w.ok("explain", "dataset"); !strings.Contains(out, fmt.Sprintf("shared by 2 callers, with the fence %d", one.Fence())) || !strings.Contains(out, ": api-8, asked ") {
		t.Errorf("explain: %s", out)
	}
	w.fails(exitFailure, "over", "release", "dataset", "--fence", "1")
	w.ok("release", "dataset", "--fence", fmt.Sprint(one.Fence()))
	if out := w.ok("ls"); strings.Contains(out, "dataset") {
		t.Errorf("ls: %s", out)
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	if v := as[historyView](w, "history", "k"); len(v.Terms) != 0 || v.Revision == 0 {
		t.Errorf("%+v", v)
	}
	a, b := w.client("a"), w.client("b")
	first := w.claim(a, "k")
	w.noErr(first.Release(ctx))
	w.claim(b, "k")
	w.noErr(admin.ForceRelease(ctx, a, "k", "stuck"))
	third := w.claim(a, "k")
	v := as[historyView](w, "history", "k")
	if len(v.Terms) != 3 || v.Terms[0].Ending != "released" || v.Terms[1].Cause != "a: stuck" || v.Terms[2].Ending != "" {
		t.Fatalf("%+v", v)
	}
	if v := as[historyView](w, "history", "k", "-n", "1"); len(v.Terms) != 1 || v.Terms[0].Fence != third.Fence() {
		t.Errorf("%+v", v)
	}
	w.fails(exitUsage, "negative", "history", "k", "-n", "-1")
}

func TestRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.client("api-7")
	old := w.claim(a, "k")
	w.noErr(old.Release(t.Context()))
	w.fails(exitUsage, "--fence is required", "release", "k")
	w.fails(exitFailure, "the key is free", "release", "k", "--fence", fmt.Sprint(old.Fence()))
	claim := w.claim(a, "k")
	w.fails(exitFailure, fmt.Sprintf("held by api-7 with fence %d", claim.Fence()), "release", "k", "--fence", fmt.Sprint(old.Fence()))
	w.noErr(claim.Check())
	w.ok("release", "k", "--fence", fmt.Sprint(claim.Fence()), "--reason", "host is gone")
	<-claim.Done()
	if err := claim.Err(); !strings.Contains(err.Error(), "host is gone") || !strings.Contains(err.Error(), "operator") {
		t.Errorf("the holder lost it with %v", err)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	a := w.client("a")
	claim := w.claim(a, "k")
	w.claim(a, "kk")
	w.ok("watch", "--until", "held", "k")
	w.ok("watch", "--until", "free", "nothing")
	w.fails(exitTimeout, "not free within 200ms", "watch", "--until", "free", "--timeout", "200ms", "k")
	w.fails(exitUsage, "--until takes free or held", "watch", "--until", "gone", "k")
	w.fails(exitUsage, "--until takes free or held", "watch", "--until", "free")
	done := make(chan result, 1)
	go func() { done <- w.ctl("watch", "--until", "free", "k") }()
	events := make(chan result, 1)
	go func() { events <- w.ctl("watch", "--timeout", "15s", "-o", "jsonl", "k") }()
	select {
	case r := <-done:
		t.Fatalf("before the key is free: %+v", r)
	case r := <-events:
		t.Fatalf("before its time: %+v", r)
	case <-afterSynced(t, w, "kk"):
	}
	w.noErr(claim.Release(ctx))
	if r := <-done; r.code != 0 || r.out != "" {
		t.Errorf("%+v", r)
	}
	r := <-events
	// A busy machine may begin this watch only after k was released.
	kk, k := strings.Contains(r.out, `"key":"kk"`), strings.Contains(r.out, `"key":"k"`)
	if r.code != 0 || !strings.Contains(r.out, `"event":"synced"`) || !kk || k && strings.Count(r.out, `"event":"claimed"`) != 2 {
		t.Errorf("%+v", r)
	}
}

// afterSynced is closed once a watch that began now has seen the key.
func afterSynced(t *testing.T, w *world, key string) <-chan struct{} {
	t.Helper()
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		w.ctl("watch", "--until", "held", key)
	}()
	return seen
}

func TestEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if out := w.ok("epoch", "show"); out != "epoch 0\n" {
		t.Errorf("show: %q", out)
	}
	claim := w.claim(w.client("a"), "k")
	w.fails(exitUsage, "--yes", "epoch", "raise")
	w.fails(exitUsage, "negative", "epoch", "raise", "--yes", "--above", "-1")
	w.ok("epoch", "raise", "--yes")
	if v := as[epochView](w, "epoch", "raise", "--yes", "--above", "7"); v.Epoch != 8 {
		t.Errorf("raise: %+v", v)
	}
	if v := as[epochView](w, "epoch", "show"); v.Epoch != 8 {
		t.Errorf("show: %+v", v)
	}
	if _, err := claim.Txn(t.Context()).Then(clientv3.OpPut("/x"+w.prefix, "")).Commit(); !errors.Is(err, etcdclaims.ErrLost) {
		t.Errorf("a write of the old epoch: %v", err)
	}
	w.fails(exitUsage, "show or raise", "epoch")
}
