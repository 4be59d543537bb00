package testetcd_test

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

// deadline bounds what a test waits for in real time. Nothing should come near.
func deadline(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// put returns the revision at which the key was put. It is tried again while the server is not
// there yet: clientv3 repeats reads by itself, and no writes.
func put(tb testing.TB, c *clientv3.Client, key, value string, opts ...clientv3.OpOption) int64 {
	tb.Helper()
	for ctx := deadline(tb); ; time.Sleep(10 * time.Millisecond) {
		resp, err := c.Put(ctx, key, value, opts...)
		if err == nil {
			return resp.Header.Revision
		}
		if ctx.Err() != nil {
			tb.Fatalf("put %s: %v", key, err)
		}
	}
}

// get returns the value of a key, or "" if there is none. The request is tried
// again while the server is not there yet.
func get(tb testing.TB, c *clientv3.Client, key string) string {
	tb.Helper()
	resp, err := c.Get(deadline(tb), key)
	if err != nil {
		tb.Fatalf("get %s: %v", key, err)
	}
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

func TestPrefix(t *testing.T) {
	c := testetcd.Shared(t).Client(t)
	seen := make(map[string]bool)
	for _, name := range []string{"plain", "with space", "a/b", "wéird\x00\u2028", strings.Repeat("long", 100)} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				p := testetcd.Prefix(t)
				if seen[p] {
					t.Errorf("%q came twice", p)
				}
				seen[p] = true
				if !strings.HasPrefix(p, "/TestPrefix_") || !strings.HasSuffix(p, "/") || strings.Count(p, "/") != 2 ||
					!utf8.ValidString(p) || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Errorf("odd prefix %q", p)
				}
			}
		})
	}
	t.Run("parallel", func(t *testing.T) {
		for range 8 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				p := testetcd.Prefix(t)
				for i, key := range []string{"a", "b", "c"} {
					put(t, c, p+key, t.Name())
					resp, err := c.Get(deadline(t), p, clientv3.WithPrefix())
					if err != nil {
						t.Fatal(err)
					}
					if len(resp.Kvs) != i+1 {
						t.Errorf("%d keys below %s, want %d", len(resp.Kvs), p, i+1)
					}
				}
			})
		}
	})
}

func TestSharedIsOne(t *testing.T) {
	a, b := testetcd.Shared(t), testetcd.Shared(t)
	if a != b {
		t.Error("two shared servers")
	}
	p := testetcd.Prefix(t)
	put(t, a.Client(t), p+"k", "v")
	if v := get(t, b.Client(t), p+"k"); v != "v" {
		t.Errorf("got %q", v)
	}
}
