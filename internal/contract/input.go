package contract

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// refusal is what came of a call that should have been refused.
type refusal struct {
	call string
	err  error
	want error // nil: any
}

var inputCases = []Case{
	{"wrong input is refused before any request", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{TTL: time.Hour}) // so that no renewal is counted
		claim, job := t.try(a, "held"), t.begin(a, "work")
		t.try(b, "warm")
		before := a.Stats().Requests + b.Stats().Requests

		var all []refusal
		for _, key := range []string{"", "a\nb", "\x00", "a\x7f", "\xff", strings.Repeat("k", etcdclaims.MaxKeyBytes+1)} {
			all = append(all, t.wrong(b, key, etcdclaims.ErrInvalidKey)...)
			_, err := b.Lookup(t.ctx, key)
			all = append(all, refusal{"Lookup", err, etcdclaims.ErrInvalidKey})
			_, _, err = t.works(b).Record(t.ctx, key)
			all = append(all, refusal{"Record", err, etcdclaims.ErrInvalidKey})
			_, err = b.Owns(t.ctx, fencing.Token{Key: key, Fence: 1})
			all = append(all, refusal{"Owns", err, etcdclaims.ErrInvalidKey})
			all = append(all, refusal{"ForceRelease", admin.ForceRelease(t.ctx, b, key, ""), etcdclaims.ErrInvalidKey})
			_, _, err = locks.New(b).TryAcquire(t.ctx, key, "me", time.Minute)
			all = append(all, refusal{"Locks.TryAcquire", err, etcdclaims.ErrInvalidKey})
		}
		for _, key := range []string{" ", "sched/x", "queue/x", "group/x", etcdclaims.SlotKey("k", 1), etcdclaims.SharedPrefix("k") + "x"} {
			all = append(all, t.wrong(b, key, etcdclaims.ErrInvalidKey)...)
		}
		reserved := clientv3.OpPut(testclaims.Key(t.prefix, "held"), "mine")
		for _, opts := range [][]any{
			{etcdclaims.TTL(time.Second)}, // AllowShortTTL is not set
			{etcdclaims.TTL(-1)},
			{etcdclaims.MaxHold(-1)},
			{etcdclaims.MinHold(2 * time.Second), etcdclaims.MaxHold(time.Second)},
			{etcdclaims.Reentrant(), etcdclaims.Supersede()},
			{etcdclaims.Then(reserved)},
			{etcdclaims.Then(clientv3.OpDelete("", clientv3.WithPrefix()))},
		} {
			all = append(all, t.wrong(b, "k", nil, opts...)...)
		}
		large := make([]byte, etcdclaims.MaxNoteBytes+1)
		all = append(all, t.wrong(b, "k", etcdclaims.ErrTooLarge, etcdclaims.Note(large))...)
		_, err := claim.Txn(t.ctx).Then(reserved).Commit()
		_, _, err3 := locks.New(b).TryAcquire(t.ctx, "k", "", time.Minute)
		_, _, err4 := locks.New(b).TryAcquire(t.ctx, "k", "me", 0)
		all = append(all,
			refusal{"Txn", err, nil},
			refusal{"Locks.TryAcquire", err3, nil},
			refusal{"Locks.TryAcquire", err4, nil},
			refusal{"Note", claim.Note(t.ctx, large), etcdclaims.ErrTooLarge},
			refusal{"Complete", job.Complete(t.ctx, reserved), nil},
			refusal{"Fail", failing(t.ctx, job, errors.New("no"), reserved), nil},
			refusal{"TryRun", b.TryRun(t.ctx, "k", nil), nil},
		)

		if n := a.Stats().Requests + b.Stats().Requests - before; n != 0 {
			t.Errorf("%d requests were sent", n)
		}
		for _, r := range all {
			switch {
			case r.err == nil:
				t.Errorf("%s: no error", r.call)
			case r.want != nil && !errors.Is(r.err, r.want), errors.Is(r.err, etcdclaims.ErrUnknown), errors.Is(r.err, etcdclaims.ErrHeld):
				t.Errorf("%s: %v", r.call, r.err)
			}
		}
		t.ok(claim.Check())
		t.ok(job.Complete(t.ctx)) // it was not ended by what was refused
	}},

	{"what goes beyond etcd's limits is refused as a whole", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		// More than etcd takes at all: 1.5 MiB in a request, unless configured
		// otherwise, which the client does not go beyond.
		large := strings.Repeat("x", 1600<<10)
		_, err := claim.Txn(t.ctx).Then(t.put("x", large)).Commit()
		t.is(err, etcdclaims.ErrTooLarge)
		_, err = b.TryAcquire(t.ctx, "free", etcdclaims.Then(t.put("x", large)))
		t.is(err, etcdclaims.ErrTooLarge)
		t.free(b, "free")
		t.ok(claim.Check())
		if t.stored("x") != "" {
			t.Error("what was refused is stored")
		}
	}},

	{"a wrong config is refused", func(t *trial) {
		for name, cfg := range map[string]etcdclaims.Config{
			"no slash":   {Prefix: "/claims"},
			"short TTL":  {TTL: 3 * time.Second},
			"long drain": {TTL: 10 * time.Second, Drain: 9 * time.Second},
			"owner":      {Owner: "a\nb"},
		} {
			if _, err := etcdclaims.New(t.raw, cfg); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	}},
}

// wrong makes the call with everything that acquires and accepts the options.
func (t *trial) wrong(c *etcdclaims.Client, key string, want error, opts ...any) (all []refusal) {
	t.Helper()
	never := func(context.Context) error { t.Error("a handler ran"); return nil }
	if opts, ok := accepted[etcdclaims.AcquireOption](opts); ok {
		_, err1 := c.TryAcquire(t.ctx, key, opts...)
		_, err2 := c.Acquire(t.ctx, key, opts...)
		all = append(all,
			refusal{"TryAcquire", err1, want},
			refusal{"Acquire", err2, want},
			refusal{"TryRun", c.TryRun(t.ctx, key, never, opts...), want},
			refusal{"Run", c.Run(t.ctx, key, never, opts...), want},
		)
	}
	if opts, ok := accepted[work.Option](opts); ok {
		_, err1 := t.works(c).TryBegin(t.ctx, key, opts...)
		_, err2 := t.works(c).Begin(t.ctx, key, opts...)
		all = append(all, refusal{"TryBegin", err1, want}, refusal{"Begin", err2, want})
	}
	if opts, ok := accepted[etcdclaims.AllOption](opts); ok {
		_, err := c.TryAcquireAll(t.ctx, []string{key}, opts...)
		all = append(all, refusal{"TryAcquireAll", err, want})
	}
	if opts, ok := accepted[etcdclaims.ManyOption](opts); ok {
		_, errs := c.TryAcquireEach(t.ctx, []string{key}, opts...)
		all = append(all, refusal{"TryAcquireEach", errs[0], want})
	}
	return all
}

// accepted returns the options as those of one kind of call, if it accepts them all.
func accepted[O any](opts []any) (of []O, ok bool) {
	for _, opt := range opts {
		o, ok := opt.(O)
		if !ok {
			return nil, false
		}
		of = append(of, o)
	}
	return of, true
}
