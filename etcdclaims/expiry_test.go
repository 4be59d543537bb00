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
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Whoever finds a key held is told until when at the latest, should its holder be
// dead.
func TestExpires(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		tryClaim(t, a, "k", etcdclaims.TTL(30*sec))
		time.Sleep(4 * sec)
		var held *etcdclaims.HeldError
		_, err := b.TryAcquire(ctx, "k")
		if !errors.As(err, &held) || time.Until(held.Info.Expires) != 30*sec {
			t.Fatalf("%v: %+v", err, held)
		}
		if i := lookUp(t, b, "k"); !near(time.Until(i.Expires), 26*sec, sec) || i.TTL == 0 {
			t.Errorf("looked up %+v", i)
		}
		for i, err := range b.List(ctx, "") {
			if err != nil || time.Until(i.Expires) != 30*sec {
				t.Errorf("listed %+v, %v", i, err)
			}
		}
		_, _, err = locks.New(b).TryAcquire(ctx, "lock", "me", time.Minute)
		noErr(t, err)
		_, err = a.TryAcquire(ctx, "lock")
		if !errors.As(err, &held) || time.Until(held.Info.Expires) != time.Minute {
			t.Errorf("%v: %+v", err, held)
		}
	})
}

func TestLine(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	if l, err := admin.Line(ctx, a, "k"); err != nil || len(l) != 0 {
		t.Errorf("the line of a free key: %v, %v", l, err)
	}
	cl := tryClaim(t, a, "k")
	before := time.Now()
	waiting, stop := context.WithCancel(ctx)
	done := make(chan error)
	for i := range 5 {
		c := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: fmt.Sprint("waiter ", i)})
		go func() {
			_, err := c.Acquire(waiting, "k")
			done <- err
		}()
		eventually(t, "it stands in line", func() bool { return lookUp(t, a, "k").Waiting == int64(i+1) })
	}
	line, err := admin.Line(ctx, a, "k")
	noErr(t, err)
	for i, p := range line {
		if p.Owner != fmt.Sprint("waiter ", i) || p.Instance == "" || p.Claim == "" || p.Lease == 0 || p.Since.Before(before.Add(-time.Second)) || i > 0 && p.Since.Before(line[i-1].Since) {
			t.Errorf("place %d is %+v", i, p)
		}
	}
	if len(line) != 5 {
		t.Errorf("%d wait", len(line))
	}
	stop()
	for range 5 {
		wantIs(t, <-done, context.Canceled)
	}
	noErr(t, cl.Release(ctx))
	_, err = admin.Line(ctx, a, "")
	wantIs(t, err, etcdclaims.ErrInvalidKey)
}

// Who waited in vain is told who holds the key; or that the client was closed, or
// that etcd has not answered.
func TestWaitErrors(t *testing.T) {
	t.Parallel()
	oneLine := func(t *testing.T, err error, says ...string) {
		t.Helper()
		text := err.Error()
		for _, s := range says {
			if !strings.Contains(text, s) {
				t.Errorf("%q does not say %q", text, s)
			}
		}
		if strings.Contains(text, "\n") || strings.Count(text, "etcdclaims:") > 1 || strings.Contains(text, "fence 0") {
			t.Errorf("%q", text)
		}
		t.Log(text)
	}
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		holder, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "api-7"})
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "here"})
		tryClaim(t, holder, "x")
		short, cancel := context.WithTimeout(ctx, 3*sec)
		defer cancel()
		_, err := c.Acquire(short, "x")
		wantIs(t, err, context.DeadlineExceeded)
		var wait *etcdclaims.WaitError
		if !errors.As(err, &wait) || wait.Info.Owner != "api-7" || errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("%v: %+v", err, wait)
		}
		oneLine(t, err, `acquire "x": held by api-7 since `, "context deadline exceeded")
		_, err = works(c).Begin(short, "x")
		wantIs(t, err, context.DeadlineExceeded)
		oneLine(t, err, `acquire "x": `)

		// Within one client.
		tryClaim(t, c, "own")
		short, cancel = context.WithTimeout(ctx, sec)
		defer cancel()
		_, err = c.Acquire(short, "own")
		wantIs(t, err, context.DeadlineExceeded)
		oneLine(t, err, `acquire "own": held by here (this client) since `)

		// While etcd does not answer.
		fresh, cut := w.client(etcdclaims.Config{TTL: 15 * sec})
		cut.Cut()
		for _, acquire := range []func(context.Context, string, ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error){fresh.Acquire, fresh.TryAcquire} {
			short, cancel = context.WithTimeout(ctx, 2*sec)
			_, err = acquire(short, "x")
			cancel()
			wantIs(t, err, context.DeadlineExceeded)
			oneLine(t, err, `acquire "x": `, "etcd has not answered")
		}
		waiting := make(chan error)
		long, cancel := context.WithTimeout(ctx, 30*sec)
		defer cancel()
		go func() { _, err := c.Acquire(long, "x"); waiting <- err }()
		time.Sleep(sec)
		host.Cut()
		err = <-waiting // the session is lost, and there is no other
		wantIs(t, err, context.DeadlineExceeded)
		oneLine(t, err, `acquire "x": `)
		host.Heal()

		// And when the client is closed.
		go func() { _, err := c.Acquire(ctx, "x"); waiting <- err }()
		time.Sleep(sec)
		noErr(t, c.Close(ctx))
		err = <-waiting
		wantIs(t, err, etcdclaims.ErrClosed)
		oneLine(t, err, `acquire "x": client is closed`)
		_, err = c.TryAcquire(ctx, "x")
		oneLine(t, err, `acquire "x": client is closed`)
	})
}

// One prefix, once, whatever wraps what.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		&etcdclaims.HeldError{Info: etcdclaims.Info{Key: "k", Held: true, Owner: "api-7", Fence: 7}}:                                `acquire "k": held by api-7 (fence 7)`,
		&etcdclaims.HeldError{Info: etcdclaims.Info{Key: "k"}}:                                                                      `acquire "k": free but others wait in line for it: use Acquire to join them`,
		&etcdclaims.HeldError{Info: etcdclaims.Info{Key: "k", Held: true, Kind: "slots", Slots: 1}}:                                 `acquire "k": divided into 1 slot: use Slots(1)`,
		&etcdclaims.HeldError{Info: etcdclaims.Info{Key: "k", Held: true, Kind: "shared", Shared: 1, Fence: 7}}:                     `acquire "k": shared by 1 caller (fence 7)`,
		&etcdclaims.HeldError{Info: etcdclaims.Info{Key: "k", Held: true, Owner: "api-7", Slots: 1, Fence: 7}}:                      `acquire "k": held in its only slot by api-7 (fence 7)`,
		&work.Error{Record: work.Record{Key: "k", State: work.StateDead, Attempt: 2, Error: "a\nb\r\nc"}}:                           `begin work "k": dead after attempt 2: a; b; c`,
		&etcdclaims.LostError{Token: tokenFor("k", 0), Reason: etcdclaims.ReasonSessionDead, Err: errors.New("etcdclaims: x")}:      `acquire "k": the attempt was lost: session dead: x; call again`,
		&etcdclaims.LostError{Token: tokenFor("k", 7), Reason: etcdclaims.ReasonExpired, Err: errors.New("x\ny")}:                   `etcdclaims: claim on "k" (fence 7) lost: expired: x; y`,
		&etcdclaims.WaitError{Key: "k", Err: context.DeadlineExceeded}:                                                              `acquire "k": others are before it in line: context deadline exceeded`,
		&work.Error{Record: work.Record{Key: "k", State: work.StateDead, Attempt: 2, Error: "x"}, Err: errors.New("etcdclaims: y")}: `run work "k": dead after attempt 2: y`,
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// An error of a claim that was released, and one for a key that the client itself holds,
// name the call and the key.
func TestErrorTextsOfCalls(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, _ := w.client(etcdclaims.Config{Owner: "api-7"})
		other, _ := w.client(etcdclaims.Config{Owner: "api-8"})
		ctx := t.Context()
		says := func(err, is error, want string) {
			t.Helper()
			wantIs(t, err, is)
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q, want %q", err, want)
			}
		}
		cl, err := c.TryAcquire(ctx, "x")
		noErr(t, err)
		_, err = c.TryAcquire(ctx, "x")
		says(err, etcdclaims.ErrHeld, `acquire "x": held by api-7 (this client) since `)
		_, err = other.TryAcquire(ctx, "x")
		says(err, etcdclaims.ErrHeld, `acquire "x": held by api-7 since `)
		brief, cancel := context.WithTimeout(ctx, sec)
		defer cancel()
		_, err = c.Acquire(brief, "x")
		says(err, context.DeadlineExceeded, `acquire "x": held by api-7 (this client) since `)
		noErr(t, cl.Release(ctx))

		_, err = cl.Txn(ctx).Commit()
		says(err, etcdclaims.ErrReleased, `commit under the claim on "x": claim was released`)
		says(cl.Note(ctx, nil), etcdclaims.ErrReleased, `note "x": claim was released`)
		says(cl.Renew(ctx), etcdclaims.ErrReleased, `renew "x": claim was released`)
		says(cl.Run(ctx, func(context.Context) error { return nil }), etcdclaims.ErrReleased, `run "x": claim was released`)
		says(cl.Note(ctx, make([]byte, etcdclaims.MaxNoteBytes+1)), etcdclaims.ErrTooLarge, `note "x": `)

		work, err := works(c).TryBegin(ctx, "y")
		noErr(t, err)
		says(works(other).Forget(ctx, "y"), etcdclaims.ErrHeld, `forget "y": held by api-7 since `)
		_, err = works(c).Retry(ctx, "y")
		says(err, etcdclaims.ErrHeld, `retry "y": held by api-7 (this client) since `)
		if held := new(etcdclaims.HeldError); !errors.As(err, &held) || held.Info.Owner != "api-7" {
			t.Errorf("%v is no *HeldError", err)
		}
		noErr(t, work.Complete(ctx))
		says(work.Complete(ctx), etcdclaims.ErrReleased, `end work "y": completed already, in attempt 1`)
		_, err = work.Fail(ctx, errors.New("no"))
		says(err, etcdclaims.ErrReleased, `end work "y": completed already, in attempt 1`)

		never := etcdclaims.If(clientv3.Compare(clientv3.Version("z"), "=", 1))
		_, err = c.TryAcquire(ctx, "z", never)
		says(err, etcdclaims.ErrRefused, `acquire "z": a given condition does not hold`)
		_, err = c.TryAcquireAll(ctx, []string{"z", "zz"}, never)
		says(err, etcdclaims.ErrRefused, `acquire "z": a given condition does not hold`)
	})
}
