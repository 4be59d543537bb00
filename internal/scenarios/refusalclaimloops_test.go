package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func nothing(context.Context) error { return nil }

// ofClaims are the loops of package etcdclaims.
var ofClaims = []loop{
	{name: "Client.Acquire", begin: each(func(ctx context.Context, w *world, key string) error {
		_, err := w.claims.Acquire(ctx, key)
		return err
	})},
	{name: "Client.Acquire in line", begin: each(func(ctx context.Context, w *world, key string) error {
		held, err := w.other.TryAcquire(ctx, key)
		if err != nil {
			return err
		}
		time.AfterFunc(refusing/2, func() { _ = held.Release(context.Background()) })
		_, err = w.claims.Acquire(ctx, key)
		return err
	})},
	{name: "Client.TryAcquire", fails: true, begin: each(func(ctx context.Context, w *world, key string) error {
		_, err := w.claims.TryAcquire(ctx, key)
		return err
	})},
	{name: "Client.Run", begin: each(func(ctx context.Context, w *world, key string) error {
		return w.claims.Run(ctx, key, nothing)
	})},
	{name: "Runner.Begin", begin: each(func(ctx context.Context, w *world, key string) error {
		job, err := testwork.Of(w.claims).Begin(ctx, key)
		if err != nil {
			return err
		}
		return job.Complete(ctx)
	})},
	{name: "Runner.Run", begin: each(func(ctx context.Context, w *world, key string) error {
		return testwork.Of(w.claims).Run(ctx, key, func(context.Context, *work.Work) error { return nil })
	})},
	{name: "Runner.Once", begin: each(func(ctx context.Context, w *world, key string) error {
		_, _, err := testwork.Of(w.claims).Once(ctx, key, func(context.Context) ([]byte, error) { return nil, nil })
		return err
	})},
	{name: "Locks.TryAcquire", fails: true, begin: each(func(ctx context.Context, w *world, key string) error {
		_, ok, err := locks.New(w.claims).TryAcquire(ctx, key, "owner", time.Minute)
		if err == nil && !ok {
			err = errors.New("it is not locked")
		}
		return err
	})},
	{name: "Locks.Release", fails: true, begin: each(func(ctx context.Context, w *world, key string) error {
		if _, _, err := locks.New(w.other).TryAcquire(ctx, key, "owner", time.Minute); err != nil {
			return err
		}
		return second(locks.New(w.claims).Release(ctx, key, "owner"))
	})},
	{name: "Claim.ReleaseWith", begin: held(func(ctx context.Context, c *etcdclaims.Claim) error {
		return c.ReleaseWith(ctx, clientv3.OpPut("/effect", "x"))
	})},
	{name: "Claim.Release", settles: true, begin: held(func(ctx context.Context, c *etcdclaims.Claim) error { return c.Release(ctx) })},
	{name: "Claim.Note", begin: held(func(ctx context.Context, c *etcdclaims.Claim) error { return c.Note(ctx, []byte("n")) })},
	{name: "Claim.Owns", begin: held(func(ctx context.Context, c *etcdclaims.Claim) error { return owns(c.Owns(ctx)) })},
	{name: "Claim.Renew", begin: held(func(ctx context.Context, c *etcdclaims.Claim) error { return c.Renew(ctx) })},
	{name: "renewals and verification", begin: func(w *world) stepFunc {
		claim, err := w.claims.Acquire(w.Context(), "kept", etcdclaims.TTL(5*time.Second)) // renewed while etcd refuses
		if err != nil {
			w.Fatal(err)
		}
		return func(ctx context.Context, _ string) error {
			time.Sleep(refusing + 15*time.Second)
			return owns(claim.Owns(ctx))
		}
	}},
	{name: "Work.Complete", begin: worked(func(ctx context.Context, job *work.Work) error { return job.Complete(ctx) })},
	{name: "Work.Fail", begin: worked(func(ctx context.Context, job *work.Work) error {
		_, err := job.Fail(ctx, errors.New("it failed"))
		return err
	})},
	{name: "Work.Release", begin: worked(func(ctx context.Context, job *work.Work) error { return job.Release(ctx) })},
	{name: "Client.Lookup", begin: each(func(ctx context.Context, w *world, key string) error {
		_, err := w.claims.Lookup(ctx, key)
		return err
	})},
	{name: "Client.List", begin: each(func(ctx context.Context, w *world, _ string) error {
		for _, err := range w.claims.List(ctx, "") {
			return err
		}
		return nil
	})},
	{name: "Runner.Records", begin: each(func(ctx context.Context, w *world, _ string) error {
		for _, err := range testwork.Of(w.claims).Records(ctx, "") {
			return err
		}
		return nil
	})},
	{name: "admin.Line", begin: each(func(ctx context.Context, w *world, key string) error {
		_, err := admin.Line(ctx, w.claims, key)
		return err
	})},
	{name: "admin.History", begin: each(func(ctx context.Context, w *world, key string) error {
		_, err := admin.History(ctx, w.claims, key)
		return err
	})},
	{name: "admin.ForceRelease", begin: each(func(ctx context.Context, w *world, key string) error {
		if _, err := w.other.Acquire(ctx, key); err != nil {
			return err
		}
		return admin.ForceRelease(ctx, w.claims, key, "a test")
	})},
	{name: "Client.Watch", begin: func(w *world) stepFunc {
		seen := make(chan string, 1000)
		runs := w.background(func(ctx context.Context) error {
			for e, err := range w.claims.Watch(ctx, "") {
				if err != nil {
					return err
				}
				seen <- e.Info.Key
			}
			return ctx.Err()
		})
		return func(ctx context.Context, key string) error {
			if _, err := w.other.Acquire(ctx, key); err != nil {
				return err
			}
			return sees(ctx, seen, key, runs)
		}
	}},
}

// owns turns the result of Owns into an error.
func owns(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("it is not owned")
	}
	return err
}

// held returns a loop that does something with a claim of the key.
func held(do func(ctx context.Context, c *etcdclaims.Claim) error) func(w *world) stepFunc {
	return func(w *world) stepFunc {
		var claims []*etcdclaims.Claim
		for n := range 100 {
			claim, err := w.claims.Acquire(w.Context(), fmt.Sprint("held/", n))
			if err != nil {
				w.Fatal(err)
			}
			claims = append(claims, claim)
		}
		return func(ctx context.Context, _ string) error {
			claim := claims[0]
			claims = claims[1:]
			return do(ctx, claim)
		}
	}
}

// worked returns a loop that does something with an attempt at work.
func worked(do func(ctx context.Context, job *work.Work) error) func(w *world) stepFunc {
	return func(w *world) stepFunc {
		var works []*work.Work
		for n := range 100 {
			job, err := testwork.Of(w.claims).Begin(w.Context(), fmt.Sprint("work/", n))
			if err != nil {
				w.Fatal(err)
			}
			works = append(works, job)
		}
		return func(ctx context.Context, _ string) error {
			job := works[0]
			works = works[1:]
			return do(ctx, job)
		}
	}
}
