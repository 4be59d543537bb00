package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// validKey is the rule for keys, written down a second time.
func validKey(key string) bool {
	if len(key) < 1 || len(key) > 1024 || !utf8.ValidString(key) {
		return false
	}
	return !strings.ContainsFunc(key, func(r rune) bool { return r <= 0x1f || r >= 0x7f && r <= 0x9f })
}

// FuzzKey takes two keys. Each is taken or refused by the rule; and if both are
// taken, and differ, nothing of the one is ever seen as the other's.
func FuzzKey(f *testing.F) {
	all := append(slices.Clone(goodKeys), badKeys...)
	for i, key := range all {
		f.Add(key, all[(i+1)%len(all)])
		if testing.Short() {
			continue
		}
		f.Add(key, key+"/")
		f.Add(key, key+"/a")
	}
	f.Add("a", "a0")
	f.Add("a/b", "a")
	f.Add("a", "own/a")
	f.Add("é", "e\u0301")
	etcd := testetcd.Shared(f).Client(f)
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: testetcd.Prefix(f)})
	noErr(f, err)
	f.Cleanup(func() { _ = c.Close(context.Background()) })
	other, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: testetcd.Prefix(f)})
	noErr(f, err)
	f.Cleanup(func() { _ = other.Close(context.Background()) })
	none := newClient(f, nil, etcdclaims.Config{})
	f.Fuzz(func(t *testing.T, one, two string) {
		ctx := t.Context()
		for _, key := range []string{one, two} {
			requests := other.Stats().Requests
			_, err := none.TryAcquire(ctx, key)
			if keyspace.Unclaimable(key) != "" && validKey(key) {
				if !errors.Is(err, etcdclaims.ErrInvalidKey) {
					t.Fatalf("%q, kept: %v", key, err)
				}
				return
			}
			if valid := validKey(key); valid != (err == nil) || !valid && !errors.Is(err, etcdclaims.ErrInvalidKey) {
				t.Fatalf("%q, valid %v: %v", key, valid, err)
			}
			if err == nil {
				continue
			}
			if _, err := other.Lookup(ctx, key); !errors.Is(err, etcdclaims.ErrInvalidKey) {
				t.Fatalf("%q: %v", key, err)
			}
			if other.Stats().Requests != requests {
				t.Fatalf("%q was sent", key)
			}
		}
		if !validKey(one) || !validKey(two) || one == two {
			return
		}
		a, err := works(c).TryBegin(ctx, one, etcdclaims.Note([]byte("one")))
		noErr(t, err)
		defer func() { noErr(t, a.Release(ctx)) }()
		locks := locks.New(c)
		if _, ok, err := locks.TryAcquire(ctx, two, "me", time.Minute); !ok || err != nil {
			t.Fatalf("%q is not free beside %q: %v", two, one, err)
		}
		waiting, stop := context.WithCancel(ctx)
		defer stop()
		done := make(chan error, 1)
		go func() { _, err := c.Acquire(waiting, one); done <- err }()
		for i := lookUp(t, c, one); i.Waiting == 0; i = lookUp(t, c, one) {
			time.Sleep(time.Millisecond)
		}
		if i := lookUp(t, c, one); i.Key != one || string(i.Note) != "one" || i.Fence != a.Fence() || i.Waiting != 1 {
			t.Errorf("%q beside %q: %+v", one, two, i)
		}
		if i := lookUp(t, c, two); i.Key != two || i.Note != nil || i.Kind != "lock" || i.Waiting != 0 {
			t.Errorf("%q beside %q: %+v", two, one, i)
		}
		if _, ok, err := works(c).Record(ctx, two); ok || err != nil {
			t.Errorf("%q has a record of %q: %v", two, one, err)
		}
		var keys []string
		for i, err := range c.List(ctx, "") {
			noErr(t, err)
			keys = append(keys, i.Key)
		}
		if want := []string{min(one, two), max(one, two)}; !slices.Equal(keys, want) {
			t.Errorf("listed %q, want %q", keys, want)
		}
		if n, err := locks.ReleaseAll(ctx, "me"); n != 1 || err != nil {
			t.Errorf("released %d locks of %q: %v", n, two, err)
		}
		stop()
		wantIs(t, <-done, context.Canceled)
		for i := lookUp(t, c, one); i.Waiting > 0; i = lookUp(t, c, one) {
			time.Sleep(time.Millisecond)
		}
	})
}

// shapes are all the kinds of keys that there may be under a prefix. A user's
// key stands at the end of one, or as a digest.
var shapes = map[string]*regexp.Regexp{
	"own":   regexp.MustCompile(`^own/(.+)$`),
	"note":  regexp.MustCompile(`^note/(.+)$`),
	"work":  regexp.MustCompile(`^work/(.+)$`),
	"live":  regexp.MustCompile(`^session/[0-9a-f-]{36}/live/\d+$`),
	"void":  regexp.MustCompile(`^void/[0-9a-f-]{36}$`),
	"evict": regexp.MustCompile(`^session/[0-9a-f-]{36}/evict/[0-9a-f-]{36}$`),
	"won":   regexp.MustCompile(`^session/[0-9a-f-]{36}/won/[0-9a-f-]{36}$`),
	"wait":  regexp.MustCompile(`^wait/[0-9a-f]{32}/[0-9a-f-]{36}$`),
	"lock":  regexp.MustCompile(`^lock/[0-9a-f]{32}/(.+)$`),
	"audit": regexp.MustCompile(`^audit/\d{20}-[0-9a-f-]{36}$`),
	"epoch": regexp.MustCompile(`^epoch$`),
}

// Whatever is done with whatever key, each etcd key written is of exactly one
// kind, on a lease unless it is a record, and nothing is written outside of the
// prefix.
func TestKeyShapes(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Start(t, testetcd.NoSync()).Client(t)
	prefix := testetcd.Prefix(t)
	a := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "own/x"})
	b := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "b/session"})
	begin, err := etcd.Get(ctx, "x")
	noErr(t, err)
	keys := append(slices.Clone(goodKeys), "session/x/live/1", "lock/0123456789abcdef0123456789abcdef/x", "wait/0123456789abcdef0123456789abcdef/x")
	for _, key := range keys {
		w := tryBegin(t, a, key, etcdclaims.Note([]byte("x")))
		waiting, cancel := context.WithCancel(ctx)
		waited := make(chan error, 1)
		go func() {
			_, err := b.Acquire(waiting, key)
			waited <- err
		}()
		eventually(t, "a line", func() bool { return lookUp(t, a, key).Waiting == 1 })
		cancel()
		wantIs(t, <-waited, context.Canceled)
		noErr(t, failing(ctx, w, etcdclaims.RetryAfter(errors.New("x"), 0)))
		eventually(t, "no line", func() bool { return lookUp(t, a, key).Waiting == 0 })
		tryClaim(t, a, key, etcdclaims.MinHold(time.Minute))
		noErr(t, admin.ForceRelease(ctx, b, key, "x"))
		testclaims.Locked(t, locks.New(b), key, "own/me", time.Minute, true)
	}
	count := map[string]int{}
	watchCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	end, err := etcd.Put(ctx, "end", "")
	noErr(t, err)
	for resp := range etcd.Watch(watchCtx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(begin.Header.Revision+1)) {
		noErr(t, resp.Err())
		for _, e := range resp.Events {
			name, ok := strings.CutPrefix(string(e.Kv.Key), prefix)
			if !ok {
				if string(e.Kv.Key) != "end" {
					t.Errorf("%q is outside of the prefix", e.Kv.Key)
				}
				continue
			}
			var kinds []string
			for kind, shape := range shapes {
				if shape.MatchString(name) {
					kinds = append(kinds, kind)
				}
			}
			if len(kinds) != 1 {
				t.Errorf("%q is of kinds %v", name, kinds)
				continue
			}
			count[kinds[0]]++
			if e.IsCreate() && e.Kv.Lease == 0 && kinds[0] != "audit" {
				t.Errorf("%q has lease %d", name, e.Kv.Lease)
			}
			if m := shapes[kinds[0]].FindStringSubmatch(name); len(m) == 2 && !slices.Contains(keys, m[1]) {
				t.Errorf("%q speaks of the key %q, which nobody has used", name, m[1])
			}
		}
		if resp.Header.Revision >= end.Header.Revision {
			break
		}
	}
	for _, kind := range []string{"own", "note", "work", "live", "evict", "wait", "lock", "audit"} {
		if count[kind] == 0 {
			t.Errorf("no %s among %v", kind, count)
		}
	}
	t.Log(fmt.Sprint(count))
}
