package etcdclaims_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// firstError returns the error that a sequence ends with. It yields nothing else.
func firstError[T any](seq iter.Seq2[T, error]) error {
	all := maps.Collect(func(yield func(error, bool) bool) {
		for _, err := range seq {
			if !yield(err, true) {
				return
			}
		}
	})
	if len(all) != 1 {
		return errors.New("it does not yield one error")
	}
	return slices.Collect(maps.Keys(all))[0]
}

// refusedCalls are the methods of a Client that return errors, and those of its locks.
func refusedCalls(t *testing.T) map[string]func(ctx context.Context, c *etcdclaims.Client) error {
	never := func(context.Context) error { t.Error("a function was called"); return nil }
	work := func(context.Context, *work.Work) error { return never(nil) }
	once := func(context.Context) ([]byte, error) { return nil, never(nil) }
	return map[string]func(ctx context.Context, c *etcdclaims.Client) error{
		"Acquire":    func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.Acquire(ctx, "k"); return err },
		"TryAcquire": func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.TryAcquire(ctx, "k"); return err },
		"TryAcquireAll": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := c.TryAcquireAll(ctx, []string{"k", "l"})
			return err
		},
		"TryAcquireEach": func(ctx context.Context, c *etcdclaims.Client) error {
			claims, errs := c.TryAcquireEach(ctx, []string{"k", "l"})
			if claims[0] != nil || claims[1] != nil || errs[1] == nil {
				t.Errorf("TryAcquireEach: %v, %v", claims, errs)
			}
			return errs[0]
		},
		"Begin": func(ctx context.Context, c *etcdclaims.Client) error { _, err := works(c).Begin(ctx, "k"); return err },
		"TryBegin": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := works(c).TryBegin(ctx, "k")
			return err
		},
		"Run":           func(ctx context.Context, c *etcdclaims.Client) error { return c.Run(ctx, "k", never) },
		"TryRun":        func(ctx context.Context, c *etcdclaims.Client) error { return c.TryRun(ctx, "k", never) },
		"Runner.Run":    func(ctx context.Context, c *etcdclaims.Client) error { return works(c).Run(ctx, "k", work) },
		"Runner.TryRun": func(ctx context.Context, c *etcdclaims.Client) error { return works(c).TryRun(ctx, "k", work) },
		"Runner.Once": func(ctx context.Context, c *etcdclaims.Client) error {
			_, _, err := works(c).Once(ctx, "k", once)
			return err
		},
		"Runner.TryOnce": func(ctx context.Context, c *etcdclaims.Client) error {
			_, _, err := works(c).TryOnce(ctx, "k", once)
			return err
		},
		"admin.Resize": func(ctx context.Context, c *etcdclaims.Client) error { return admin.Resize(ctx, c, "k", 2) },

		"Lookup": func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.Lookup(ctx, "k"); return err },
		"Owns": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := c.Owns(ctx, tokenFor("k", 1))
			return err
		},
		"admin.Line": func(ctx context.Context, c *etcdclaims.Client) error { _, err := admin.Line(ctx, c, "k"); return err },
		"admin.History": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := admin.History(ctx, c, "k")
			return err
		},
		"Record": func(ctx context.Context, c *etcdclaims.Client) error {
			_, _, err := works(c).Record(ctx, "k")
			return err
		},
		"List":           func(ctx context.Context, c *etcdclaims.Client) error { return firstError(c.List(ctx, "")) },
		"admin.Lines":    func(ctx context.Context, c *etcdclaims.Client) error { return firstError(admin.Lines(ctx, c, nil)) },
		"Watch":          func(ctx context.Context, c *etcdclaims.Client) error { return firstError(c.Watch(ctx, "")) },
		"Records":        func(ctx context.Context, c *etcdclaims.Client) error { return firstError(works(c).Records(ctx, "")) },
		"Orphans":        func(ctx context.Context, c *etcdclaims.Client) error { return firstError(works(c).Orphans(ctx, "")) },
		"admin.Sessions": func(ctx context.Context, c *etcdclaims.Client) error { return firstError(admin.Sessions(ctx, c)) },
		"Health":         func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.Health(ctx); return err },

		"Retry":              func(ctx context.Context, c *etcdclaims.Client) error { _, err := works(c).Retry(ctx, "k"); return err },
		"Forget":             func(ctx context.Context, c *etcdclaims.Client) error { return works(c).Forget(ctx, "k") },
		"admin.ForceRelease": func(ctx context.Context, c *etcdclaims.Client) error { return admin.ForceRelease(ctx, c, "k", "") },
		"admin.ForceReleaseTerm": func(ctx context.Context, c *etcdclaims.Client) error {
			return admin.ForceReleaseTerm(ctx, c, tokenFor("k", 1), "")
		},
		"ReleaseAll":  func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.ReleaseAll(ctx); return err },
		"Unreachable": func(_ context.Context, c *etcdclaims.Client) error { return c.Unreachable() },
		"Close":       func(ctx context.Context, c *etcdclaims.Client) error { return c.Close(ctx) },

		"Locks.TryAcquire": func(ctx context.Context, c *etcdclaims.Client) error {
			_, ok, err := locks.New(c).TryAcquire(ctx, "k", "me", time.Minute)
			if ok {
				t.Error("it has a lock")
			}
			return err
		},
		"Locks.Renew": func(ctx context.Context, c *etcdclaims.Client) error {
			_, _, err := locks.New(c).Renew(ctx, "k", "me", time.Minute)
			return err
		},
		"Locks.Release": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := locks.New(c).Release(ctx, "k", "me")
			return err
		},
		"Locks.ReleaseAll": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := locks.New(c).ReleaseAll(ctx, "me")
			return err
		},
		"Locks.IsLocked": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := locks.New(c).IsLocked(ctx, "k")
			return err
		},
		"Locks.Owner": func(ctx context.Context, c *etcdclaims.Client) error {
			_, _, err := locks.New(c).Owner(ctx, "k")
			return err
		},
	}
}

// These have no error to return. They return nothing that is true of a client.
var emptyCalls = map[string]func(c *etcdclaims.Client) bool{
	"Etcd":        func(c *etcdclaims.Client) bool { return c.Etcd() == nil },
	"Instance":    func(c *etcdclaims.Client) bool { return c.Instance() == "" },
	"Owner":       func(c *etcdclaims.Client) bool { return c.Owner() == "" },
	"Prefix":      func(c *etcdclaims.Client) bool { return c.Prefix() == "" },
	"OwnKey":      func(c *etcdclaims.Client) bool { return c.OwnKey("k") == "" },
	"Passthrough": func(c *etcdclaims.Client) bool { return !c.Passthrough() },
	"Stats":       func(c *etcdclaims.Client) bool { s := c.Stats(); return s.Attempts == 0 && s.Lost != nil },
}

// A caller that ignored the error of New acquires nothing, and is told why by every call.
func TestNoClient(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls := refusedCalls(t)
	known := func(typ reflect.Type, prefix string) {
		for i := range typ.NumMethod() {
			if name := prefix + typ.Method(i).Name; calls[name] == nil && emptyCalls[name] == nil {
				t.Errorf("%s is not tested", name)
			}
		}
	}
	known(reflect.TypeFor[*etcdclaims.Client](), "")
	known(reflect.TypeFor[locks.Locks](), "Locks.")
	failed, err := etcdclaims.New(testetcd.Shared(t).Client(t), etcdclaims.Config{TTL: time.Second})
	if err == nil {
		t.Fatal("New accepted it")
	}
	for name, c := range map[string]*etcdclaims.Client{"nil": nil, "zero": {}, "failed": failed} {
		for call, f := range calls {
			err := f(ctx, c)
			if !errors.Is(err, etcdclaims.ErrNoClient) {
				t.Errorf("%s client: %s: %v", name, call, err)
				continue
			}
			for _, part := range []string{"no client", "New was not called", "error that was ignored", "NewPassthrough"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not have %q", call, err, part)
				}
			}
		}
		for call, empty := range emptyCalls {
			if !empty(c) {
				t.Errorf("%s client: %s returns something", name, call)
			}
		}
	}
}

// Without an etcd client there is no client. The error names the call that makes one for
// development.
func TestNewWithoutEtcd(t *testing.T) {
	t.Parallel()
	c, err := etcdclaims.New(nil, etcdclaims.Config{})
	if c != nil || err == nil {
		t.Fatalf("%v, %v", c, err)
	}
	for _, part := range []string{"etcdclaims: config: ", "the etcd client is nil", "error that was ignored", "NewPassthrough"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not have %q", err, part)
		}
	}
}
