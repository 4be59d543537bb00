package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// badKeys are what no call takes.
var badKeys = []string{
	"", strings.Repeat("x", 1025), strings.Repeat("x", 1<<20), strings.Repeat("ü", 513), "\x00", "a\x00b", "a\nb", "a\tb", "\x1b[0m",
	"a\x7f", "a\u0080b", "a\u009f", "\xff", "a\xc3", "\xed\xa0\x80", "a\xc0\x80",
}

// goodKeys are odd, and taken.
var goodKeys = []string{
	"x", " x", "/", "//", "a/", "/a", "a//b", ".", "..", "../own", "own/x", "own/", "wait/", "a/wait/", "epoch", "%00", "ü", "鍵", "🔑", "a b",
	"a\u00a0", "\u2028a", "\ufeff", "\ufffd", "e\u0301", "é", strings.Repeat("x", 1024), strings.Repeat("🔑", 256), `"`, `\`, "{}", "*", "?",
}

// snapshot is everything under a prefix, with its revisions.
func snapshot(t *testing.T, etcd *clientv3.Client, prefixes ...string) string {
	t.Helper()
	var b strings.Builder
	for _, p := range prefixes {
		resp, err := etcd.Get(t.Context(), p, clientv3.WithPrefix())
		noErr(t, err)
		for _, kv := range resp.Kvs {
			fmt.Fprintf(&b, "%s@%d ", kv.Key, kv.ModRevision)
		}
	}
	return b.String()
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	data := testetcd.Prefix(t)
	cl := tryClaim(t, a, "held", etcdclaims.TTL(10*time.Minute))
	w := tryBegin(t, a, "work", etcdclaims.TTL(10*time.Minute))
	tryClaim(t, b, "warm", etcdclaims.TTL(10*time.Minute))
	nothing := func(context.Context) error { t.Error("a handler ran"); return nil }
	puts := func(n, size int) []clientv3.Op {
		ops := make([]clientv3.Op, n)
		for i := range ops {
			ops[i] = clientv3.OpPut(fmt.Sprint(data, i), strings.Repeat("x", size))
		}
		return ops
	}
	var cmps []clientv3.Cmp
	for i := range 130 {
		cmps = append(cmps, clientv3.Compare(clientv3.Version(fmt.Sprint(data, i)), "=", 0))
	}
	big := []clientv3.Cmp{clientv3.Compare(clientv3.Value(data), "=", strings.Repeat("x", 1600<<10))}

	type call struct {
		name string
		err  error
		want error // nil: any
	}
	var calls []call
	before, requests := snapshot(t, etcd, prefix, data), a.Stats().Requests+b.Stats().Requests
	say := func(name string, err, want error) { calls = append(calls, call{name, err, want}) }
	// acquiring makes the call with everything that acquires one key.
	acquiring := func(name, key string, want error, opts ...any) {
		if opts, all := accepted[etcdclaims.AcquireOption](opts), len(opts); len(opts) == all {
			_, err := b.TryAcquire(ctx, key, opts...)
			say("TryAcquire "+name, err, want)
			_, err = b.Acquire(ctx, key, opts...)
			say("Acquire "+name, err, want)
			say("TryRun "+name, b.TryRun(ctx, key, nothing, opts...), want)
			say("Run "+name, b.Run(ctx, key, nothing, opts...), want)
		}
		if opts, all := accepted[work.Option](opts), len(opts); len(opts) == all {
			_, err := works(b).TryBegin(ctx, key, opts...)
			say("TryBegin "+name, err, want)
			_, err = works(b).Begin(ctx, key, opts...)
			say("Begin "+name, err, want)
		}
		if opts, all := accepted[etcdclaims.AllOption](opts), len(opts); len(opts) == all {
			_, err := b.TryAcquireAll(ctx, []string{key}, opts...)
			say("TryAcquireAll "+name, err, want)
		}
		if opts, all := accepted[etcdclaims.ManyOption](opts), len(opts); len(opts) == all {
			_, errs := b.TryAcquireEach(ctx, []string{key}, opts...)
			say("TryAcquireEach "+name, errs[0], want)
		}
	}
	for _, key := range badKeys {
		name := fmt.Sprintf("key %.20q of %d bytes", key, len(key))
		acquiring(name, key, etcdclaims.ErrInvalidKey)
		_, err := b.Lookup(ctx, key)
		say("Lookup "+name, err, etcdclaims.ErrInvalidKey)
		_, _, err = works(b).Record(ctx, key)
		say("Record "+name, err, etcdclaims.ErrInvalidKey)
		_, err = b.Owns(ctx, tokenFor(key, 1))
		say("Owns "+name, err, etcdclaims.ErrInvalidKey)
		say("ForceRelease "+name, admin.ForceRelease(ctx, b, key, ""), etcdclaims.ErrInvalidKey)
	}
	for _, d := range []time.Duration{-1, time.Millisecond, 4 * time.Second, 4999 * time.Millisecond, -time.Hour, 366 * 24 * time.Hour, 1<<63 - 1, -1 << 63} {
		acquiring(fmt.Sprint("TTL ", d), "k", nil, etcdclaims.TTL(d))
	}
	acquiring("negative MaxHold", "k", nil, etcdclaims.MaxHold(-1))
	acquiring("MaxHold of the drain", "k", nil, etcdclaims.MaxHold(3*time.Second))
	acquiring("MaxHold below the drain of its TTL", "k", nil, etcdclaims.TTL(time.Minute), etcdclaims.MaxHold(11*time.Second))
	acquiring("negative MinHold", "k", nil, etcdclaims.MinHold(-1))
	acquiring("negative Progress", "k", nil, etcdclaims.Progress(-1))
	acquiring("huge Progress", "k", nil, etcdclaims.Progress(1<<63-1))
	acquiring("MinHold above MaxHold", "k", nil, etcdclaims.MinHold(2*time.Second), etcdclaims.MaxHold(time.Second))
	acquiring("huge MinHold", "k", nil, etcdclaims.MinHold(366*24*time.Hour))
	acquiring("Reentrant and Supersede", "k", nil, etcdclaims.Reentrant(), etcdclaims.Supersede())
	acquiring("large note", "k", etcdclaims.ErrTooLarge, etcdclaims.Note(make([]byte, etcdclaims.MaxNoteBytes+1)))
	acquiring("too many ops", "k", etcdclaims.ErrTooLarge, etcdclaims.Then(puts(130, 1)...))
	acquiring("too many ops in parts", "k", etcdclaims.ErrTooLarge, etcdclaims.Then(puts(100, 1)...), etcdclaims.Then(puts(100, 1)...))
	acquiring("too large ops", "k", etcdclaims.ErrTooLarge, etcdclaims.Then(puts(16, 100<<10)...))
	acquiring("too many conditions", "k", etcdclaims.ErrTooLarge, etcdclaims.If(cmps...))
	acquiring("too large conditions", "k", etcdclaims.ErrTooLarge, etcdclaims.If(big...))
	acquiring("reserved key", "k", nil, etcdclaims.Then(clientv3.OpPut(prefix+"own/k", "")))
	acquiring("reserved range", "k", nil, etcdclaims.Then(clientv3.OpDelete("", clientv3.WithPrefix())))
	acquiring("empty key in an op", "k", nil, etcdclaims.Then(clientv3.OpPut("", "")))
	say("TryRun nil", b.TryRun(ctx, "k", nil), nil)
	say("Run nil", b.Run(ctx, "k", nil), nil)
	_, _, err := works(b).Record(ctx, "")
	say("Record", err, etcdclaims.ErrInvalidKey)
	say("ForceRelease with a long reason", admin.ForceRelease(ctx, b, "held", strings.Repeat("x", 1025)), etcdclaims.ErrTooLarge)
	say("Note", cl.Note(ctx, make([]byte, etcdclaims.MaxNoteBytes+1)), etcdclaims.ErrTooLarge)
	for name, bad := range map[string]struct {
		ops  []clientv3.Op
		want error
	}{
		"too many":  {puts(130, 1), etcdclaims.ErrTooLarge},
		"too large": {puts(16, 100<<10), etcdclaims.ErrTooLarge},
		"reserved":  {[]clientv3.Op{clientv3.OpPut(prefix+"own/held", "")}, nil},
		"empty key": {[]clientv3.Op{clientv3.OpPut("", "")}, nil},
	} {
		_, err := cl.Txn(ctx).Then(bad.ops...).Commit()
		say("Txn Then "+name, err, bad.want)
		_, err = cl.Txn(ctx).Else(bad.ops...).Commit()
		say("Txn Else "+name, err, bad.want)
		say("Complete "+name, w.Complete(ctx, bad.ops...), bad.want)
		say("Fail "+name, failing(ctx, w, errors.New("x"), bad.ops...), bad.want)
	}
	_, err = cl.Txn(ctx).If(cmps...).Commit()
	say("Txn If too many", err, etcdclaims.ErrTooLarge)

	for _, call := range calls {
		switch {
		case call.err == nil:
			t.Errorf("%s: no error", call.name)
		case call.want != nil && !errors.Is(call.err, call.want):
			t.Errorf("%s: %v", call.name, call.err)
		case errors.Is(call.err, etcdclaims.ErrUnknown) || errors.Is(call.err, etcdclaims.ErrHeld):
			t.Errorf("%s: %v", call.name, call.err)
		case len(call.err.Error()) > 600:
			t.Errorf("%s: a text of %d bytes", call.name, len(call.err.Error()))
		}
	}
	t.Logf("%d calls", len(calls))
	if n := a.Stats().Requests + b.Stats().Requests - requests; n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	if after := snapshot(t, etcd, prefix, data); after != before {
		t.Errorf("changed from %s to %s", before, after)
	}
	noErr(t, cl.Check())
	noErr(t, w.Complete(ctx))
	if s := b.Stats(); s.Held != 1 {
		t.Errorf("stats %+v", s)
	}
}

// The same of a client that has not spoken to etcd yet: it does not begin with
// it for a bad call.
func TestBadInputBeforeFirstRequest(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	_, err := a.TryAcquire(ctx, "a\nb")
	wantIs(t, err, etcdclaims.ErrInvalidKey)
	_, err = a.TryAcquire(ctx, "k", etcdclaims.TTL(time.Second))
	if err == nil || !strings.Contains(err.Error(), "1s") || !strings.Contains(err.Error(), "5s") {
		t.Errorf("%v does not name both values", err)
	}
	_, err = a.TryAcquire(ctx, "k", etcdclaims.MinHold(3*time.Second), etcdclaims.MaxHold(2*time.Second))
	if err == nil || !strings.Contains(err.Error(), "2s") || !strings.Contains(err.Error(), "3s") {
		t.Errorf("%v does not name both values", err)
	}
	if n := a.Stats(); n.Requests != 0 || n.Sessions != 0 {
		t.Errorf("stats %+v", n)
	}
	if s := snapshot(t, etcd, prefix); s != "" {
		t.Errorf("there is %s", s)
	}
}

func TestGoodInput(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	for _, key := range goodKeys {
		cl, err := a.TryAcquire(ctx, key, nil, etcdclaims.Note(nil), etcdclaims.TTL(0), etcdclaims.MinHold(0), etcdclaims.MaxHold(0), etcdclaims.Then(), etcdclaims.If())
		if err != nil {
			t.Errorf("%.40q: %v", key, err)
			continue
		}
		if i := lookUp(t, b, key); i.Fence != cl.Fence() || i.Key != key {
			t.Errorf("%.40q: %+v", key, i)
		}
	}
	if n, err := a.ReleaseAll(ctx); n != len(goodKeys) || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	// At the limits.
	data := testetcd.Prefix(t)
	var ops []clientv3.Op
	for i := range 116 {
		ops = append(ops, clientv3.OpPut(fmt.Sprint(data, i), ""))
	}
	cl := tryClaim(t, a, "k", etcdclaims.Then(ops...), etcdclaims.Note(make([]byte, etcdclaims.MaxNoteBytes)))
	_, err := cl.Txn(ctx).Then(ops...).Commit()
	noErr(t, err)
	noErr(t, tryBegin(t, a, "work", etcdclaims.Then(ops...)).Complete(ctx, ops...))
}

// What is too large is refused without asking etcd, whatever the package has to
// add to it: so what is sent succeeds.
func TestLargestInput(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		a, host := w.client(etcdclaims.Config{})
		cl := tryClaim(t, a, "k", etcdclaims.Note(make([]byte, etcdclaims.MaxNoteBytes)))
		done, failed := tryBegin(t, a, strings.Repeat("w", 1024)), tryBegin(t, a, strings.Repeat("f", 1024))
		asked := func() int { return len(host.Sent(claimtest.Other)) + len(host.Sent(claimtest.Ending)) }
		for name, call := range map[string]func(op clientv3.Op) error{
			"Txn":      func(op clientv3.Op) error { _, err := cl.Txn(ctx).Then(op).Commit(); return err },
			"Complete": func(op clientv3.Op) error { return done.Complete(ctx, op) },
			"Fail":     func(op clientv3.Op) error { return failing(ctx, failed, errors.New(strings.Repeat("\x01", 1<<20)), op) },
		} {
			for size := 1600 << 10; ; size -= 4 << 10 {
				before := asked()
				err := call(clientv3.OpPut("/data", strings.Repeat("x", size)))
				if err == nil {
					t.Logf("%s takes %d KiB", name, size>>10)
					break
				}
				wantIs(t, err, etcdclaims.ErrTooLarge)
				if asked() > before {
					t.Fatalf("%s with %d KiB was refused by etcd", name, size>>10)
				}
				if size < 1400<<10 {
					t.Fatalf("%s does not even take %d KiB", name, size>>10)
				}
			}
			if asked() == 0 {
				t.Fatalf("%s is not among what is counted", name)
			}
		}
	})
}

// accepted returns those of the options that calls of one kind accept.
func accepted[O any](opts []any) (of []O) {
	for _, opt := range opts {
		if o, ok := opt.(O); ok {
			of = append(of, o)
		}
	}
	return of
}
