package scenarios_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// expecting is a test that expects failures: they end what it runs, not the test.
type expecting struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	cleanups []func()
	failures []string
}

func (e *expecting) Context() context.Context { return e.ctx }

func (e *expecting) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *expecting) Errorf(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures = append(e.failures, fmt.Sprintf(format, args...))
}

func (e *expecting) Fatal(args ...any) {
	e.Errorf("%s", fmt.Sprint(args...))
	runtime.Goexit()
}

// run calls f, and then what it left to be cleaned up, at the end of the context or when
// the clients have had time for their next renewals.
func (e *expecting) run(f func() error) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(); err != nil {
			e.Errorf("%v", err)
		}
	})
	wg.Wait()
	select {
	case <-e.ctx.Done():
	case <-time.After(2 * etcdclaims.DefaultTTL):
	}
	for _, cleanup := range slices.Backward(e.cleanups) {
		cleanup()
	}
}

// less returns the row with one permission less, in each way that there is, by name.
func (g grants) less() map[string]grants {
	all := make(map[string]grants)
	for key, kind := range g {
		for _, one := range strings.Split(kind, "") {
			fewer := maps.Clone(g)
			if fewer[key] = strings.ReplaceAll(kind, one, ""); fewer[key] == "" {
				delete(fewer, key)
			}
			all[one+" of "+key] = fewer
		}
	}
	return all
}

// TestEachGrantIsNeeded shows that no row grants too much: with one permission less, etcd
// refuses a request of the feature.
func TestEachGrantIsNeeded(t *testing.T) {
	testetcd.SkipUnlessLong(t, "uses each feature once for each permission")
	for feature, row := range table(t) {
		t.Run(feature, func(t *testing.T) {
			t.Parallel()
			server := testetcd.Start(t, testetcd.NoSync())
			withRole(t, server.Client(t), nil)
			admin := server.ClientWith(t, clientv3.Config{Username: "root", Password: "root"})
			for name, fewer := range row.less() {
				t.Run(name, func(t *testing.T) {
					refusedWith(t, server, admin, fewer, features[feature])
				})
			}
		})
	}
}

// refusedWith uses a feature with a role that grants too little.
func refusedWith(t *testing.T, server *testetcd.Server, admin *clientv3.Client, row grants, use func(granted) error) {
	t.Helper()
	if _, err := admin.Delete(t.Context(), "", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	role, err := admin.RoleGet(t.Context(), "user")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range role.Perm {
		if _, err := admin.RoleRevokePermission(t.Context(), "user", string(p.Key), string(p.RangeEnd)); err != nil {
			t.Fatal(err)
		}
	}
	grant(t, admin, row)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	denied := refused{first: cancel}
	e := &expecting{TB: t, ctx: ctx}
	e.run(func() error {
		user := server.ClientWith(t, clientv3.Config{Username: "user", Password: "user", DialOptions: denied.options()})
		return use(granted{e, admin, user, &denied})
	})
	if len(denied.calls) == 0 {
		t.Errorf("nothing was refused: %v", e.failures)
	}
}
