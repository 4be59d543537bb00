package etcdclaims_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestClaimTxn(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, etcdclaims.Config{})
	data := testetcd.Prefix(t)
	cl := tryClaim(t, a, "k")

	before := a.Stats().Requests
	resp, err := cl.Txn(ctx).Then(clientv3.OpPut(data+"x", "1"), clientv3.OpGet(data+"x")).Commit()
	noErr(t, err)
	if !resp.Succeeded || len(resp.Responses) != 2 || resp.Header == nil || resp.Header.Revision <= cl.Fence() {
		t.Errorf("%+v", resp)
	}
	if kvs := resp.Responses[1].GetResponseRange().Kvs; len(kvs) != 1 || string(kvs[0].Value) != "1" {
		t.Errorf("read %v", kvs)
	}
	if n := a.Stats().Requests - before; n != 1 {
		t.Errorf("%d requests", n)
	}
	is := func(value string) clientv3.Cmp { return clientv3.Compare(clientv3.Value(data+"x"), "=", value) }

	// Succeeded speaks of the caller's own If, both ways.
	resp, err = cl.Txn(ctx).If(is("1")).Then(clientv3.OpPut(data+"x", "2")).Else(clientv3.OpPut(data+"else", "")).Commit()
	noErr(t, err)
	if !resp.Succeeded || len(resp.Responses) != 1 || resp.Header == nil || resp.Header.Revision == 0 {
		t.Errorf("%+v", resp)
	}
	resp, err = cl.Txn(ctx).If(is("1")).Then(clientv3.OpPut(data+"x", "3")).Else(clientv3.OpGet(data+"x"), clientv3.OpPut(data+"else", "")).Commit()
	noErr(t, err)
	if resp.Succeeded || len(resp.Responses) != 2 || string(resp.Responses[0].GetResponseRange().Kvs[0].Value) != "2" {
		t.Errorf("%+v", resp)
	}
	if rawKV(t, etcd, data+"else") == nil {
		t.Error("Else was not carried out")
	}
	noErr(t, cl.Check())

	// A failed If without an Else is no loss.
	resp, err = cl.Txn(ctx).If(is("1")).Then(clientv3.OpPut(data+"x", "4")).Commit()
	noErr(t, err)
	if resp.Succeeded {
		t.Errorf("%+v", resp)
	}
	noErr(t, cl.Check())

	// Nested, and built up in parts.
	nested := clientv3.OpTxn([]clientv3.Cmp{is("2")}, []clientv3.Op{clientv3.OpPut(data+"x", "5")}, []clientv3.Op{clientv3.OpPut(data+"x", "6")})
	resp, err = cl.Txn(ctx).If(is("2")).If(clientv3.Compare(clientv3.CreateRevision(data+"else"), ">", 0)).
		Then(nested).Then(clientv3.OpGet(data + "x")).Commit()
	noErr(t, err)
	if !resp.Succeeded || len(resp.Responses) != 2 || !resp.Responses[0].GetResponseTxn().Succeeded || string(resp.Responses[1].GetResponseRange().Kvs[0].Value) != "5" {
		t.Errorf("%+v", resp)
	}
	// Nothing but the question whether the claim is owned.
	resp, err = cl.Txn(ctx).Commit()
	noErr(t, err)
	if !resp.Succeeded || len(resp.Responses) != 0 {
		t.Errorf("%+v", resp)
	}
	// What etcd refuses is no loss either.
	if _, err = cl.Txn(ctx).Then(clientv3.OpPut(data+"x", "7"), clientv3.OpPut(data+"x", "8")).Commit(); err == nil || errors.Is(err, etcdclaims.ErrLost) || errors.Is(err, etcdclaims.ErrUnknown) {
		t.Errorf("duplicate keys: %v", err)
	}
	noErr(t, cl.Check())
	noErr(t, cl.Release(ctx))
	_, err = cl.Txn(ctx).Then(clientv3.OpPut(data+"x", "9")).Commit()
	wantIs(t, err, etcdclaims.ErrReleased)
	if kv := rawKV(t, etcd, data+"x"); string(kv.Value) != "5" {
		t.Errorf("x is %s", kv.Value)
	}
}

func TestClaimTxnLost(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	data := testetcd.Prefix(t)
	for name, lose := range map[string]func(t *testing.T, b *etcdclaims.Client, prefix string) etcdclaims.Reason{
		"deleted": func(t *testing.T, _ *etcdclaims.Client, prefix string) etcdclaims.Reason {
			_, err := etcd.Delete(ctx, prefix+"own/k")
			noErr(t, err)
			return etcdclaims.ReasonDeleted
		},
		"taken by another": func(t *testing.T, b *etcdclaims.Client, prefix string) etcdclaims.Reason {
			_, err := etcd.Delete(ctx, prefix+"own/k")
			noErr(t, err)
			tryClaim(t, b, "k")
			return etcdclaims.ReasonSuperseded
		},
		"rewritten": func(t *testing.T, b *etcdclaims.Client, prefix string) etcdclaims.Reason {
			_, err := etcd.Put(ctx, prefix+"own/k", "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())
			noErr(t, err)
			return etcdclaims.ReasonSuperseded
		},
		"epoch raised": func(t *testing.T, b *etcdclaims.Client, prefix string) etcdclaims.Reason {
			_, err := etcd.Put(ctx, prefix+"epoch", "1")
			noErr(t, err)
			return etcdclaims.ReasonSuperseded
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
			for _, conditional := range []bool{false, true} {
				if conditional {
					a, b, prefix = twoOwners(t, etcd, etcdclaims.Config{})
				}
				cl := tryClaim(t, a, "k")
				other := tryClaim(t, a, "other")
				reason := lose(t, b, prefix)
				txn := cl.Txn(ctx)
				if conditional {
					txn = txn.If(clientv3.Compare(clientv3.CreateRevision(data+"never"), ">", 0)).Else(clientv3.OpPut(data+"else", ""))
				}
				_, err := txn.Then(clientv3.OpPut(data+"then", "")).Commit()
				wantIs(t, err, etcdclaims.ErrLost)
				var l *etcdclaims.LostError
				if !errors.As(err, &l) || l.Reason != reason || l.Token != cl.Token() {
					t.Errorf("lost as %v, want %v", err, reason)
				}
				wantIs(t, cl.Check(), etcdclaims.ErrLost)
				wantIs(t, cl.Context().Err(), cl.Context().Err())
				if cl.Context().Err() == nil {
					t.Error("the context goes on")
				}
				if name != "epoch raised" {
					noErr(t, other.Check())
				}
			}
			if rawKV(t, etcd, data+"then") != nil || rawKV(t, etcd, data+"else") != nil {
				t.Error("something was carried out")
			}
		})
	}
}

func TestClaimTxnRefused(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	data := testetcd.Prefix(t)
	cl := tryClaim(t, a, "k")
	before := a.Stats().Requests
	outer := strings.TrimSuffix(prefix, "/")
	for name, op := range map[string]clientv3.Op{
		"own claim":          clientv3.OpDelete(prefix + "own/k"),
		"own note":           clientv3.OpPut(prefix+"note/k", ""),
		"epoch":              clientv3.OpPut(prefix+"epoch", "9"),
		"anything under it":  clientv3.OpPut(prefix+"x", ""),
		"the prefix itself":  clientv3.OpPut(prefix, ""),
		"with prefix":        clientv3.OpDelete(outer, clientv3.WithPrefix()),
		"everything":         clientv3.OpDelete("", clientv3.WithPrefix()),
		"from key":           clientv3.OpDelete("/", clientv3.WithFromKey()),
		"range over it":      clientv3.OpDelete("/", clientv3.WithRange("0")),
		"range that ends in": clientv3.OpDelete("/", clientv3.WithRange(prefix+"own/a")),
		"range that begins":  clientv3.OpDelete(prefix+"z", clientv3.WithRange("0")),
		"nested":             clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(prefix+"own/k", "")}, nil)}),
		"empty key":          clientv3.OpGet(""),
	} {
		t.Run(name, func(t *testing.T) {
			for where, txn := range map[string]clientv3.Txn{
				"Then": cl.Txn(ctx).Then(op),
				"Else": cl.Txn(ctx).If(clientv3.Compare(clientv3.Version(data+"x"), ">", 0)).Else(clientv3.OpGet(data+"x"), op),
			} {
				if _, err := txn.Commit(); err == nil {
					t.Errorf("%s was taken", where)
				}
			}
			noErr(t, cl.Check())
		})
	}
	if n := a.Stats().Requests - before; n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	// Reading them is free, and so is what only looks similar.
	for name, op := range map[string]clientv3.Op{
		"reading":         clientv3.OpGet(prefix+"own/", clientv3.WithPrefix()),
		"range up to it":  clientv3.OpDelete(outer, clientv3.WithRange(prefix)),
		"range after it":  clientv3.OpDelete(outer+"0", clientv3.WithRange(outer+"1")),
		"shorter by one":  clientv3.OpPut(outer, ""),
		"another of ours": clientv3.OpPut(data+"own/k", ""),
	} {
		if _, err := cl.Txn(ctx).Then(op).Commit(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := etcd.Delete(ctx, outer)
	noErr(t, err)
	if ok, err := cl.Owns(ctx); !ok || err != nil {
		t.Errorf("Owns: %v, %v", ok, err)
	}
}

func TestClaimHeld(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	data := testetcd.Prefix(t)
	cl := tryClaim(t, a, "k")
	write := func(value string) bool {
		resp, err := etcd.Txn(ctx).If(cl.Guard()...).Then(clientv3.OpPut(data+"x", value)).Commit()
		noErr(t, err)
		return resp.Succeeded
	}
	if !write("1") {
		t.Error("refused while held")
	}
	noErr(t, cl.Note(ctx, []byte("note")))
	noErr(t, cl.Renew(ctx))
	if !write("2") {
		t.Error("refused after note and renewal")
	}
	vanish(t, etcd, b, "k")
	if write("3") {
		t.Error("accepted after the loss")
	}
	tryClaim(t, b, "k")
	if write("4") {
		t.Error("accepted under another owner")
	}
	if kv := rawKV(t, etcd, data+"x"); string(kv.Value) != "2" {
		t.Errorf("x is %s", kv.Value)
	}
}

func TestOwns(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	cl := tryClaim(t, a, "k")
	owns := func(key string, fence int64) bool {
		t.Helper()
		ok, err := b.Owns(ctx, tokenFor(key, fence))
		noErr(t, err)
		return ok
	}
	if !owns("k", cl.Fence()) {
		t.Error("the owner does not own")
	}
	for _, fence := range []int64{0, -1, 1, cl.Fence() - 1, cl.Fence() + 1, cl.Fence() + 1<<47, 1<<63 - 1} {
		if owns("k", fence) {
			t.Errorf("fence %d owns, the owner's is %d", fence, cl.Fence())
		}
	}
	if owns("other", cl.Fence()) {
		t.Error("another key is owned")
	}
	if ok, err := cl.Owns(ctx); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	vanish(t, etcd, b, "k")
	if owns("k", cl.Fence()) {
		t.Error("owned after the loss")
	}
	if ok, err := cl.Owns(ctx); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	wantIs(t, cl.Err(), etcdclaims.ErrLost)
	released := tryClaim(t, a, "k2")
	noErr(t, released.Release(ctx))
	if ok, err := released.Owns(ctx); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}
