package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// claimMany claims keys that are free. On a busy machine that may take longer than
// one call has time for: then those that are left are claimed again.
func claimMany(t *testing.T, c *etcdclaims.Client, keys []string, opts ...etcdclaims.ManyOption) []*etcdclaims.Claim {
	t.Helper()
	var all []*etcdclaims.Claim
	for some := range slices.Chunk(keys, 250) { // each call has one deadline
		claims, errs := c.TryAcquireEach(t.Context(), some, opts...)
		for i, err := range errs {
			for try := 0; err != nil; try++ {
				if try == 10 || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, etcdclaims.ErrHeld) {
					t.Fatalf("claiming %q: %v", some[i], err)
				}
				time.Sleep(time.Duration(try) * 100 * time.Millisecond) // what was unknown is being undone
				one, errs := c.TryAcquireEach(t.Context(), some[i:i+1], opts...)
				claims[i], err = one[0], errs[0]
			}
		}
		all = append(all, claims...)
	}
	return all
}

func numbered(format string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(format, i)
	}
	return keys
}

// listed returns the keys that List yields, calling during after each.
func listed(t *testing.T, c *etcdclaims.Client, prefix string, during func(n int, i etcdclaims.Info)) []string {
	t.Helper()
	var keys []string
	for i, err := range c.List(t.Context(), prefix) {
		noErr(t, err)
		keys = append(keys, i.Key)
		if during != nil {
			during(len(keys), i)
		}
	}
	return keys
}

func TestList(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	if got := listed(t, b, "", nil); len(got) != 0 {
		t.Errorf("listed %v of nothing", got)
	}
	keys := numbered("job/%04d", 1600)
	claims := claimMany(t, a, keys)
	claimMany(t, b, []string{"aaa", "jobs", "job", "zzz"})
	noErr(t, claims[700].Note(t.Context(), []byte("seven hundred")))

	before := b.Stats().Requests
	got := listed(t, b, "job/", func(n int, i etcdclaims.Info) {
		cl := claims[n-1]
		if i.Key != cl.Key() || !i.Held || i.Fence != cl.Fence() || i.Claim != cl.ID() || i.Owner != "a" || i.Instance != a.Instance() || i.Lease == 0 {
			t.Fatalf("place %d: %+v", n, i)
		}
		if want := cl == claims[700]; want != (string(i.Note) == "seven hundred") {
			t.Errorf("place %d: note %q", n, i.Note)
		}
	})
	if !slices.Equal(got, keys) {
		t.Errorf("listed %d keys, want %d", len(got), len(keys))
	}
	if n := b.Stats().Requests - before; n == 0 || n > 10 {
		t.Errorf("%d requests", n)
	}
	if got := listed(t, b, "job", nil); len(got) != 1602 || got[0] != "job" || got[1601] != "jobs" {
		t.Errorf("listed %d keys", len(got))
	}
	if got := listed(t, b, "", nil); len(got) != 1604 || got[0] != "aaa" || got[1603] != "zzz" {
		t.Errorf("listed %d keys", len(got))
	}
	if got := listed(t, b, "job/0700", nil); !slices.Equal(got, []string{"job/0700"}) {
		t.Errorf("listed %v", got)
	}
	for _, prefix := range []string{"job/1600", "nothing", "\xff", "../", "\x00", strings.Repeat("x", 3000)} {
		if got := listed(t, b, prefix, nil); len(got) != 0 {
			t.Errorf("listed %v for %q", got, prefix)
		}
	}
	n := 0
	for range b.List(t.Context(), "") {
		if n++; n == 600 {
			break
		}
	}
	if n != 600 {
		t.Errorf("broke off at %d", n)
	}
}

// All of a list is of one moment, whatever happens while it is read.
func TestListOneRevision(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	keys := numbered("%04d", 1600)
	claims := claimMany(t, a, keys)
	got := listed(t, b, "", func(n int, i etcdclaims.Info) {
		if n != 600 {
			return
		}
		noErr(t, claims[10].Release(ctx))
		noErr(t, claims[700].Release(ctx))
		noErr(t, claims[1599].Release(ctx))
		claimMany(t, b, []string{"0700", "0700x", "1599x"})
	})
	if !slices.Equal(got, keys) {
		t.Errorf("listed %d keys, not those of one revision", len(got))
	}
	if got := listed(t, b, "", nil); len(got) != 1600 || !slices.Contains(got, "0700x") || slices.Contains(got, "0010") {
		t.Errorf("afterwards: %d keys", len(got))
	}
}

func TestListWhileCompacted(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Start(t, testetcd.NoSync()).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	keys := numbered("%04d", 1600)
	claims := claimMany(t, a, keys)
	got := listed(t, b, "", func(n int, i etcdclaims.Info) {
		if n != 100 && n != 600 { // the second time with its notes still to be read
			return
		}
		noErr(t, claims[n+1000-100].Release(ctx)) // in a page to come
		resp, err := etcd.Put(ctx, "/other", "")
		noErr(t, err)
		_, err = etcd.Compact(ctx, resp.Header.Revision)
		noErr(t, err)
	})
	want := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key == "1000" || key == "1500" })
	if !slices.Equal(got, want) {
		t.Errorf("listed %d keys, want %d", len(got), len(want))
	}
}

func TestListError(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, etcdclaims.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := 0
	for _, err := range a.List(ctx, "") {
		n++
		wantIs(t, err, context.Canceled)
	}
	if n != 1 {
		t.Errorf("%d errors", n)
	}
	noErr(t, a.Close(t.Context()))
	for _, err := range a.List(t.Context(), "") {
		t.Logf("after Close: %v", err)
	}
}
