package etcdguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func newClient(t *testing.T, etcd *clientv3.Client, prefix string) *etcdclaims.Client {
	t.Helper()
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func claim(t *testing.T, c *etcdclaims.Client, key string) *etcdclaims.Claim {
	t.Helper()
	cl, err := c.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// calls is everything that can be asked of a KV, on keys under at. The keys that
// are there before are 1 to 3.
func calls(at string) map[string]func(ctx context.Context, kv clientv3.KV) (any, error) {
	put := func(key, value string) clientv3.Op { return clientv3.OpPut(at+key, value) }
	is := func(key, value string) clientv3.Cmp { return clientv3.Compare(clientv3.Value(at+key), "=", value) }
	get := func(key string) clientv3.Op { return clientv3.OpGet(at + key) }
	do := func(op clientv3.Op) func(context.Context, clientv3.KV) (any, error) {
		return func(ctx context.Context, kv clientv3.KV) (any, error) {
			r, err := kv.Do(ctx, op)
			switch {
			case r.Put() != nil:
				return r.Put(), err
			case r.Del() != nil:
				return r.Del(), err
			case r.Get() != nil:
				return r.Get(), err
			}
			return r.Txn(), err
		}
	}
	inner := clientv3.OpTxn([]clientv3.Cmp{is("2", "no")}, []clientv3.Op{put("x", "1")}, []clientv3.Op{put("x", "2"), get("2")})
	return map[string]func(ctx context.Context, kv clientv3.KV) (any, error){
		"put": func(ctx context.Context, kv clientv3.KV) (any, error) { return kv.Put(ctx, at+"new", "v") },
		"put over": func(ctx context.Context, kv clientv3.KV) (any, error) {
			return kv.Put(ctx, at+"1", "v", clientv3.WithPrevKV())
		},
		"delete": func(ctx context.Context, kv clientv3.KV) (any, error) {
			return kv.Delete(ctx, at+"1", clientv3.WithPrevKV())
		},
		"delete none": func(ctx context.Context, kv clientv3.KV) (any, error) { return kv.Delete(ctx, at+"none") },
		"delete all": func(ctx context.Context, kv clientv3.KV) (any, error) {
			return kv.Delete(ctx, at, clientv3.WithPrefix())
		},
		"do put":      do(clientv3.OpPut(at+"1", "v", clientv3.WithPrevKV())),
		"do delete":   do(clientv3.OpDelete(at+"1", clientv3.WithRange(at+"3"))),
		"do txn":      do(clientv3.OpTxn([]clientv3.Cmp{is("1", "one")}, []clientv3.Op{put("x", "1")}, nil)),
		"do txn else": do(clientv3.OpTxn([]clientv3.Cmp{is("1", "two")}, []clientv3.Op{put("x", "1")}, []clientv3.Op{put("y", "1"), get("1")})),
		"txn": func(ctx context.Context, kv clientv3.KV) (any, error) {
			return kv.Txn(ctx).Then(put("x", "1"), get("x"), put("y", "2")).Commit()
		},
		"txn if": func(ctx context.Context, kv clientv3.KV) (any, error) {
			return kv.Txn(ctx).If(is("1", "one"), is("2", "two")).Then(put("x", "1"), get("x")).Else(put("y", "")).Commit()
		},
		"txn else": func(ctx context.Context, kv clientv3.KV) (any, error) {
			return kv.Txn(ctx).If(is("1", "no")).Then(put("x", "1")).Else(put("y", "1"), get("1")).Commit()
		},
		"txn that fails": func(ctx context.Context, kv clientv3.KV) (any, error) {
			return kv.Txn(ctx).If(is("1", "no")).Then(put("x", "1")).Commit()
		},
		"writes in the else alone": func(ctx context.Context, kv clientv3.KV) (any, error) {
			return kv.Txn(ctx).If(is("1", "no")).Then(get("1")).Else(put("y", "1")).Commit()
		},
		"nested": func(ctx context.Context, kv clientv3.KV) (any, error) {
			return kv.Txn(ctx).If(is("1", "one")).Then(inner, put("y", "")).Commit()
		},
		"nested in the else": func(ctx context.Context, kv clientv3.KV) (any, error) {
			return kv.Txn(ctx).If(is("1", "no")).Then(put("y", "")).Else(get("3"), inner).Commit()
		},
		"nested alone": func(ctx context.Context, kv clientv3.KV) (any, error) { return kv.Txn(ctx).Then(inner).Commit() },
		"twenty keys": func(ctx context.Context, kv clientv3.KV) (any, error) {
			ops := make([]clientv3.Op, 20)
			for i := range ops {
				ops[i] = put(fmt.Sprint("many/", i), "v")
			}
			return kv.Txn(ctx).Then(ops...).Commit()
		},
	}
}

var dated = regexp.MustCompile(`"(cluster_id|member_id|raft_term|[a-z_]*revision)":\d+,?|"key":"[^"]*",?`)

// said is what a response tells, but for what differs from one request to the
// next.
func said(t *testing.T, v any, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return dated.ReplaceAllString(string(text), "")
}

// all is every key and value under a prefix.
func all(t *testing.T, etcd *clientv3.Client, at string) string {
	t.Helper()
	resp, err := etcd.Get(t.Context(), at, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, kv := range resp.Kvs {
		fmt.Fprintf(&b, "%s=%s ", strings.TrimPrefix(string(kv.Key), at), kv.Value)
	}
	return b.String()
}

func revision(t *testing.T, etcd *clientv3.Client) int64 {
	t.Helper()
	resp, err := etcd.Get(t.Context(), "none")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// While the claim is held a guarded KV answers just as a plain one does, at one
// request each. Once it is not, no call changes anything, and each says stale.
func TestKVIsAKV(t *testing.T) {
	t.Parallel()
	server := testetcd.Start(t)
	etcd := server.Client(t)
	prefix := "/claims/"
	a, b := newClient(t, etcd, prefix), newClient(t, etcd, prefix)
	held, again := claim(t, a, "k"), claim(t, a, "released")
	holders := map[string]etcdguard.Holder{
		"claim":  held,
		"bearer": etcdguard.Bearer(prefix, held.Token()),
	}
	seed := func(at string) {
		t.Helper()
		for i, v := range []string{"one", "two", "three"} {
			if _, err := etcd.Put(t.Context(), fmt.Sprint(at, i+1), v); err != nil {
				t.Fatal(err)
			}
		}
	}
	var names []string
	for name := range calls("") {
		names = append(names, name)
	}
	for kind, holder := range holders {
		kv := etcdguard.NewKV(etcd, holder)
		for _, name := range names {
			at := testetcd.Prefix(t)
			plain, guarded := at+"plain/", at+"guarded/"
			seed(plain)
			seed(guarded)
			v, err := calls(plain)[name](t.Context(), etcd)
			want := said(t, v, err)
			before := revision(t, etcd)
			v, err = calls(guarded)[name](t.Context(), kv)
			if got := said(t, v, err); got != want {
				t.Errorf("%s, %s: got\n%s, want\n%s", kind, name, got, want)
			}
			if n := revision(t, etcd) - before; n > 1 {
				t.Errorf("%s, %s: %d revisions", kind, name, n)
			}
			if got, want := all(t, etcd, guarded), all(t, etcd, plain); got != want {
				t.Errorf("%s, %s: got %s, want %s", kind, name, got, want)
			}
			if header := reflect.ValueOf(v).Elem().FieldByName("Header").Interface().(*pb.ResponseHeader); header == nil || header.Revision == 0 {
				t.Errorf("%s, %s: its header is %v", kind, name, header)
			}
		}
	}

	if err := again.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	released := etcdguard.Bearer(prefix, again.Token())
	if err := admin.ForceRelease(t.Context(), b, "k", "test"); err != nil {
		t.Fatal(err)
	}
	newer := claim(t, b, "k")
	<-held.Done()
	for kind, holder := range map[string]etcdguard.Holder{"claim": held, "bearer": holders["bearer"], "released": released} {
		kv := etcdguard.NewKV(etcd, holder)
		for _, name := range names {
			at := testetcd.Prefix(t)
			seed(at)
			before := revision(t, etcd)
			v, err := calls(at)[name](t.Context(), kv)
			if !reflect.ValueOf(v).IsNil() || err == nil || errors.Is(err, fencing.ErrUnknown) {
				t.Errorf("%s, %s: %v, %v", kind, name, v, err)
			}
			if knows := kind == "claim"; !errors.Is(err, fencing.ErrStale) || errors.Is(err, etcdclaims.ErrLost) != knows {
				t.Errorf("%s, %s: %v", kind, name, err)
			}
			var stale *fencing.StaleError
			if newest := map[string]int64{"bearer": newer.Fence()}[kind]; errors.As(err, &stale) && (stale.Newest != newest || stale.Token != holder.Token()) {
				t.Errorf("%s, %s: %+v, want the newest %d", kind, name, stale, newest)
			}
			if now := revision(t, etcd); now != before {
				t.Errorf("%s, %s: changed something", kind, name)
			}
		}
		// Reads pass whatever became of the claim.
		at := testetcd.Prefix(t)
		seed(at)
		got, err := kv.Get(t.Context(), at+"1")
		if err != nil || string(got.Kvs[0].Value) != "one" {
			t.Errorf("%s: reading: %v, %v", kind, got, err)
		}
		r, err := kv.Do(t.Context(), clientv3.OpGet(at, clientv3.WithPrefix()))
		if err != nil || r.Get().Count != 3 {
			t.Errorf("%s: reading: %v, %v", kind, r, err)
		}
		txn, err := kv.Txn(t.Context()).If(clientv3.Compare(clientv3.Value(at+"1"), "=", "one")).Then(clientv3.OpGet(at+"2"), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet(at + "3")}, nil)).Commit()
		if err != nil || !txn.Succeeded || len(txn.Responses) != 2 {
			t.Errorf("%s: reading: %v, %v", kind, txn, err)
		}
	}
}

// A claim that etcd says is gone knows it at once, not with its next renewal.
func TestClaimLearnsFromARefusal(t *testing.T) {
	t.Parallel()
	etcd, prefix := testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	held := claim(t, newClient(t, etcd, prefix), "k")
	if _, err := etcd.Delete(t.Context(), prefix+"own/k"); err != nil {
		t.Fatal(err)
	}
	_, err := etcdguard.NewKV(etcd, held).Put(t.Context(), testetcd.Prefix(t)+"x", "v")
	if !errors.Is(err, fencing.ErrStale) || !errors.Is(err, etcdclaims.ErrLost) || !errors.Is(held.Err(), etcdclaims.ErrLost) {
		t.Errorf("%v, and the claim says %v", err, held.Err())
	}
}

func TestRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	etcd, prefix := testetcd.Start(t).Client(t), "/claims/"
	held := claim(t, newClient(t, etcd, prefix), "k")
	other, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	put := func(key string) func(clientv3.KV) error {
		return func(kv clientv3.KV) error { _, err := kv.Put(t.Context(), key, "v"); return err }
	}
	before := revision(t, etcd)
	for name, tt := range map[string]struct {
		holder etcdguard.Holder
		call   func(clientv3.KV) error
		want   error
		says   string
	}{
		"compaction":  {held, func(kv clientv3.KV) error { _, err := kv.Compact(t.Context(), 1); return err }, etcdguard.ErrNotGuarded, "Compact is not"},
		"its own key": {held, put(prefix + "own/k"), etcdguard.ErrNotGuarded, "keys of the claims"},
		"another's":   {etcdguard.Bearer(prefix, held.Token()), put(prefix + "own/j"), etcdguard.ErrNotGuarded, "keys of the claims"},
		"a range over them": {held, func(kv clientv3.KV) error {
			_, err := kv.Delete(t.Context(), "/a", clientv3.WithRange("/d"))
			return err
		}, etcdguard.ErrNotGuarded, "keys of the claims"},
		"all from a key on": {held, func(kv clientv3.KV) error {
			_, err := kv.Delete(t.Context(), "/a", clientv3.WithFromKey())
			return err
		}, etcdguard.ErrNotGuarded, "keys of the claims"},
		"nested": {held, func(kv clientv3.KV) error {
			_, err := kv.Txn(t.Context()).Else(clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpDelete(prefix + "epoch")})).Commit()
			return err
		}, etcdguard.ErrNotGuarded, "keys of the claims"},
		"empty key":       {held, put(""), rpctypes.ErrEmptyKey, "a key is empty"},
		"no token":        {etcdguard.Bearer(prefix, fencing.Token{Key: "k"}), put("x"), fencing.ErrNoToken, "fence 0"},
		"malformed token": {etcdguard.Bearer(prefix, fencing.Token{Key: "k", Fence: -1}), put("x"), fencing.ErrMalformed, "fence -1"},
		"no revision":     {etcdguard.Bearer(prefix, fencing.Token{Key: "free", Fence: 1 << 47}), put("x"), fencing.ErrMalformed, "no claim has fence"},
		"no operation": {held, func(kv clientv3.KV) error {
			_, err := kv.Txn(t.Context()).Then(clientv3.OpPut("x", ""), clientv3.Op{}).Commit()
			return err
		}, nil, "is not an operation"},
		"prefix":      {etcdguard.Bearer("/claims", held.Token()), put("x"), nil, "slash"},
		"passthrough": {claim(t, other, "k"), put("x"), fencing.ErrNoToken, "without etcd"},
		"nonsense":    {nonsense{}, put("x"), nil, "do not compare the claim"},
		"caller gone": {held, func(kv clientv3.KV) error {
			_, err := kv.Put(gone, "x", "v")
			if !errors.Is(err, context.Canceled) || errors.Is(err, fencing.ErrUnknown) {
				t.Errorf("caller gone: %v", err)
			}
			return err
		}, why, "why"},
	} {
		err := tt.call(etcdguard.NewKV(etcd, tt.holder))
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, tt.want, tt.says)
		}
	}
	if now := revision(t, etcd); now != before {
		t.Error("something was changed")
	}
	// Beside the claims everything may be written.
	for _, key := range []string{"/claim", "/claims0", "/", "/claims"} {
		if err := put(key)(etcdguard.NewKV(etcd, held)); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	if _, err := etcdguard.NewKV(etcd, held).Delete(t.Context(), "/claims0", clientv3.WithFromKey()); err != nil {
		t.Error(err)
	}
	for name, f := range map[string]func(){
		"no KV":           func() { etcdguard.NewKV(nil, held) },
		"no holder":       func() { etcdguard.NewKV(etcd, nil) },
		"no KV of a gate": func() { etcdguard.NewGate(nil, "") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

type nonsense struct{}

func (nonsense) Token() fencing.Token  { return fencing.Token{Key: "k", Fence: 1} }
func (nonsense) Guard() []clientv3.Cmp { return nil }

// What etcd refuses is neither stale nor unknown, and changes nothing.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	etcd, prefix := testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	held := claim(t, newClient(t, etcd, prefix), "k")
	kv, at := etcdguard.NewKV(etcd, held), testetcd.Prefix(t)
	many := make([]clientv3.Op, 129)
	for i := range many {
		many[i] = clientv3.OpPut(fmt.Sprint(at, i), "v")
	}
	for name, call := range map[string]func() error{
		"too large":      func() error { _, err := kv.Put(t.Context(), at+"x", strings.Repeat("v", 2<<20)); return err },
		"too many":       func() error { _, err := kv.Txn(t.Context()).Then(many...).Commit(); return err },
		"one key twice":  func() error { _, err := kv.Txn(t.Context()).Then(many[0], many[0]).Commit(); return err },
		"no such lease":  func() error { _, err := kv.Put(t.Context(), at+"x", "v", clientv3.WithLease(12345)); return err },
		"value and none": func() error { _, err := kv.Put(t.Context(), at+"x", "v", clientv3.WithIgnoreValue()); return err },
	} {
		err := call()
		if err == nil || errors.Is(err, fencing.ErrStale) || errors.Is(err, fencing.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := all(t, etcd, at); got != "" {
		t.Errorf("there is %s", got)
	}
	if err := held.Check(); err != nil {
		t.Error(err)
	}
}

// Two claims guard one write: what the one within says is what it is.
func TestTwoGuards(t *testing.T) {
	t.Parallel()
	etcd, prefix := testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	claims, at := newClient(t, etcd, prefix), testetcd.Prefix(t)
	a, b := claim(t, claims, "a"), claim(t, claims, "b")
	kv := etcdguard.NewKV(etcdguard.NewKV(etcd, etcdguard.Bearer(prefix, a.Token())), b)
	if _, err := kv.Put(t.Context(), at+"x", "both"); err != nil {
		t.Error(err)
	}
	if err := a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := kv.Put(t.Context(), at+"x", "one")
	var stale *fencing.StaleError
	if !errors.As(err, &stale) || stale.Token != a.Token() || errors.Is(err, fencing.ErrUnknown) {
		t.Errorf("%v", err)
	}
	if _, err := kv.Delete(t.Context(), prefix+"own/b"); !errors.Is(err, etcdguard.ErrNotGuarded) || errors.Is(err, fencing.ErrUnknown) {
		t.Errorf("%v", err)
	}
	if got := all(t, etcd, at); got != "x=both " {
		t.Errorf("there is %s", got)
	}
}
