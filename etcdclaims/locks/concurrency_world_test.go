package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/concurrency"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// virtually runs the test with an etcd of its own, in virtual time.
func virtually(t *testing.T, f func(t *testing.T, w *testclaims.World)) {
	t.Parallel()
	testclaims.Virtually(t, f)
}

// on returns a session on the machine.
func on(t *testing.T, host claimtest.Etcd, opts ...concurrency.SessionOption) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(host.Etcd(t), opts...)
	testclaims.NoErr(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// session returns a session on a machine of its own.
func session(t *testing.T, w *testclaims.World, opts ...concurrency.SessionOption) *concurrency.Session {
	t.Helper()
	return on(t, w.Server.Host(t), opts...)
}

// began calls f in a goroutine, and returns what it returns.
func began(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// within waits for what began returned.
func within(t *testing.T, d time.Duration, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(d):
		t.Fatalf("not done within %v", d)
		return nil
	}
}

// waits wants that the call has not returned after a while.
func waits(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("returned: %v", err)
	case <-time.After(5 * time.Second):
	}
}

// succeeds reports whether etcd carries out a write under the conditions.
func succeeds(t *testing.T, w *testclaims.World, conditions ...clientv3.Cmp) bool {
	t.Helper()
	resp, err := w.Raw.Txn(context.Background()).If(conditions...).Then(clientv3.OpPut("/effect", "")).Commit()
	testclaims.NoErr(t, err)
	return resp.Succeeded
}

// wantErrors ends the test unless the error matches all of them.
func wantErrors(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("%v does not match %v", err, target)
		}
	}
}
