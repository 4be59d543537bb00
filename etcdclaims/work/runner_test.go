package work_test

import (
	"context"
	"errors"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

// Without a client, and without a runner, nothing is begun.
func TestNoClient(t *testing.T) {
	t.Parallel()
	for _, claims := range []*etcdclaims.Client{nil, {}} {
		if r, err := work.New(claims, work.Config{}); r != nil || !errors.Is(err, etcdclaims.ErrNoClient) {
			t.Errorf("got %v, %v", r, err)
		}
	}
	var r *work.Runner
	ctx := t.Context()
	never := func() { t.Error("a function was called") }
	for name, call := range refusedCalls(r, never) {
		if err := call(ctx); !errors.Is(err, etcdclaims.ErrNoClient) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// refusedCalls are the calls of a runner.
func refusedCalls(r *work.Runner, never func()) map[string]func(ctx context.Context) error {
	run := func(context.Context, *work.Work) error { never(); return nil }
	once := func(context.Context) ([]byte, error) { never(); return nil, nil }
	return map[string]func(ctx context.Context) error{
		"Begin":    func(ctx context.Context) error { _, err := r.Begin(ctx, "k"); return err },
		"TryBegin": func(ctx context.Context) error { _, err := r.TryBegin(ctx, "k"); return err },
		"Run":      func(ctx context.Context) error { return r.Run(ctx, "k", run) },
		"TryRun":   func(ctx context.Context) error { return r.TryRun(ctx, "k", run) },
		"Once":     func(ctx context.Context) error { _, _, err := r.Once(ctx, "k", once); return err },
		"TryOnce":  func(ctx context.Context) error { _, _, err := r.TryOnce(ctx, "k", once); return err },
		"Record":   func(ctx context.Context) error { _, _, err := r.Record(ctx, "k"); return err },
		"Retry":    func(ctx context.Context) error { _, err := r.Retry(ctx, "k"); return err },
		"Forget":   func(ctx context.Context) error { return r.Forget(ctx, "k") },
		"Records": func(ctx context.Context) (err error) {
			for _, err = range r.Records(ctx, "") {
			}
			return err
		},
		"Orphans": func(ctx context.Context) (err error) {
			for _, err = range r.Orphans(ctx, "") {
			}
			return err
		},
	}
}
