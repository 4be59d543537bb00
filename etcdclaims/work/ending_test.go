package work_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// One of many concurrent endings counts, with its effect.
func TestWorkEndedConcurrently(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, config{})
	data := testetcd.Prefix(t)
	for round := range 5 {
		key := fmt.Sprint(round)
		w := tryBegin(t, a, key)
		errs := make(chan error, 8)
		for i := range cap(errs) {
			go func() { errs <- w.Complete(ctx, clientv3.OpPut(fmt.Sprint(data, key, "/", i), "")) }()
		}
		done := 0
		for range cap(errs) {
			switch err := <-errs; {
			case err == nil:
				done++
			case !errors.Is(err, etcdclaims.ErrReleased):
				t.Error(err)
			}
		}
		resp, err := etcd.Get(ctx, data+key+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		noErr(t, err)
		if resp.Count != 1 || done != 1 {
			t.Errorf("%d endings had an effect, and %d returned nil", resp.Count, done)
		}
	}
	if s := a.Stats(); s.Completed != 5 || s.Released != 5 {
		t.Errorf("stats %+v", s)
	}
}

func TestWorkFailWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx := t.Context()
		var asked []int
		a, b, _ := twoOwners(t, server.Etcd(t), config{
			MaxAttempts: 3,
			Backoff: func(attempt int) time.Duration {
				asked = append(asked, attempt)
				return time.Duration(attempt) * time.Minute
			},
		})
		for attempt, c := range []*client{a, b} {
			attempt++
			w := tryBegin(t, c, "k")
			if w.Attempt() != attempt {
				t.Fatalf("attempt %d, want %d", w.Attempt(), attempt)
			}
			failed := time.Now()
			noErr(t, failing(ctx, w, fmt.Errorf("reason %d", attempt)))
			wait := time.Duration(attempt) * time.Minute
			for _, begin := range []func(context.Context, string, ...work.Option) (*work.Work, error){a.TryBegin, b.TryBegin, b.Begin} {
				_, err := begin(ctx, "k")
				r := recordOf(t, err, work.ErrBackoff)
				if d := r.NotBefore.Sub(failed); d < wait || d > wait+time.Second || r.State != work.StateFailed ||
					r.Error != fmt.Sprintf("reason %d", attempt) || r.Attempt != attempt || r.Fence != w.Fence() {
					t.Errorf("record %+v, waits for %v", r, d)
				}
			}
			time.Sleep(wait - 2*time.Second)
			_, err := a.TryBegin(ctx, "k")
			wantIs(t, err, work.ErrBackoff)
			time.Sleep(3 * time.Second)
		}
		w := tryBegin(t, a, "k")
		if r, ok := w.Previous(); !ok || r.State != work.StateFailed || r.Error != "reason 2" || r.Owner != "b" || r.Attempt != 2 {
			t.Errorf("previous %+v, %v", r, ok)
		}
		noErr(t, failing(ctx, w, errors.New("last")))
		_, err := b.TryBegin(ctx, "k")
		if r := recordOf(t, err, work.ErrDead); r.State != work.StateDead || r.Attempt != 3 || r.Error != "last" {
			t.Errorf("record %+v", r)
		}
		if fmt.Sprint(asked) != "[1 2]" {
			t.Errorf("backoff was asked for %v", asked)
		}
		time.Sleep(time.Hour)
		_, err = b.TryBegin(ctx, "k")
		wantIs(t, err, work.ErrDead)
	})
}

func TestWorkRetryAfter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx := t.Context()
		a, b, _ := twoOwners(t, server.Etcd(t), config{Backoff: func(int) time.Duration { return time.Hour }})
		cause := errors.New("busy")
		noErr(t, failing(ctx, tryBegin(t, a, "k"), fmt.Errorf("outer: %w", etcdclaims.RetryAfter(cause, time.Minute))))
		_, err := b.TryBegin(ctx, "k")
		if r := recordOf(t, err, work.ErrBackoff); r.Error != "outer: busy" || time.Until(r.NotBefore) > time.Minute {
			t.Errorf("record %+v", r)
		}
		time.Sleep(time.Minute + time.Second)
		w := tryBegin(t, b, "k")
		noErr(t, failing(ctx, w, etcdclaims.RetryAfter(cause, -time.Minute))) // at once
		time.Sleep(time.Second)
		if w := tryBegin(t, a, "k"); w.Attempt() != 3 {
			t.Errorf("attempt %d", w.Attempt())
		}
	})
}

func TestWorkPermanent(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, config{MaxAttempts: -1})
	data := testetcd.Prefix(t)
	cause := errors.New("no such customer")
	noErr(t, failing(ctx, tryBegin(t, a, "k"), fmt.Errorf("outer: %w", etcdclaims.Permanent(cause)), clientv3.OpPut(data+"x", "")))
	_, err := b.TryBegin(ctx, "k")
	if r := recordOf(t, err, work.ErrDead); r.Error != "outer: no such customer" || r.Attempt != 1 {
		t.Errorf("record %+v", r)
	}
	_, err = b.Begin(ctx, "k")
	wantIs(t, err, work.ErrDead)
	if rawKV(t, etcd, data+"x") == nil {
		t.Error("the failure's own operation was not carried out")
	}
	if kv := rawKV(t, etcd, prefix+"work/k"); kv == nil || kv.Lease == 0 {
		t.Errorf("dead work must not be kept for ever: %v", kv)
	}
	if rawKV(t, etcd, prefix+"own/k") != nil {
		t.Error("dead work is held")
	}
	noErr(t, failing(ctx, tryBegin(t, a, "nil cause"), nil))
	if r, ok, err := a.Record(ctx, "nil cause"); err != nil || !ok || r.State != work.StateFailed || r.Error == "" {
		t.Errorf("record %+v, %v, %v", r, ok, err)
	}
	noErr(t, failing(ctx, tryBegin(t, a, "long"), errors.New(strings.Repeat("x", 1<<20))))
	if r, _, err := a.Record(ctx, "long"); err != nil || len(r.Error) > 5000 || len(r.Error) < 4000 {
		t.Errorf("a text of %d bytes is recorded, %v", len(r.Error), err)
	}
}

func TestWorkNoLimitOfAttempts(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, config{MaxAttempts: -1})
	for i := range 25 {
		w := tryBegin(t, a, "k")
		if w.Attempt() != i+1 {
			t.Fatalf("attempt %d, want %d", w.Attempt(), i+1)
		}
		noErr(t, failing(ctx, w, etcdclaims.RetryAfter(errors.New("again"), 0)))
	}
}

// Fail returns what is recorded.
func TestFailReturnsTheOutcome(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{MaxAttempts: 2, Backoff: func(n int) time.Duration { return time.Duration(n) * time.Millisecond }})
	w := tryBegin(t, a, "k", etcdclaims.Note([]byte("what it is")))
	got, err := w.Fail(ctx, errors.New("first"), clientv3.OpPut(testetcd.Prefix(t)+"x", ""))
	noErr(t, err)
	if got.State != work.StateFailed || got.Attempt != 1 || got.Error != "first" || !got.NotBefore.After(got.Ended) || got.Note != "what it is" {
		t.Errorf("outcome %+v", got)
	}
	if r, _, err := b.Record(ctx, "k"); err != nil || r != got {
		t.Errorf("recorded %+v, returned %+v, %v", r, got, err)
	}
	time.Sleep(10 * time.Millisecond)
	got, err = tryBegin(t, b, "k").Fail(ctx, errors.New("second"))
	noErr(t, err)
	if got.State != work.StateDead || got.Attempt != 2 || !got.NotBefore.IsZero() {
		t.Errorf("outcome %+v", got)
	}
	none := newClient(t, nil, config{})
	w, err = none.TryBegin(ctx, "k")
	noErr(t, err)
	if got, err := w.Fail(ctx, etcdclaims.Permanent(errors.New("x"))); err != nil || got.State != work.StateDead {
		t.Errorf("outcome without etcd %+v, %v", got, err)
	}
}

// Long errors are cut between runes, and stored as far as is documented.
func TestFailCutsBetweenRunes(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, config{})
	const most = 4 << 10 // bytes
	for shift := range 4 {
		for _, unit := range []string{"x", "ä", "€", "😀", "x\xff"} {
			text := strings.Repeat("-", shift) + strings.Repeat(unit, most+1)
			key := fmt.Sprintf("%d %q", shift, unit)
			noErr(t, failing(ctx, tryBegin(t, a, key), errors.New(text)))
			r, _, err := a.Record(ctx, key)
			noErr(t, err)
			if len(r.Error) > most || len(r.Error) < most-8 || !utf8.ValidString(r.Error) || !strings.HasSuffix(r.Error, "…") {
				t.Errorf("%s: %d bytes are stored, ending in %q", key, len(r.Error), r.Error[len(r.Error)-8:])
			}
			if unit != "x\xff" && strings.ContainsRune(r.Error, utf8.RuneError) {
				t.Errorf("%s: a rune was cut", key)
			}
		}
	}
	exact := strings.Repeat("€", most/3)
	noErr(t, failing(ctx, tryBegin(t, a, "exact"), errors.New(exact)))
	if r, _, err := a.Record(ctx, "exact"); err != nil || r.Error != exact {
		t.Errorf("a text within the limit was changed: %d bytes, %v", len(r.Error), err)
	}
}

// Operations are carried out with the end of the work, or the caller learns that they were not: work
// that has ended before takes none.
func TestReleaseWithAfterTheEnd(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx, c := context.Background(), w.peer()
		job := tryBegin(t, c, "k")
		noErr(t, job.Release(ctx))
		noErr(t, job.Release(ctx)) // as a claim
		wantIs(t, job.ReleaseWith(ctx, clientv3.OpPut("/effect", "x")), etcdclaims.ErrReleased)
		if resp, err := w.Raw.Get(ctx, "/effect"); err != nil || resp.Count != 0 {
			t.Errorf("%v, %v", resp, err)
		}
	})
}

// Once Run has returned, its key becomes free, even if etcd does not accept the
// outcome: nobody has the handle any more.
func TestRunLeavesNoClaim(t *testing.T) {
	t.Parallel()
	cancelled := func(ctx context.Context, cancel func()) error { cancel(); return ctx.Err() }
	for name, tt := range map[string]struct {
		fn     func(ctx context.Context, cancel func()) error
		refuse func(w *world, host *claimtest.Host) // while the handler runs
		want   work.State                           // of the record at the end; empty if no record is left
	}{
		"no leader, failed":   {func(context.Context, func()) error { return errors.New("x") }, noLeaderFor5s, work.StateFailed},
		"no leader, released": {cancelled, noLeaderFor5s, ""},
		"denied, completed": {func(context.Context, func()) error { return nil }, func(_ *world, host *claimtest.Host) {
			host.Inject(claimtest.Fault{On: claimtest.Ending, Times: -1, Code: codes.PermissionDenied})
		}, work.StateOrphaned},
		"no lease at first, failed": {func(context.Context, func()) error {
			return etcdclaims.RetryAfter(errors.New("x"), time.Minute*3) // the record needs a longer lease
		}, func(_ *world, host *claimtest.Host) {
			i := host.Inject(claimtest.Fault{On: claimtest.Grant, Times: -1, LoseRequest: true})
			time.AfterFunc(4*sec, i.Remove)
		}, work.StateFailed},
		"no space, completed": {func(context.Context, func()) error { return nil }, func(w *world, _ *claimtest.Host) {
			time.Sleep(time.Minute) // the record needs another lease
			w.Server.FillQuota(w.T)
			time.AfterFunc(time.Minute, func() { w.Server.FreeQuota(w.T) })
		}, work.StateOrphaned},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c, host := w.client(config{TTL: 15 * sec, Backoff: func(int) time.Duration { return 0 }, Retention: time.Minute, DeadRetention: 5 * time.Minute})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			err := c.Runner.TryRun(ctx, "k", func(ctx context.Context, _ *work.Work) error {
				tt.refuse(w, host)
				return tt.fn(ctx, cancel)
			})
			if err == nil {
				t.Error("no error")
			}
			time.Sleep(4 * time.Minute)
			if i := lookUp(t, w.peer(), "k"); i.Held || c.Stats().Held != 0 {
				t.Errorf("held until %v; the client holds %d", i.Expires, c.Stats().Held)
			}
			if r, _, err := c.Record(context.Background(), "k"); err != nil || r.State != tt.want {
				t.Errorf("record %+v, %v; want it to be %q", r, err, tt.want)
			}
			host.RemoveFaults()
			tryBegin(t, c, "k")
		})
	}
}

func noLeaderFor5s(_ *world, host *claimtest.Host) {
	time.AfterFunc(5*sec, host.Inject(claimtest.Fault{On: claimtest.Ending, Times: -1, Err: rpctypes.ErrGRPCNoLeader}).Remove)
}
