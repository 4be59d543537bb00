package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestTryAcquireEach(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 127, 128, 300, 1000} {
		virtualCase(t, fmt.Sprint(n), func(t *testing.T, w *world) {
			a, b := w.peer(), w.peer()
			noErr(t, tryClaim(t, a, "warm").Release(t.Context()))
			before := a.Stats()
			keys := numbered("%d", n)
			claims := claimMany(t, a, keys)
			if len(claims) != n {
				t.Fatalf("%d claims", len(claims))
			}
			requests := a.Stats().Requests - before.Requests
			if most := int64(n)/100 + 1; requests > most {
				t.Errorf("%d requests for %d keys, want at most %d", requests, n, most)
			}
			for i, cl := range claims {
				if cl.Key() != keys[i] || cl.Check() != nil || cl.Fence() <= 0 {
					t.Fatalf("place %d: %q, %v", i, cl.Key(), cl.Check())
				}
			}
			if n > 0 {
				if i := lookUp(t, b, keys[n-1]); i.Fence != claims[n-1].Fence() || i.Claim != claims[n-1].ID() {
					t.Errorf("%+v", i)
				}
			}
			if s := a.Stats(); s.Held != n || s.Acquired-before.Acquired != int64(n) || s.Attempts-before.Attempts != int64(n) || s.Sessions != 1 {
				t.Errorf("stats %+v", s)
			}
			// Another finds all of them held, and they are given up one by one.
			got, errs := b.TryAcquireEach(t.Context(), keys)
			for i := range keys {
				if got[i] != nil || !errors.Is(errs[i], etcdclaims.ErrHeld) {
					t.Fatalf("place %d: %v, %v", i, got[i], errs[i])
				}
			}
			if s := b.Stats(); s.Contended != int64(n) || s.Held != 0 {
				t.Errorf("stats %+v", s)
			}
			if n > 2 {
				noErr(t, claims[1].Release(t.Context()))
				tryClaim(t, b, keys[1])
				noErr(t, claims[0].Check())
			}
			released, err := a.ReleaseAll(t.Context())
			if want := max(n-1, 0); n > 2 && (released != want || err != nil) {
				t.Errorf("released %d, %v", released, err)
			}
		})
	}
}

func TestTryAcquireEachMixed(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	tryClaim(t, b, "held")
	tryClaim(t, a, "mine")
	testclaims.Locked(t, locks.New(b), "locked", "me", time.Minute, true)
	var keys []string
	var want []error
	add := func(key string, err error) { keys, want = append(keys, key), append(want, err) }
	for i := range 100 {
		add(fmt.Sprint("free/", i), nil)
		add(fmt.Sprint("free/", i), etcdclaims.ErrInvalidKey) // repeated
	}
	for _, key := range []string{"", "a\nb", "\xff"} {
		add(key, etcdclaims.ErrInvalidKey)
	}
	add("held", etcdclaims.ErrHeld)
	add("free too", nil)
	add("mine", etcdclaims.ErrHeld)
	add("locked", etcdclaims.ErrHeld)
	add("held", etcdclaims.ErrInvalidKey)
	add("last", nil)
	claims, errs := a.TryAcquireEach(ctx, keys, etcdclaims.Note([]byte("batch")))
	for i, key := range keys {
		switch {
		case want[i] == nil && (errs[i] != nil || claims[i] == nil || claims[i].Key() != key):
			t.Errorf("place %d, %q: %v, %v", i, key, claims[i], errs[i])
		case want[i] != nil && (!errors.Is(errs[i], want[i]) || claims[i] != nil):
			t.Errorf("place %d, %q: %v, %v", i, key, claims[i], errs[i])
		}
		var held *etcdclaims.HeldError
		if errors.As(errs[i], &held) && held.Info.Key != key {
			t.Errorf("place %d, %q: the error is of %q", i, key, held.Info.Key)
		}
	}
	if i := lookUp(t, b, "last"); string(i.Note) != "batch" {
		t.Errorf("%+v", i)
	}
	if s := a.Stats(); s.Held != 103 {
		t.Errorf("stats %+v", s)
	}
}

func TestTryAcquireEachBehindWaiters(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	tryClaim(t, a, "k") // so that b waits in line, not behind its own claim
	// A line without an owner, as in the moment between two.
	cl := tryClaim(t, b, "elsewhere")
	lease := lookUp(t, b, "elsewhere").Lease
	_ = cl
	got := make(chan error, 1)
	go func() { _, err := b.Acquire(ctx, "k"); got <- err }()
	eventually(t, "one waits", func() bool { return lookUp(t, a, "k").Waiting == 1 })
	resp, err := etcd.Get(ctx, prefix+"wait/", clientv3.WithPrefix())
	noErr(t, err)
	if len(resp.Kvs) != 1 || resp.Kvs[0].Lease != int64(lease) {
		t.Fatalf("%v", resp.Kvs)
	}
	line := string(resp.Kvs[0].Key)[:len(prefix+"wait/")+33]
	_, err = etcd.Put(ctx, line+"0-somebody", "{}")
	noErr(t, err)
	noErr(t, admin.ForceRelease(ctx, b, "k", ""))
	<-got // it came first
	noErr(t, admin.ForceRelease(ctx, b, "k", ""))
	_, errs := a.TryAcquireEach(ctx, []string{"k", "free"})
	var held *etcdclaims.HeldError
	if !errors.As(errs[0], &held) || held.Info.Held || held.Info.Waiting != 1 || errs[1] != nil {
		t.Errorf("%v", errs)
	}
	_, err = a.TryAcquireAll(ctx, []string{"free 2", "k"})
	if !errors.As(err, &held) || held.Info.Key != "k" || held.Info.Held {
		t.Errorf("%v", err)
	}
}

func TestTryAcquireEachOptions(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, etcdclaims.Config{})
	refused, errs := a.TryAcquireEach(ctx, []string{"k", "l"}, etcdclaims.TTL(time.Second))
	for i := range errs {
		if errs[i] == nil || refused[i] != nil {
			t.Error("a TTL below the bound was accepted")
		}
	}
	if n := a.Stats().Requests; n != 0 {
		t.Errorf("%d requests", n)
	}
	claims := claimMany(t, a, []string{"k", "l"}, etcdclaims.TTL(time.Minute), etcdclaims.MaxHold(time.Hour), etcdclaims.MinHold(time.Second))
	if r := claims[0].Remaining(); r < 50*time.Second {
		t.Errorf("remaining %v", r)
	}
}

func TestTryAcquireEachManyAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx, etcd := t.Context(), server.Etcd(t)
		a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
		keys := numbered("%d", 300)
		type result struct {
			claims []*etcdclaims.Claim
			errs   []error
		}
		results := make(chan result, 6)
		for i := range cap(results) {
			go func() {
				claims, errs := []*etcdclaims.Client{a, b}[i%2].TryAcquireEach(ctx, keys)
				results <- result{claims, errs}
			}()
		}
		owners := make([]int, len(keys))
		for range cap(results) {
			r := <-results
			for i := range keys {
				switch {
				case r.claims[i] != nil:
					owners[i]++
				case !errors.Is(r.errs[i], etcdclaims.ErrHeld):
					t.Errorf("%q: %v", keys[i], r.errs[i])
				}
			}
		}
		for i, n := range owners {
			if n != 1 {
				t.Errorf("%q has %d owners", keys[i], n)
			}
		}
	})
}

func TestFewTxnOps(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	for _, limit := range []uint{12, 16, 20, 64} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			ctx, etcd := t.Context(), testetcd.Start(t, testetcd.NoSync(), testetcd.MaxTxnOps(limit)).Client(t)
			a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
			claims := claimMany(t, a, numbered("%d", 300))
			for i := range 5 {
				cl := tryClaim(t, a, fmt.Sprint("single-", i))
				noErr(t, cl.Note(ctx, []byte("x")))
				noErr(t, cl.Renew(ctx)) // and with it the verification of them all
			}
			noErr(t, tryBegin(t, a, "work").Complete(ctx))
			_, errs := b.TryAcquireEach(ctx, numbered("%d", 300))
			for _, err := range errs {
				wantIs(t, err, etcdclaims.ErrHeld)
			}
			for _, cl := range claims {
				noErr(t, cl.Check())
			}
			n, err := a.ReleaseAll(ctx)
			if n != 305 || err != nil {
				t.Errorf("released %d, %v", n, err)
			}
			tryClaim(t, b, "0")
		})
	}
}

// However many ask at once, and share round trips: each gets its key, and the
// client does not unlearn what etcd can take.
func TestManyAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	noErr(t, tryClaim(t, a, "warm").Release(ctx))
	data := testetcd.Prefix(t)
	const n = 300
	for name, acquire := range map[string]func(key string) (*etcdclaims.Claim, error){
		"TryAcquire": func(key string) (*etcdclaims.Claim, error) { return a.TryAcquire(ctx, key) },
		"Acquire":    func(key string) (*etcdclaims.Claim, error) { return a.Acquire(ctx, key) },
		"TryBegin":   func(key string) (*etcdclaims.Claim, error) { return claimOf(works(a).TryBegin(ctx, key)) },
		"Begin":      func(key string) (*etcdclaims.Claim, error) { return claimOf(works(a).Begin(ctx, key)) },
	} {
		for round := range 3 {
			before := a.Stats().Requests
			claims := make(chan *etcdclaims.Claim, n)
			for i := range n {
				go func() {
					cl, err := acquire(fmt.Sprint(name, round, "/", i))
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					claims <- cl
				}()
			}
			for range n {
				cl := <-claims
				if cl == nil {
					continue
				}
				if ok, err := b.Owns(ctx, cl.Token()); !ok || err != nil {
					t.Errorf("%s %q: %v, %v", name, cl.Key(), ok, err)
				}
			}
			t.Logf("%s: %d requests for %d keys", name, a.Stats().Requests-before, n)
		}
	}
	// A transaction as wide as documented still goes.
	var ops []clientv3.Op
	for i := range 100 {
		ops = append(ops, clientv3.OpPut(fmt.Sprint(data, i), ""))
	}
	_, err := tryClaim(t, a, "wide").Txn(ctx).Then(ops...).Commit()
	noErr(t, err)
	if _, err := a.TryAcquireAll(ctx, numbered("all/%d", 58)); err != nil {
		t.Error(err)
	}
}

// Where round trips are long, many ride in each: as many as etcd allows, and
// not more, which would teach the client a lower limit than there is.
func TestManyAtOnceFarAway(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"TryAcquire", "Acquire", "TryBegin", "Begin"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, server *claimtest.Server) {
				ctx, host := t.Context(), server.Host(t)
				host.Inject(claimtest.Fault{Times: -1, DelayRequest: 100 * time.Millisecond})
				a, _, _ := twoOwners(t, host.Etcd(t), etcdclaims.Config{})
				acquire := map[string]func(key string) (*etcdclaims.Claim, error){
					"TryAcquire": func(key string) (*etcdclaims.Claim, error) { return a.TryAcquire(ctx, key) },
					"Acquire":    func(key string) (*etcdclaims.Claim, error) { return a.Acquire(ctx, key) },
					"TryBegin":   func(key string) (*etcdclaims.Claim, error) { return claimOf(works(a).TryBegin(ctx, key)) },
					"Begin":      func(key string) (*etcdclaims.Claim, error) { return claimOf(works(a).Begin(ctx, key)) },
				}[name]
				noErr(t, tryClaim(t, a, "warm").Release(ctx))
				const n = 500
				before := a.Stats().Requests
				errs := make(chan error, n)
				for i := range n {
					go func() {
						_, err := acquire(fmt.Sprint(i))
						errs <- err
					}()
				}
				for range n {
					noErr(t, <-errs)
				}
				if requests := a.Stats().Requests - before; requests > 12 {
					t.Errorf("%d requests for %d keys", requests, n)
				}
				var ops []clientv3.Op
				for i := range 110 {
					ops = append(ops, clientv3.OpPut(fmt.Sprint("/wide/", i), ""))
				}
				_, err := tryClaim(t, a, "wide").Txn(ctx).Then(ops...).Commit()
				noErr(t, err)
				released, err := a.ReleaseAll(ctx)
				if released != n+1 || err != nil {
					t.Errorf("released %d, %v", released, err)
				}
			})
		})
	}
}

func claimOf(w *work.Work, err error) (*etcdclaims.Claim, error) {
	if err != nil {
		return nil, err
	}
	return w.Claim, nil
}

// Conditions and operations of callers keep their meaning when many come at
// once, on different keys.
func TestConditionsOfManyAtOnce(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, etcdclaims.Config{})
	data := testetcd.Prefix(t)
	absent := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(data+key), "=", 0) }
	for round := range 10 {
		// Each of a pair refuses if the other has written: one can win.
		x, y := fmt.Sprint(round, "/x"), fmt.Sprint(round, "/y")
		const n = 40
		errs := make(chan error, n)
		for i := range n {
			see, put := x, y
			if i%2 == 0 {
				see, put = y, x
			}
			go func() {
				_, err := a.TryAcquire(ctx, fmt.Sprint(round, "/", i), etcdclaims.If(absent(see)), etcdclaims.Then(clientv3.OpPut(data+put, "")))
				errs <- err
			}()
		}
		for range n {
			if err := <-errs; err != nil {
				wantIs(t, err, etcdclaims.ErrRefused)
			}
		}
		if rawKV(t, etcd, data+x) != nil && rawKV(t, etcd, data+y) != nil {
			t.Error("both sides won")
		}
	}
	// And one effect that all of them write is not in the way of any.
	errs := make(chan error, 60)
	for i := range cap(errs) {
		go func() {
			w, err := works(a).TryBegin(ctx, fmt.Sprint("work/", i))
			if err == nil {
				err = w.Complete(ctx, clientv3.OpPut(data+"last", fmt.Sprint(i)))
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		noErr(t, <-errs)
	}
}

// The limit that is learnt from a verification of few claims is not taken for
// lower than it is.
func TestFewTxnOpsAfterVerify(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Start(t, testetcd.NoSync(), testetcd.MaxTxnOps(16)).Client(t)
	a, _, _ := twoOwners(t, etcd, etcdclaims.Config{})
	var last *etcdclaims.Claim
	for i := range 18 {
		last = tryClaim(t, a, fmt.Sprint(i))
	}
	noErr(t, last.Renew(ctx))
	tryClaim(t, a, "after")
	data := testetcd.Prefix(t)
	_, err := last.Txn(ctx).Then(clientv3.OpPut(data+"x", "")).Commit()
	noErr(t, err)
}

func TestTryAcquireAll(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	data := testetcd.Prefix(t)
	if claims, err := a.TryAcquireAll(ctx, nil); err != nil || len(claims) != 0 {
		t.Errorf("of none: %v, %v", claims, err)
	}
	noErr(t, tryClaim(t, a, "warm").Release(ctx))
	before := a.Stats()
	keys := numbered("%d", 58)
	claims, err := a.TryAcquireAll(ctx, keys, etcdclaims.Note([]byte("together")))
	noErr(t, err)
	if n := a.Stats().Requests - before.Requests; n != 1 {
		t.Errorf("%d requests", n)
	}
	for i, cl := range claims {
		if cl.Key() != keys[i] || cl.Fence() != claims[0].Fence() || cl.Check() != nil {
			t.Errorf("place %d: %q, fence %d, %v", i, cl.Key(), cl.Fence(), cl.Check())
		}
		if i := lookUp(t, b, keys[i]); i.Fence != cl.Fence() || string(i.Note) != "together" || i.Claim != cl.ID() {
			t.Errorf("%+v", i)
		}
	}
	if s := a.Stats(); s.Held != 58 || s.Acquired-before.Acquired != 58 || s.Attempts-before.Attempts != 58 {
		t.Errorf("stats %+v", s)
	}
	// They are released one by one.
	noErr(t, claims[3].Release(ctx))
	noErr(t, claims[4].Check())
	if ok, err := claims[4].Owns(ctx); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	// All or none.
	_, err = b.TryAcquireAll(ctx, []string{"new", "3", "4", "5"}, etcdclaims.Then(clientv3.OpPut(data+"x", "")))
	var held *etcdclaims.HeldError
	if !errors.As(err, &held) || held.Info.Key != "4" || held.Info.Owner != "a" || held.Info.Fence != claims[4].Fence() {
		t.Errorf("%v", err)
	}
	for _, key := range []string{"new", "3"} {
		if i := lookUp(t, b, key); i.Held {
			t.Errorf("%+v", i)
		}
	}
	if rawKV(t, etcd, data+"x") != nil {
		t.Error("Then was carried out")
	}
	if s := b.Stats(); s.Held != 0 || s.Acquired != 0 || s.Contended != 1 {
		t.Errorf("stats %+v", s)
	}
	none := clientv3.Compare(clientv3.CreateRevision(data+"x"), "=", 0)
	_, err = b.TryAcquireAll(ctx, []string{"new", "3"}, etcdclaims.If(none), etcdclaims.Then(clientv3.OpPut(data+"x", "")))
	noErr(t, err)
	_, err = b.TryAcquireAll(ctx, []string{"new 2"}, etcdclaims.If(none))
	wantIs(t, err, etcdclaims.ErrRefused)
}

// A proxy sends a request for several keys, with operations of the caller, a second time, after
// the first key was taken away. The operations were carried out once, and the call says that it
// does not know.
func TestTryAcquireAllWithThenCarriedOutBefore(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		tryClaim(t, c, "warm")
		for name, standing := range map[string]bool{"taken by another": true, "free": false} {
			effect := "/effect/" + name
			keys := []string{name + "/a", name + "/b"}
			host.Inject(claimtest.Fault{On: claimtest.Acquire, Saw: func(req any) {
				_, err := pb.NewKVClient(w.Raw.ActiveConnection()).Txn(ctx, req.(*pb.TxnRequest))
				noErr(t, err)
				if standing {
					w.rawPut(keys[0], "somebody's")
				} else {
					w.Server.Delete(t, w.Own(keys[0]))
				}
			}})
			_, err := c.TryAcquireAll(ctx, keys, etcdclaims.Then(clientv3.OpPut(effect, "")))
			wantIs(t, err, etcdclaims.ErrUnknown)
			resp, err := w.Raw.Get(ctx, effect)
			noErr(t, err)
			if len(resp.Kvs) != 1 || resp.Kvs[0].Version != 1 {
				t.Errorf("%s: not carried out once: %v", name, resp.Kvs)
			}
			time.Sleep(sec) // it is given up in the background
			if v := w.get("own/" + keys[1]); v != "" {
				t.Errorf("%s: the second key stays held: %s", name, v)
			}
		}
	})
}

func TestTryAcquireAllRefused(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, etcdclaims.Config{})
	for name, tt := range map[string]struct {
		keys []string
		opts []etcdclaims.AllOption
		want error
	}{
		"over the limit": {numbered("%d", 59), nil, etcdclaims.ErrTooLarge},
		"far over it":    {numbered("%d", 5000), nil, etcdclaims.ErrTooLarge},
		"with conditions": {
			numbered("%d", 58),
			[]etcdclaims.AllOption{etcdclaims.If(clientv3.Compare(clientv3.Version("x"), "=", 0))},
			etcdclaims.ErrTooLarge,
		},
		"large notes": {numbered("%d", 40), []etcdclaims.AllOption{etcdclaims.Note(make([]byte, 60<<10))}, etcdclaims.ErrTooLarge},
		"a bad key":   {[]string{"a", "", "b"}, nil, etcdclaims.ErrInvalidKey},
		"repeated":    {[]string{"a", "b", "a"}, nil, etcdclaims.ErrInvalidKey},
	} {
		claims, err := a.TryAcquireAll(ctx, tt.keys, tt.opts...)
		if err == nil || claims != nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, %v", name, claims, err)
		}
	}
	if n := a.Stats().Requests; n != 0 {
		t.Errorf("%d requests", n)
	}
}

// Two who want overlapping keys do not each end with a part.
func TestTryAcquireAllAtOnce(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	for round := range 10 {
		keys := numbered(fmt.Sprint(round, "/%d"), 10)
		backwards := make([]string, len(keys))
		for i, key := range keys {
			backwards[len(keys)-1-i] = key
		}
		won := make(chan int, 4)
		for i := range cap(won) {
			go func() {
				claims, err := []*etcdclaims.Client{a, b}[i%2].TryAcquireAll(ctx, [][]string{keys, backwards}[i%2])
				if err != nil && !errors.Is(err, etcdclaims.ErrHeld) {
					t.Error(err)
				}
				won <- len(claims)
			}()
		}
		sum := 0
		for range cap(won) {
			sum += <-won
		}
		if sum != 10 {
			t.Errorf("%d claims on 10 keys", sum)
		}
	}
}
