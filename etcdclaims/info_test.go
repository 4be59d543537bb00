package etcdclaims_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func tokenFor(key string, fence int64) fencing.Token { return fencing.Token{Key: key, Fence: fence} }

func TestLookup(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	if i := lookUp(t, b, "k"); i.Held || i.Key != "k" || i.Fence != 0 || i.Waiting != 0 || i.TTL != 0 || i.Lease != 0 || i.Note != nil {
		t.Errorf("a free key: %+v", i)
	}
	before := time.Now()
	cl := tryClaim(t, a, "k", etcdclaims.TTL(40*time.Second))
	i := lookUp(t, b, "k")
	if !i.Held || i.Key != "k" || i.Fence != cl.Fence() || i.Claim != cl.ID() || i.Owner != "a" || i.Instance != a.Instance() ||
		i.Attempt != 0 || i.Note != nil || i.Kind != "" || i.Waiting != 0 || i.Lease == 0 {
		t.Errorf("a held key: %+v", i)
	}
	if d := i.Since.Sub(before); d < -time.Second || d > 10*time.Second {
		t.Errorf("since %v, claimed at %v", i.Since, before)
	}
	if i.TTL < 30*time.Second || i.TTL > 40*time.Second {
		t.Errorf("TTL %v", i.TTL)
	}
	waitCtx, stop := context.WithCancel(ctx)
	done := make(chan error, 3)
	for range 3 {
		go func() { _, err := b.Acquire(waitCtx, "k"); done <- err }()
	}
	eventually(t, "three wait", func() bool { return lookUp(t, a, "k").Waiting == 3 })
	_, err := a.TryAcquire(ctx, "k")
	var held *etcdclaims.HeldError
	if !errors.As(err, &held) || held.Info.Owner != "a" {
		t.Errorf("the error says %+v", held)
	}
	stop()
	for range 3 {
		wantIs(t, <-done, context.Canceled)
	}
	eventually(t, "nobody waits", func() bool { return lookUp(t, a, "k").Waiting == 0 })
}

func TestLookupNotes(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	cl := tryClaim(t, a, "k")
	for _, note := range [][]byte{
		[]byte("step 1 of 3"), []byte(`{"json":true,"html":"<&>"}`), []byte("ümläut \u2028 \x00 \x7f"),
		{0xff, 0xfe, 0, 1},
		{0x80},
		bytes.Repeat([]byte{0xff}, etcdclaims.MaxNoteBytes), bytes.Repeat([]byte("x"), etcdclaims.MaxNoteBytes),
	} {
		noErr(t, cl.Note(ctx, note))
		if i := lookUp(t, b, "k"); !bytes.Equal(i.Note, note) || i.Fence != cl.Fence() {
			t.Errorf("note %.40q is read as %.40q, fence %d as %d", note, i.Note, cl.Fence(), i.Fence)
		}
		for i, err := range b.List(ctx, "") {
			noErr(t, err)
			if !bytes.Equal(i.Note, note) {
				t.Errorf("note %.40q is listed as %.40q", note, i.Note)
			}
		}
	}
	noErr(t, cl.Note(ctx, nil))
	if i := lookUp(t, b, "k"); len(i.Note) != 0 {
		t.Errorf("an emptied note is %q", i.Note)
	}
	if err := cl.Note(ctx, make([]byte, etcdclaims.MaxNoteBytes+1)); !errors.Is(err, etcdclaims.ErrTooLarge) {
		t.Errorf("a large note: %v", err)
	}
	noErr(t, cl.Release(ctx))
	if kv := rawKV(t, etcd, prefix+"note/k"); kv != nil {
		t.Errorf("the note outlived the claim: %v", kv)
	}
	// A lost claim notes nothing, and cannot touch its successor's note.
	cl = tryClaim(t, a, "k", etcdclaims.Note([]byte("mine")))
	noErr(t, admin.ForceRelease(ctx, b, "k", "test"))
	next := tryClaim(t, b, "k", etcdclaims.Note([]byte("theirs")))
	wantIs(t, cl.Note(ctx, []byte("still mine")), etcdclaims.ErrLost)
	if i := lookUp(t, a, "k"); string(i.Note) != "theirs" || i.Fence != next.Fence() {
		t.Errorf("%+v", i)
	}
}

func TestLookupForeignValue(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	for key, value := range map[string]string{"text": "not JSON", "other": `{"v":"1","owner":"other"}`, "empty": ""} {
		put, err := etcd.Put(ctx, prefix+"own/"+key, value)
		noErr(t, err)
		if i := lookUp(t, a, key); !i.Held || i.Fence != put.Header.Revision || i.Owner != "unknown" || i.Lease != 0 || i.TTL != 0 {
			t.Errorf("%s: %+v", key, i)
		}
		_, err = a.TryAcquire(ctx, key)
		wantIs(t, err, etcdclaims.ErrHeld)
		noErr(t, admin.ForceRelease(ctx, a, key, "it is not ours"))
		tryClaim(t, a, key)
	}
}

// What an operator reads with etcdctl is JSON with a version.
func TestValuesAreReadable(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	w := tryBegin(t, a, "order/1", etcdclaims.Note([]byte("step 1")))
	testclaims.Locked(t, locks.New(a), "lock", "me", time.Minute, true)
	waitCtx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { _, err := b.Acquire(waitCtx, "order/1"); done <- err }()
	eventually(t, "one waits", func() bool { return lookUp(t, a, "order/1").Waiting == 1 })

	read := func(key string) map[string]any {
		t.Helper()
		kv := rawKV(t, etcd, prefix+key)
		if kv == nil {
			t.Fatalf("no key %s", key)
		}
		out := map[string]any{}
		if err := json.Unmarshal(kv.Value, &out); err != nil || out["v"] != 1.0 {
			t.Errorf("%s = %s: %v", key, kv.Value, err)
		}
		return out
	}
	if own := read("own/order/1"); own["claim"] != w.ID() || own["owner"] != "a" || own["instance"] != a.Instance() || own["attempt"] != 1.0 || own["since"] == "" {
		t.Errorf("own: %v", own)
	}
	if note := read("note/order/1"); note["text"] != "step 1" {
		t.Errorf("note: %v", note)
	}
	if work := read("work/order/1"); work["state"] != "claimed" || work["owner"] != "a" || work["attempt"] != 1.0 || work["claim"] != w.ID() {
		t.Errorf("work: %v", work)
	}
	if lock := read("own/lock"); lock["kind"] != "lock" || lock["owner"] != "me" {
		t.Errorf("lock: %v", lock)
	}
	for _, c := range []*etcdclaims.Client{a, b} {
		resp, err := etcd.Get(ctx, prefix+"session/"+c.Instance()+"/live/", clientv3.WithPrefix())
		noErr(t, err)
		if len(resp.Kvs) != 1 || resp.Kvs[0].Lease == 0 {
			t.Fatalf("sessions: %v", resp.Kvs)
		}
		if s := read(string(bytes.TrimPrefix(resp.Kvs[0].Key, []byte(prefix)))); s["owner"] == "" {
			t.Errorf("session: %v", s)
		}
	}
	// Whatever else there is under the prefix is of a known kind, and JSON.
	resp, err := etcd.Get(ctx, prefix, clientv3.WithPrefix())
	noErr(t, err)
	for _, kv := range resp.Kvs {
		if !json.Valid(kv.Value) {
			t.Errorf("%s is not JSON: %q", kv.Key, kv.Value)
		}
		read(string(bytes.TrimPrefix(kv.Key, []byte(prefix))))
	}
	stop()
	wantIs(t, <-done, context.Canceled)
	noErr(t, w.Complete(ctx))
	if work := read("work/order/1"); work["state"] != "done" || work["fence"] == "" {
		t.Errorf("work: %v", work)
	}
}

// Everyone speaks of the same fence, whoever has claimed since the epoch was
// raised.
func TestEpochInFences(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	old := tryBegin(t, a, "old")
	_, err := etcd.Put(ctx, prefix+"epoch", "3")
	noErr(t, err)
	if ok, err := b.Owns(ctx, old.Token()); ok || err != nil {
		t.Errorf("a token from before the epoch owns: %v, %v", ok, err)
	}
	if ok, err := old.Owns(ctx); ok || err != nil {
		t.Errorf("a claim from before the epoch owns: %v, %v", ok, err)
	}
	wantIs(t, old.Complete(ctx), etcdclaims.ErrLost)
	noErr(t, admin.ForceRelease(ctx, b, "old", "over"))

	w := tryBegin(t, a, "k")
	if w.Fence()>>47 != 3 || w.Fence() <= old.Fence() {
		t.Errorf("fence %d is not of epoch 3", w.Fence())
	}
	// Each question is asked of a client that has seen nothing yet.
	fresh := func() *etcdclaims.Client {
		return newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "fresh"})
	}
	if ok, err := fresh().Owns(ctx, w.Token()); !ok || err != nil {
		t.Errorf("Owns: %v, %v", ok, err)
	}
	if i := lookUp(t, fresh(), "k"); i.Fence != w.Fence() {
		t.Errorf("Lookup: fence %d, want %d", i.Fence, w.Fence())
	}
	for i, err := range fresh().List(ctx, "k") {
		noErr(t, err)
		if i.Fence != w.Fence() {
			t.Errorf("List: fence %d, want %d", i.Fence, w.Fence())
		}
	}
	watchCtx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	for e, err := range fresh().Watch(watchCtx, "k") {
		noErr(t, err)
		if e.Kind == etcdclaims.Claimed && e.Info.Fence != w.Fence() {
			t.Errorf("Watch: fence %d, want %d", e.Info.Fence, w.Fence())
		}
		break
	}
	if _, err := fresh().TryAcquire(ctx, "k"); true {
		var held *etcdclaims.HeldError
		if !errors.As(err, &held) || held.Info.Fence != w.Fence() {
			t.Errorf("TryAcquire: %v, want fence %d", err, w.Fence())
		}
	}
	if r, _, err := works(fresh()).Record(ctx, "k"); err != nil || r.Fence != w.Fence() {
		t.Errorf("Record: %+v, %v, want fence %d", r, err, w.Fence())
	}
	if fence := testclaims.Locked(t, locks.New(fresh()), "lock", "me", time.Minute, true); fence>>47 != 3 {
		t.Errorf("lock: fence %d", fence)
	}
	noErr(t, w.Complete(ctx))
	if r, _, err := works(fresh()).Record(ctx, "k"); err != nil || r.Fence != w.Fence() || r.State != work.StateDone {
		t.Errorf("Record: %+v, %v, want fence %d", r, err, w.Fence())
	}
}

// Lookup shows a shared key, or one with slots, as it was at one moment. Such a key changes here
// between two requests of Lookup, in one transaction each time, so that it is never free.
func TestLookupIsOfOneMoment(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, tt := range map[string]struct {
		opts   []etcdclaims.AcquireOption
		change func(w *world, c *etcdclaims.Client)
		want   etcdclaims.Info
	}{
		"shared by another": {
			[]etcdclaims.AcquireOption{etcdclaims.Shared()},
			func(w *world, c *etcdclaims.Client) {
				tryClaim(w.T, c, "k", etcdclaims.Shared())
			},
			etcdclaims.Info{Held: true, Kind: "shared", Shared: 2},
		},
		"resized": {
			[]etcdclaims.AcquireOption{etcdclaims.Slots(1)},
			func(w *world, c *etcdclaims.Client) {
				acquiring(ctx, c, "k", etcdclaims.Slots(1))
				time.Sleep(100 * ms)
				noErr(w.T, admin.Resize(ctx, c, "k", 2))
				time.Sleep(100 * ms) // the waiter has the second slot
			},
			etcdclaims.Info{Held: true, Kind: "slots", Slots: 2},
		},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c := w.peer()
			tryClaim(t, c, "k", tt.opts...)
			reader, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			slow := host.Inject(claimtest.Fault{On: claimtest.Verify, Skip: 1, DelayRequest: sec})
			time.AfterFunc(500*ms, func() { tt.change(w, c) })
			i, err := reader.Lookup(ctx, "k")
			noErr(t, err)
			if slow.Hits() != 1 {
				t.Errorf("%d requests delayed", slow.Hits())
			}
			got := etcdclaims.Info{Held: i.Held, Kind: i.Kind, Slots: i.Slots, Shared: i.Shared, Waiting: i.Waiting}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if now := lookUp(t, c, "k"); now.Fence != i.Fence || now.Claim != i.Claim {
				t.Errorf("got %+v, which is %+v", i, now)
			}
		})
	}
}

// Lookup of a key with slots counts those that are held.
func TestLookupCountsSlots(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		first := tryClaim(t, a, "gpu", etcdclaims.Slots(3))
		second := tryClaim(t, b, "gpu", etcdclaims.Slots(3))
		tryClaim(t, b, etcdclaims.SlotKey("gpu", 0)+"x", option.OwnKey{}) // is no slot
		taken := func(want int) {
			t.Helper()
			i, err := a.Lookup(t.Context(), "gpu")
			noErr(t, err)
			if i.Taken != want || i.Slots != 3 || !i.Held {
				t.Errorf("%d of %d slots are held, want %d; held: %v", i.Taken, i.Slots, want, i.Held)
			}
		}
		taken(2)
		release(t, first)
		taken(1)
		release(t, second)
		taken(0)
	})
}

// That a client gives up a lease that it does not need is no event for its log.
func TestIdleSessionIsNotLogged(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		core, logs := observer.New(zap.InfoLevel)
		a, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Logger: zap.New(core)})
		for range 3 {
			release(t, tryClaim(t, a, "k"))
			time.Sleep(time.Minute)
		}
		if n := logs.Len(); n > 0 {
			t.Errorf("%d lines: %v", n, logs.All())
		}
		if s := a.Stats(); s.Sessions != 0 {
			t.Errorf("%d sessions", s.Sessions)
		}
	})
}
