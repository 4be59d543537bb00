package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestErrorsMatch(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	all := []error{
		etcdclaims.ErrHeld, etcdclaims.ErrRefused, etcdclaims.ErrLost, etcdclaims.ErrReleased, etcdclaims.ErrUnknown,
		work.ErrDone, work.ErrDead, work.ErrBackoff, etcdclaims.ErrClosed, etcdclaims.ErrNoClient, etcdclaims.ErrInvalidKey,
		etcdclaims.ErrTooLarge, etcdclaims.ErrRewound, etcdclaims.ErrPassthrough, context.Canceled, cause,
	}
	record := func(s work.State) error {
		return &work.Error{Record: work.Record{Key: "the key", State: s, Attempt: 3, Owner: "owner", Error: "broken"}}
	}
	for _, tt := range []struct {
		err  error
		want []error
		says []string
	}{
		{&etcdclaims.HeldError{Info: etcdclaims.Info{Key: "the key", Held: true, Owner: "owner", Fence: 7}}, []error{etcdclaims.ErrHeld}, []string{`"the key"`, "owner", "fence 7"}},
		{&etcdclaims.HeldError{Info: etcdclaims.Info{Key: "the key", Waiting: 2}}, []error{etcdclaims.ErrHeld}, []string{`"the key"`, "line"}},
		{
			&etcdclaims.LostError{Token: tokenFor("the key", 7), Reason: etcdclaims.ReasonExpired, Err: cause},
			[]error{etcdclaims.ErrLost, context.Canceled, cause},
			[]string{`"the key"`, "fence 7", "expired", "cause"},
		},
		{&etcdclaims.LostError{Reason: etcdclaims.ReasonMaxHold}, []error{etcdclaims.ErrLost, context.Canceled}, []string{"held for its maximum"}},
		{record(work.StateDone), []error{work.ErrDone}, []string{`"the key"`, "done by owner", "attempt 3"}},
		{record(work.StateDead), []error{work.ErrDead}, []string{`"the key"`, "dead", "attempt 3", "broken"}},
		{record(work.StateFailed), []error{work.ErrBackoff}, []string{`"the key"`, "waiting until", "attempt 3", "broken"}},
		{etcdclaims.Permanent(cause), []error{cause}, []string{"cause"}},
		{etcdclaims.RetryAfter(cause, time.Minute), []error{cause}, []string{"cause"}},
	} {
		wrapped := fmt.Errorf("wrapped: %w", tt.err)
		for _, sentinel := range all {
			want := false
			for _, w := range tt.want {
				want = want || errors.Is(w, sentinel)
			}
			if errors.Is(wrapped, sentinel) != want {
				t.Errorf("%q matches %q: %v", tt.err, sentinel, !want)
			}
		}
		for _, s := range tt.says {
			if !strings.Contains(tt.err.Error(), s) {
				t.Errorf("%q does not say %q", tt.err, s)
			}
		}
	}
	for i, a := range all {
		for j, b := range all {
			if i != j && errors.Is(a, b) {
				t.Errorf("%q matches %q", a, b)
			}
		}
	}
	// Who knows of tokens alone understands these.
	for a, b := range map[error]error{
		etcdclaims.ErrHeld: fencing.ErrHeld, etcdclaims.ErrLost: fencing.ErrLost, etcdclaims.ErrUnknown: fencing.ErrUnknown,
		&etcdclaims.HeldError{}: fencing.ErrHeld, &etcdclaims.LostError{}: fencing.ErrLost, etcdclaims.ErrClosed: attach.ErrClosed,
	} {
		for _, other := range []error{fencing.ErrHeld, fencing.ErrLost, fencing.ErrUnknown, fencing.ErrStale, attach.ErrClosed} {
			if got, want := errors.Is(fmt.Errorf("wrapped: %w", a), other), errors.Is(b, other); got != want {
				t.Errorf("%q matches %q: %v", a, other, got)
			}
		}
	}
	since := time.Now()
	held := &etcdclaims.HeldError{Info: etcdclaims.Info{Key: "k", Held: true, Owner: "owner", Fence: 7, Since: since}}
	if owner, fence, at := held.Holder(); owner != "owner" || fence != 7 || !at.Equal(since) {
		t.Errorf("holder: %v, %v, %v", owner, fence, at)
	}
	if etcdclaims.Permanent(nil) != nil || etcdclaims.RetryAfter(nil, time.Second) != nil {
		t.Error("a nil error does not stay nil")
	}
}

func TestReasonString(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for r := etcdclaims.ReasonExpired; r <= etcdclaims.ReasonNoProgress; r++ {
		if s := r.String(); s == "" || s == "unknown reason" || seen[s] {
			t.Errorf("reason %d is %q", r, s)
		}
		seen[r.String()] = true
	}
	for _, r := range []etcdclaims.Reason{0, -1, etcdclaims.ReasonNoProgress + 1} {
		if s := r.String(); s != "unknown reason" {
			t.Errorf("reason %d is %q", r, s)
		}
	}
}

// What a caller's context ended matches the cause that the caller gave, and
// what only knows contexts.
func TestErrorsOfEndedContext(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	tryClaim(t, a, "held")
	held := tryClaim(t, b, "mine")
	work := tryBegin(t, b, "work")
	why := errors.New("the user went away")
	calls := map[string]func(ctx context.Context) error{
		"TryAcquire":     func(ctx context.Context) error { _, err := b.TryAcquire(ctx, "k"); return err },
		"Acquire":        func(ctx context.Context) error { _, err := b.Acquire(ctx, "held"); return err },
		"Begin":          func(ctx context.Context) error { _, err := works(b).Begin(ctx, "held"); return err },
		"TryBegin":       func(ctx context.Context) error { _, err := works(b).TryBegin(ctx, "k"); return err },
		"TryAcquireAll":  func(ctx context.Context) error { _, err := b.TryAcquireAll(ctx, []string{"k"}); return err },
		"TryAcquireEach": func(ctx context.Context) error { _, errs := b.TryAcquireEach(ctx, []string{"k"}); return errs[0] },
		"Run":            func(ctx context.Context) error { return b.Run(ctx, "held", func(context.Context) error { return nil }) },
		"Lookup":         func(ctx context.Context) error { _, err := b.Lookup(ctx, "k"); return err },
		"Record":         func(ctx context.Context) error { _, _, err := works(b).Record(ctx, "k"); return err },
		"Orphans":        func(ctx context.Context) error { _, err := orphansOf(ctx, b, 0); return err },
		"ForceRelease":   func(ctx context.Context) error { return admin.ForceRelease(ctx, b, "k", "") },
		"Owns":           func(ctx context.Context) error { _, err := b.Owns(ctx, tokenFor("k", 1)); return err },
		"Claim.Owns":     func(ctx context.Context) error { _, err := held.Owns(ctx); return err },
		"Claim.Note":     func(ctx context.Context) error { return held.Note(ctx, nil) },
		"Claim.Renew":    func(ctx context.Context) error { return held.Renew(ctx) },
		"Claim.Txn":      func(ctx context.Context) error { _, err := held.Txn(ctx).Commit(); return err },
		"Work.Complete":  func(ctx context.Context) error { return work.Complete(ctx) },
		"Work.Fail":      func(ctx context.Context) error { return failing(ctx, work, why) },
		"Locks": func(ctx context.Context) error {
			_, _, err := locks.New(b).TryAcquire(ctx, "k", "me", time.Minute)
			return err
		},
	}
	for name, call := range calls {
		for _, late := range []bool{false, true} {
			if late && name != "Acquire" && name != "Begin" && name != "Run" {
				continue
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			if late {
				time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
			} else {
				cancel(why)
			}
			err := call(ctx)
			cancel(nil)
			if !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s (cancelled late: %v): %v matches the cause: %v, context.Canceled: %v", name, late, err, errors.Is(err, why), errors.Is(err, context.Canceled))
			}
			ctx, cancelDeadline := context.WithTimeoutCause(t.Context(), map[bool]time.Duration{true: 50 * time.Millisecond}[late], why)
			err = call(ctx)
			cancelDeadline()
			if !errors.Is(err, why) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s (deadline late: %v): %v matches the cause: %v, context.DeadlineExceeded: %v", name, late, err, errors.Is(err, why), errors.Is(err, context.DeadlineExceeded))
			}
			noErr(t, held.Check())
			noErr(t, work.Check())
		}
	}
	noErr(t, work.Complete(t.Context()))
}
