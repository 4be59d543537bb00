package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// newOrPassthrough returns a passthrough client if etcd is nil.
func newOrPassthrough(etcd *clientv3.Client, cfg etcdclaims.Config) (*etcdclaims.Client, error) {
	if etcd == nil {
		return etcdclaims.NewPassthrough(cfg)
	}
	return etcdclaims.New(etcd, cfg)
}

func TestPassthroughClient(t *testing.T) {
	t.Parallel()
	c := newClient(t, nil, etcdclaims.Config{})
	ctx := t.Context()
	if !c.Passthrough() || c.Instance() != "" {
		t.Errorf("%v, %q", c.Passthrough(), c.Instance())
	}
	// Each gets the options that its calls accept, of which it returns how many.
	acquire := map[string]func(string, ...any) (*etcdclaims.Claim, int, error){
		"TryAcquire": func(key string, opts ...any) (*etcdclaims.Claim, int, error) {
			o := accepted[etcdclaims.AcquireOption](opts)
			cl, err := c.TryAcquire(ctx, key, o...)
			return cl, len(o), err
		},
		"Acquire": func(key string, opts ...any) (*etcdclaims.Claim, int, error) {
			o := accepted[etcdclaims.AcquireOption](opts)
			cl, err := c.Acquire(ctx, key, o...)
			return cl, len(o), err
		},
		"TryBegin": func(key string, opts ...any) (*etcdclaims.Claim, int, error) {
			o := accepted[work.Option](opts)
			w, err := works(c).TryBegin(ctx, key, o...)
			if err != nil {
				return nil, len(o), err
			}
			return w.Claim, len(o), nil
		},
		"Begin": func(key string, opts ...any) (*etcdclaims.Claim, int, error) {
			o := accepted[work.Option](opts)
			w, err := works(c).Begin(ctx, key, o...)
			if err != nil {
				return nil, len(o), err
			}
			return w.Claim, len(o), nil
		},
		"TryAcquireEach": func(key string, opts ...any) (*etcdclaims.Claim, int, error) {
			o := accepted[etcdclaims.ManyOption](opts)
			claims, errs := c.TryAcquireEach(ctx, []string{"another", key}, o...)
			return claims[1], len(o), errs[1]
		},
		"TryAcquireAll": func(key string, opts ...any) (*etcdclaims.Claim, int, error) {
			o := accepted[etcdclaims.AllOption](opts)
			claims, err := c.TryAcquireAll(ctx, []string{"another", key}, o...)
			if err != nil {
				return nil, len(o), err
			}
			return claims[1], len(o), nil
		},
	}
	for name, f := range acquire {
		for range 2 { // nobody is excluded
			cl, n, err := f("k", etcdclaims.TTL(time.Minute), etcdclaims.MaxHold(time.Hour), etcdclaims.Note([]byte("x")))
			noErr(t, err)
			if n != 3 || cl.Fence() != 0 || !cl.Token().IsZero() || cl.Token().Key != "k" || cl.Key() != "k" {
				t.Errorf("%s: token %v, %d options", name, cl.Token(), n)
			}
		}
		_, _, err := f("")
		wantIs(t, err, etcdclaims.ErrInvalidKey)
		_, n, err := f("k", etcdclaims.Then(clientv3.OpPut("x", "")))
		_, _, err2 := f("k", etcdclaims.If(clientv3.Compare(clientv3.Version("x"), "=", 0)))
		if n > 0 {
			wantIs(t, err, etcdclaims.ErrPassthrough)
			wantIs(t, err2, etcdclaims.ErrPassthrough)
		} else if name != "TryAcquireEach" {
			t.Errorf("%s does not accept Then", name)
		}
		for key, opt := range map[string]etcdclaims.AcquireOption{"k": etcdclaims.Shared(), etcdclaims.SlotKey("k", 0): etcdclaims.Slots(2)} {
			cl, n, err := f("k", opt)
			if n == 0 {
				continue
			}
			if noErr(t, err); cl.Key() != key || cl.Slot() != 0 {
				t.Errorf("%s: %s, slot %d", name, cl.Key(), cl.Slot())
			}
			if _, _, err := f("k", opt, etcdclaims.Reentrant()); err == nil {
				t.Errorf("%s: %s and Reentrant", name, cl.Key())
			}
		}
	}
	boom := errors.New("boom")
	for name, run := range map[string]func(context.Context, string, func(context.Context) error, ...etcdclaims.AcquireOption) error{"Run": c.Run, "TryRun": c.TryRun} {
		ran := 0
		noErr(t, run(ctx, "k", func(ctx context.Context) error {
			ran++
			if tok, ok := fencing.FromContext(ctx); !ok || tok != tokenFor("k", 0) || ctx.Err() != nil {
				t.Errorf("%s: token %v, %v, %v", name, tok, ok, ctx.Err())
			}
			return nil
		}))
		wantIs(t, run(ctx, "k", func(context.Context) error { ran++; return boom }), boom)
		if ran != 2 {
			t.Errorf("%s ran %d of 2", name, ran)
		}
		if run(ctx, "k", nil) == nil {
			t.Errorf("%s took nil", name)
		}
		wantIs(t, run(ctx, "", func(context.Context) error { t.Error("it ran"); return nil }), etcdclaims.ErrInvalidKey)
		ended, cancel := context.WithCancel(ctx)
		_ = run(ended, "k", func(ctx context.Context) error {
			cancel()
			<-ctx.Done() // the caller's context still ends the handler's
			return nil
		})
	}
	if i, err := c.Lookup(ctx, "k"); err != nil || i.Held || i.Key != "k" {
		t.Errorf("%+v, %v", i, err)
	}
	if r, ok, err := works(c).Record(ctx, "k"); ok || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	for i, err := range c.List(ctx, "") {
		t.Errorf("listed %v, %v", i, err)
	}
	for e, err := range c.Watch(ctx, "") {
		t.Errorf("watched %v, %v", e, err)
	}
	if o, err := orphansOf(ctx, c, 0); err != nil || len(o) != 0 {
		t.Errorf("%v, %v", o, err)
	}
	if n, err := c.ReleaseAll(ctx); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if ok, err := c.Owns(ctx, tokenFor("k", 0)); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	noErr(t, admin.ForceRelease(ctx, c, "k", "x"))
	wantIs(t, admin.ForceRelease(ctx, c, "", "x"), etcdclaims.ErrInvalidKey)
	if s := c.Stats(); fmt.Sprint(s) != fmt.Sprint(etcdclaims.Stats{Lost: map[etcdclaims.Reason]int64{}}) || s.Lost == nil {
		t.Errorf("%+v", s)
	}
	noErr(t, c.Close(ctx))
	noErr(t, c.Close(ctx))
}

// A client without etcd says what it is, once.
func TestPassthroughIsLogged(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.WarnLevel)
	c := newClient(t, nil, etcdclaims.Config{Logger: zap.New(core)})
	tryClaim(t, c, "k")
	if all := logged.All(); len(all) != 1 || all[0].Message != "passthrough client made: claims exclude no other process, and their fence is 0" {
		t.Errorf("%v", all)
	}
}

func TestPassthroughClaim(t *testing.T) {
	t.Parallel()
	c := newClient(t, nil, etcdclaims.Config{})
	ctx := t.Context()
	cl := tryClaim(t, c, "k")
	if cl.ID() != "" || cl.Owner() != "" || cl.Done() != nil || !cl.Deadline().IsZero() || cl.Remaining() != math.MaxInt64 {
		t.Errorf("%q, %q, %v, %v, %v", cl.ID(), cl.Owner(), cl.Done(), cl.Deadline(), cl.Remaining())
	}
	if tok, ok := fencing.FromContext(cl.Context()); !ok || tok != cl.Token() || cl.Context().Err() != nil {
		t.Errorf("%v, %v", tok, ok)
	}
	type mark struct{}
	bound, unbind := cl.Bind(context.WithValue(ctx, mark{}, 1))
	if tok, ok := fencing.FromContext(bound); !ok || tok != cl.Token() || bound.Value(mark{}) != 1 || bound.Err() != nil {
		t.Errorf("%v, %v, %v", tok, ok, bound.Err())
	}
	unbind()
	if bound.Err() == nil {
		t.Error("an unbound context goes on")
	}
	noErr(t, cl.Err())
	noErr(t, cl.Check())
	noErr(t, cl.Renew(ctx))
	noErr(t, cl.Note(ctx, []byte("x")))
	wantIs(t, cl.Note(ctx, make([]byte, etcdclaims.MaxNoteBytes+1)), etcdclaims.ErrTooLarge)
	if ok, err := cl.Owns(ctx); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	_, err := cl.Txn(ctx).If().Then(clientv3.OpPut("x", "")).Else().Commit()
	wantIs(t, err, etcdclaims.ErrPassthrough)
	// Held always holds, on whatever etcd it is used.
	etcd, data := testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	resp, err := etcd.Txn(ctx).If(cl.Guard()...).Then(clientv3.OpPut(data+"x", "")).Commit()
	noErr(t, err)
	if !resp.Succeeded {
		t.Error("Held does not hold")
	}
	noErr(t, cl.Release(ctx))
	noErr(t, cl.Release(ctx))
	wantIs(t, cl.Err(), etcdclaims.ErrReleased)
	wantIs(t, cl.Check(), etcdclaims.ErrReleased)
	wantIs(t, cl.Note(ctx, nil), etcdclaims.ErrReleased)
	wantIs(t, cl.Renew(ctx), etcdclaims.ErrReleased)
	if cl.Remaining() != math.MaxInt64 {
		t.Logf("remaining of a released claim: %v", cl.Remaining())
	}
}

func TestPassthroughWork(t *testing.T) {
	t.Parallel()
	c := newClient(t, nil, etcdclaims.Config{})
	ctx := t.Context()
	ends := map[string]func(*work.Work, ...clientv3.Op) error{
		"Complete": func(w *work.Work, ops ...clientv3.Op) error { return w.Complete(ctx, ops...) },
		"Fail":     func(w *work.Work, ops ...clientv3.Op) error { return failing(ctx, w, errors.New("x"), ops...) },
		"Fail nil": func(w *work.Work, ops ...clientv3.Op) error { return failing(ctx, w, nil, ops...) },
		"Release":  func(w *work.Work, _ ...clientv3.Op) error { return w.Release(ctx) },
	}
	for name, end := range ends {
		for range 2 {
			w := tryBegin(t, c, "k") // again, whatever became of it before
			if r, ok := w.Previous(); ok || w.Attempt() != 1 || w.Fence() != 0 {
				t.Errorf("attempt %d, previous %+v", w.Attempt(), r)
			}
			if name != "Release" {
				wantIs(t, end(w, clientv3.OpPut("x", "")), etcdclaims.ErrPassthrough)
				noErr(t, w.Check())
			}
			noErr(t, end(w))
			wantIs(t, w.Err(), etcdclaims.ErrReleased)
		}
	}
}

func TestPassthroughLocks(t *testing.T) {
	t.Parallel()
	c := newClient(t, nil, etcdclaims.Config{})
	ctx, k := t.Context(), locks.New(c)
	for range 2 {
		for _, owner := range []string{"me", "you"} {
			if fence, ok, err := k.TryAcquire(ctx, "k", owner, time.Minute); fence != 0 || !ok || err != nil {
				t.Errorf("%d, %v, %v", fence, ok, err)
			}
			if fence, ok, err := k.Renew(ctx, "k", owner, time.Minute); fence != 0 || !ok || err != nil {
				t.Errorf("%d, %v, %v", fence, ok, err)
			}
			if ok, err := k.Release(ctx, "k", owner); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
		}
	}
	if ok, err := k.IsLocked(ctx, "k"); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	if owner, ok, err := k.Owner(ctx, "k"); owner != "" || ok || err != nil {
		t.Errorf("%q, %v, %v", owner, ok, err)
	}
	if n, err := k.ReleaseAll(ctx, "me"); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, _, err := k.TryAcquire(ctx, "", "me", time.Minute)
	wantIs(t, err, etcdclaims.ErrInvalidKey)
	if _, ok, err := k.TryAcquire(ctx, "k", "", time.Minute); ok || err == nil {
		t.Error("an owner without a name was taken")
	}
	if _, ok, err := k.Renew(ctx, "k", "me", 0); ok || err == nil {
		t.Error("no TTL was taken")
	}
}
