package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

// ledger writes down what the hooks of a client are told.
type ledger struct {
	mu     sync.Mutex
	lines  []string
	opened int
	kinds  map[string]int
	failed int
}

type valueKey struct{}

func (l *ledger) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last time.
func (l *ledger) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func (l *ledger) hooks() etcdclaims.Hooks {
	return etcdclaims.Hooks{
		CallBegan: func(ctx context.Context, call etcdclaims.Call) context.Context {
			if call.Key == "unobserved" {
				return ctx
			}
			return context.WithValue(ctx, followerKey{}, &follower{l: l, call: call})
		},
		CallEnded: followed((*follower).returned),
		TermBegan: followed((*follower).began),
		TermEnded: followed((*follower).ended),
		Context: func(ctx, work context.Context) context.Context {
			if f := followerOf(ctx); f != nil {
				return context.WithValue(work, valueKey{}, f.call.Key)
			}
			return work
		},
		Trace: func(ctx context.Context) string {
			if f := followerOf(ctx); f != nil {
				return "trace of " + f.call.Key
			}
			return ""
		},
		Requested: func(r etcdclaims.Request) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.kinds == nil {
				l.kinds = map[string]int{}
			}
			l.kinds[r.Kind]++
			if r.Err != nil {
				l.failed++
			}
		},
		Opened: func(*etcdclaims.Client) func() {
			l.opened++
			return func() { l.opened-- }
		},
	}
}

// follower is what the hooks of one call keep in its context.
type follower struct {
	l    *ledger
	call etcdclaims.Call
	over bool
}

type followerKey struct{}

func followerOf(ctx context.Context) *follower {
	f, _ := ctx.Value(followerKey{}).(*follower)
	return f
}

// followed returns a hook that calls a method of the call's follower.
func followed[E any](method func(*follower, E)) func(context.Context, E) {
	return func(ctx context.Context, e E) {
		if f := followerOf(ctx); f != nil {
			method(f, e)
		}
	}
}

func (f *follower) began(term etcdclaims.TermInfo) {
	from := ""
	if term.Trace != "" {
		from = " from " + term.Trace
	}
	f.l.add("%s acquired: attempt %d, took over %v%s", term.Token.Key, term.Attempt, term.TookOver, from)
}

func (f *follower) returned(call etcdclaims.Call) {
	how := "ok"
	for _, is := range []error{etcdclaims.ErrHeld, work.ErrDone, context.DeadlineExceeded} {
		if errors.Is(call.Err, is) {
			how = is.Error()
		}
	}
	if (how == "ok") != (call.Err == nil) {
		how = call.Err.Error()
	}
	if call.Key != f.call.Key || call.Wait != f.call.Wait {
		f.l.add("%+v ended as %+v", f.call, call)
	}
	f.l.add("%s returned: wait %v, waited %v: %s", call.Key, call.Wait, call.Waited.Round(time.Second), how)
}

func (f *follower) ended(term etcdclaims.TermInfo) {
	if f.over {
		f.l.add("%s ended twice", f.call.Key)
	}
	f.over = true
	why := "released"
	var lost *etcdclaims.LostError
	if errors.As(term.Err, &lost) {
		why = "lost: " + lost.Reason.String()
	}
	f.l.add("%s ended: held %v, work %q, %s", term.Token.Key, term.Held.Round(time.Second), term.Outcome, why)
}

// onLoss returns hooks that call f for each term that is lost.
func onLoss(f func(*etcdclaims.LostError)) etcdclaims.Hooks {
	return etcdclaims.Hooks{TermEnded: func(_ context.Context, term etcdclaims.TermInfo) {
		var lost *etcdclaims.LostError
		if errors.As(term.Err, &lost) {
			f(lost)
		}
	}}
}

func expect(t *testing.T, l *ledger, want ...string) {
	t.Helper()
	if got := l.take(); !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	virtualCase(t, "claims", func(t *testing.T, w *world) {
		var l ledger
		c, _ := w.client(etcdclaims.Config{Hooks: l.hooks()})
		cl, err := c.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.peer().TryAcquire(t.Context(), "k") // without hooks
		if _, err := c.TryAcquire(t.Context(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Fatal(err)
		}
		shared, err := c.TryAcquire(t.Context(), "k", etcdclaims.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		bound, unbind := shared.Bind(t.Context())
		if bound.Value(valueKey{}) != "k" || cl.Context().Value(valueKey{}) != "k" {
			t.Error("the contexts do not carry what the hook adds")
		}
		unbind()
		time.Sleep(3 * sec)
		_ = shared.Release(t.Context())
		_ = cl.Release(t.Context())
		expect(t, &l,
			"k acquired: attempt 0, took over false", "k returned: wait false, waited 0s: ok",
			"k returned: wait false, waited 0s: etcdclaims: held by another",
			"k returned: wait false, waited 0s: ok",
			`k ended: held 3s, work "", released`)
		if _, err := c.TryAcquire(t.Context(), ""); err == nil {
			t.Error("no error for an empty key")
		}
		unobserved, err := c.TryAcquire(t.Context(), "unobserved")
		if err != nil || unobserved.Context().Value(valueKey{}) != nil {
			t.Error("observed by nobody: ", err)
		}
		_ = unobserved.Release(t.Context())
		expect(t, &l)
		if l.kinds["txn"] == 0 || l.kinds["lease_grant"] == 0 || l.failed > 0 {
			t.Error("requests: ", l.kinds, l.failed)
		}
	})

	virtualCase(t, "hand-over", func(t *testing.T, w *world) {
		var l ledger
		a, _ := w.client(etcdclaims.Config{Hooks: l.hooks()})
		b, _ := w.client(etcdclaims.Config{Hooks: l.hooks()})
		traced := 0
		for i, next := range []*etcdclaims.Client{b, b, b, b, b, a} {
			name := fmt.Sprint("k", i)
			cl, err := a.TryAcquire(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan *etcdclaims.Claim)
			go func() {
				cl, err := next.Acquire(t.Context(), name)
				if err != nil {
					t.Error(err)
				}
				done <- cl
			}()
			time.Sleep(2 * sec)
			if st := next.Stats(); st.Waiting != 1 {
				t.Errorf("%d wait", st.Waiting)
			}
			if st := a.Stats(); st.Oldest.Round(sec) != 2*sec {
				t.Errorf("the oldest claim is %v old", st.Oldest)
			}
			l.take()
			_ = cl.Release(t.Context())
			second := <-done
			lines := l.take()
			slices.Sort(lines) // the two clients are not in step
			from := " from trace of " + name
			switch {
			case slices.ContainsFunc(lines, func(line string) bool { return strings.HasSuffix(line, from) }):
				traced++
			case next == b:
				from = "" // it saw the key before the notice
			}
			want := []string{
				name + " acquired: attempt 0, took over false" + from,
				name + ` ended: held 2s, work "", released`,
				name + " returned: wait true, waited 2s: ok",
			}
			if !slices.Equal(lines, want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(lines, "\n\t"), strings.Join(want, "\n\t"))
			}
			_ = second.Release(t.Context())
			l.take()
		}
		if traced == 0 { // within one client it always comes
			t.Errorf("%d of 6 hand-overs have a trace", traced)
		}
	})

	virtualCase(t, "work", func(t *testing.T, w *world) {
		var l ledger
		c, _ := w.client(etcdclaims.Config{Hooks: l.hooks()})
		job, err := works(c).TryBegin(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		w.Server.Revoke(t, w.Own("w")) // as if its owner had died
		<-job.Done()
		time.Sleep(time.Millisecond) // the hook is told after that
		expect(t, &l,
			"w acquired: attempt 1, took over false", "w returned: wait false, waited 0s: ok",
			`w ended: held 0s, work "", lost: lease revoked`)
		err = works(c).TryRun(t.Context(), "w", func(ctx context.Context, _ *work.Work) error {
			if ctx.Value(valueKey{}) != "w" {
				t.Error("the handler's context does not carry what the hook adds")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = works(c).TryBegin(t.Context(), "w")
		if !errors.Is(err, work.ErrDone) {
			t.Fatal(err)
		}
		_ = works(c).TryRun(t.Context(), "x", func(context.Context, *work.Work) error { return errors.New("no") })
		expect(t, &l,
			"w acquired: attempt 2, took over true", "w returned: wait false, waited 0s: ok",
			`w ended: held 0s, work "done", released`,
			"w returned: wait false, waited 0s: work: done",
			"x acquired: attempt 1, took over false", "x returned: wait false, waited 0s: ok",
			`x ended: held 0s, work "failed", released`)
	})

	virtualCase(t, "many keys", func(t *testing.T, w *world) {
		var l ledger
		c, _ := w.client(etcdclaims.Config{Hooks: l.hooks()})
		all, err := c.TryAcquireAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		each, errs := c.TryAcquireEach(t.Context(), []string{"a", "c", "c", ""})
		if errs[0] == nil || errs[1] != nil || errs[2] == nil || errs[3] == nil {
			t.Fatal(errs)
		}
		expect(t, &l,
			"a acquired: attempt 0, took over false", "b acquired: attempt 0, took over false",
			"a returned: wait false, waited 0s: ok", "b returned: wait false, waited 0s: ok",
			"c acquired: attempt 0, took over false",
			"a returned: wait false, waited 0s: etcdclaims: held by another", "c returned: wait false, waited 0s: ok")
		_, _ = all[0].Key(), each[1].Key()
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := l.take()
		slices.Sort(lines)
		for i, key := range []string{"a", "b", "c"} {
			if want := key + ` ended: held 0s, work "", lost: shut down`; i >= len(lines) || lines[i] != want {
				t.Errorf("got %q, want %s", lines, want)
			}
		}
		if l.opened != 0 {
			t.Errorf("opened %d more often than closed", l.opened)
		}
	})

	virtualCase(t, "lost while it begins", func(t *testing.T, w *world) {
		var l ledger
		hooks := l.hooks()
		began := hooks.TermBegan
		hooks.TermBegan = func(ctx context.Context, term etcdclaims.TermInfo) {
			w.Server.Revoke(t, w.Own("k"))
			time.Sleep(sec)
			began(ctx, term)
		}
		c, _ := w.client(etcdclaims.Config{Hooks: hooks})
		cl, err := c.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		lossOf(t, cl.Err(), etcdclaims.ReasonRevoked)
		expect(t, &l,
			"k acquired: attempt 0, took over false",
			`k ended: held 0s, work "", lost: lease revoked`,
			"k returned: wait false, waited 0s: ok")
	})

	virtualCase(t, "the context of hooks outlives that of the call", func(t *testing.T, w *world) {
		var l ledger
		hooks := l.hooks()
		ended := hooks.TermEnded
		hooks.TermEnded = func(ctx context.Context, term etcdclaims.TermInfo) {
			if _, limited := ctx.Deadline(); limited || ctx.Err() != nil || ctx.Value(valueKey{}) != "of the caller" {
				t.Errorf("TermEnded got %v", ctx)
			}
			ended(ctx, term)
		}
		c, _ := w.client(etcdclaims.Config{Hooks: hooks})
		for _, acquire := range []func(context.Context, string) (*etcdclaims.Claim, error){
			func(ctx context.Context, key string) (*etcdclaims.Claim, error) { return c.TryAcquire(ctx, key) },
			func(ctx context.Context, key string) (*etcdclaims.Claim, error) { return c.Acquire(ctx, key) },
			func(ctx context.Context, key string) (*etcdclaims.Claim, error) {
				all, err := c.TryAcquireAll(ctx, []string{key})
				return append(all, nil)[0], err
			},
		} {
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "of the caller"), sec)
			cl, err := acquire(ctx, "k")
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			release(t, cl)
		}
		if n := len(l.take()); n != 9 {
			t.Errorf("%d lines", n)
		}
	})
}
