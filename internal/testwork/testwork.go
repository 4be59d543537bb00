// Package testwork gives clients runners of work, for tests that have work beside claims.
package testwork

import (
	"context"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var runners sync.Map // *work.Runner by *etcdclaims.Client

// Of returns the runner of a client: that of With, or one without a configuration. It is nil for no
// client, and refuses every call then.
func Of(claims *etcdclaims.Client) *work.Runner {
	r, ok := runners.Load(claims)
	if !ok {
		made, err := work.New(claims, work.Config{})
		if err != nil {
			return nil
		}
		r, _ = runners.LoadOrStore(claims, made)
	}
	return r.(*work.Runner) //nolint:forcetypeassert // nothing else is stored
}

// With gives a client a runner with a configuration, and returns the runner.
func With(claims *etcdclaims.Client, cfg work.Config) *work.Runner {
	r, err := work.New(claims, cfg)
	if err != nil {
		panic(err)
	}
	runners.Store(claims, r)
	return r
}

// Fail fails work whose record does not matter.
func Fail(ctx context.Context, w *work.Work, cause error, ops ...clientv3.Op) error {
	_, err := w.Fail(ctx, cause, ops...)
	return err
}

// Orphans returns up to limit orphans, 0 for all.
func Orphans(ctx context.Context, r *work.Runner, limit int) (all []work.Record, err error) {
	for r, err := range r.Orphans(ctx, "") {
		if err != nil {
			return nil, err
		}
		if all = append(all, r); len(all) == limit {
			break
		}
	}
	return all, nil
}
