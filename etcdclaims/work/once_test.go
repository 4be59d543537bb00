package work_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
)

// once is Once or TryOnce.
type once func(ctx context.Context, key string, fn func(ctx context.Context) ([]byte, error), opts ...work.Option) ([]byte, bool, error)

func bothOnce(t *testing.T, f func(t *testing.T, w *world, run func(*client) once)) {
	t.Helper()
	virtualCase(t, "try", func(t *testing.T, w *world) {
		f(t, w, func(c *client) once { return c.TryOnce })
	})
	virtualCase(t, "wait", func(t *testing.T, w *world) {
		f(t, w, func(c *client) once { return c.Once })
	})
}

func returns(result string, err error) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(result), err }
}

// Whoever comes second is given what the first returned.
func TestOnceRemembers(t *testing.T) {
	t.Parallel()
	bothOnce(t, func(t *testing.T, w *world, run func(*client) once) {
		c, _ := w.client(config{TTL: 15 * sec, Retention: time.Minute})
		other := w.peer()
		result, first, err := run(c)(t.Context(), "k", func(ctx context.Context) ([]byte, error) {
			token, ok := fencing.FromContext(ctx)
			if !ok || token.Key != "k" || fencing.Check(ctx) != nil {
				t.Errorf("token %v, %v; Check: %v", token, ok, fencing.Check(ctx))
			}
			return []byte("one\xff"), nil
		})
		if string(result) != "one\xff" || !first || err != nil {
			t.Errorf("first: %q, %v, %v", result, first, err)
		}
		result, first, err = run(other)(t.Context(), "k", returns("two", nil))
		if string(result) != "one\xff" || first || err != nil {
			t.Errorf("second: %q, %v, %v", result, first, err)
		}
		r, ok, err := c.Record(t.Context(), "k")
		if err != nil || !ok || r.State != work.StateDone || r.Result != "one\xff" {
			t.Errorf("record: %+v, %v, %v", r, ok, err)
		}
		time.Sleep(70 * sec) // the retention, and a tenth of it
		if result, first, err = run(other)(t.Context(), "k", returns("two", nil)); string(result) != "two" || !first || err != nil {
			t.Errorf("when it is forgotten: %q, %v, %v", result, first, err)
		}
		w.closeClean(c, other)
	})
}

type givenBack struct{ error }

func (givenBack) GiveBack() bool  { return true }
func (g givenBack) Unwrap() error { return g.error }

func TestOnceFails(t *testing.T) {
	t.Parallel()
	bothOnce(t, func(t *testing.T, w *world, run func(*client) once) {
		c := w.peer()
		own := errors.New("own")
		f := func(key string, fn func(context.Context) ([]byte, error), want error, state work.State) {
			t.Helper()
			result, first, err := run(c)(t.Context(), key, fn)
			if result != nil || !first || !errors.Is(err, want) {
				t.Errorf("%s: %q, %v, %v, want %v", key, result, first, err, want)
			}
			r, _, err := c.Record(t.Context(), key)
			if err != nil || r.State != state {
				t.Errorf("%s: record %+v, %v, want %q", key, r, err, state)
			}
			w.Available(key, c.Client)
		}
		f("fails", returns("", own), own, work.StateFailed)
		f("dies", returns("", etcdclaims.Permanent(own)), own, work.StateDead)
		f("given back", returns("", fmt.Errorf("wrapped: %w", givenBack{own})), own, "")
		f("too large", returns(string(make([]byte, 64<<10+1)), nil), etcdclaims.ErrTooLarge, work.StateFailed)

		var job *work.Error
		_, first, err := run(c)(t.Context(), "fails", returns("", nil))
		if first || !errors.Is(err, work.ErrBackoff) || !errors.As(err, &job) {
			t.Fatalf("at once: %v, %v", first, err)
		}
		if at, ok := job.RetryAt(); !ok || !at.After(time.Now()) {
			t.Errorf("again at %v, %v", at, ok)
		}
		time.Sleep(2 * sec)
		if result, first, err := run(c)(t.Context(), "fails", returns("x", nil)); string(result) != "x" || !first || err != nil {
			t.Errorf("later: %q, %v, %v", result, first, err)
		}
		_, _, err = run(c)(t.Context(), "dies", returns("", nil))
		if !errors.Is(err, work.ErrDead) || !errors.As(err, &job) {
			t.Fatal(err)
		}
		if _, ok := job.RetryAt(); ok {
			t.Error("dead work may be begun again")
		}
		if _, first, err := run(c)(t.Context(), "given back", returns("", nil)); !first || err != nil {
			t.Errorf("given back: %v, %v", first, err)
		}
		if _, _, err := run(c)(t.Context(), "k", nil); err == nil {
			t.Error("no error for a nil function")
		}
	})
}

// A handler that does not return has failed.
func TestOncePanics(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){"panic": func() { panic("own") }, "Goexit": runtime.Goexit} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c := w.peer()
			left := make(chan any)
			go func() {
				defer func() { left <- recover() }()
				_, _, _ = c.TryOnce(context.Background(), "k", func(context.Context) ([]byte, error) { leave(); return nil, nil })
			}()
			if p := <-left; name == "panic" && p != "own" {
				t.Errorf("panic %v", p)
			}
			r, _, err := c.Record(t.Context(), "k")
			if err != nil || r.State != work.StateFailed || r.Error == "" {
				t.Errorf("record: %+v, %v", r, err)
			}
			w.Available("k", c.Client)
		})
	}
}

// What cannot be recorded is no success, and what was lost leaves no record.
func TestOnceIsNotRecorded(t *testing.T) {
	t.Parallel()
	virtualCase(t, "reply lost", func(t *testing.T, w *world) {
		c, host := w.client(config{TTL: 15 * sec})
		lost := host.Inject(claimtest.Fault{On: claimtest.Ending, LoseReply: true})
		result, first, err := c.TryOnce(t.Context(), "k", returns("x", nil))
		if lost.Hits() == 0 || string(result) != "x" || !first || err != nil {
			t.Errorf("%q, %v, %v: it can be found out", result, first, err)
		}
	})
	virtualCase(t, "cut for a while", func(t *testing.T, w *world) {
		c, host := w.client(config{TTL: 15 * sec})
		result, first, err := c.TryOnce(t.Context(), "k", func(context.Context) ([]byte, error) {
			host.Cut()
			time.AfterFunc(6*sec, host.Heal)
			return []byte("x"), nil
		})
		if string(result) != "x" || !first || err != nil {
			t.Errorf("%q, %v, %v: the claim lasts for long enough", result, first, err)
		}
	})
	virtualCase(t, "unknown", func(t *testing.T, w *world) {
		c, host := w.client(config{TTL: 15 * sec})
		_, _, err := c.TryOnce(t.Context(), "before", returns("", nil)) // from here on there is a lease for what is done
		noErr(t, err)
		result, first, err := c.TryOnce(t.Context(), "k", func(context.Context) ([]byte, error) {
			host.CutReplies()
			return []byte("x"), nil
		})
		if result != nil || !first || !errors.Is(err, etcdclaims.ErrUnknown) {
			t.Errorf("%q, %v, %v, want ErrUnknown", result, first, err)
		}
		host.Heal()
		time.Sleep(sec)
		result, first, err = c.TryOnce(t.Context(), "k", returns("y", nil))
		if string(result) != "x" || first || err != nil {
			t.Errorf("again: %q, %v, %v", result, first, err)
		}
	})
	virtualCase(t, "lost", func(t *testing.T, w *world) {
		c, other := w.peer(), w.peer()
		result, first, err := c.TryOnce(t.Context(), "k", func(ctx context.Context) ([]byte, error) {
			w.Server.Revoke(t, w.Own("k"))
			<-ctx.Done()
			if err := fencing.Check(ctx); !errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("Check: %v, want ErrLost", err)
			}
			return []byte("x"), nil
		})
		if result != nil || !first {
			t.Errorf("%q, %v", result, first)
		}
		lossOf(t, err, etcdclaims.ReasonRevoked)
		result, first, err = other.TryOnce(t.Context(), "k", returns("y", nil))
		if string(result) != "y" || !first || err != nil {
			t.Errorf("the next: %q, %v, %v", result, first, err)
		}
	})
	virtualCase(t, "released", func(t *testing.T, w *world) {
		c := w.peer()
		result, _, err := c.TryOnce(t.Context(), "k", func(ctx context.Context) ([]byte, error) {
			_, err := c.ReleaseAll(ctx)
			return []byte("x"), err
		})
		if result != nil || !errors.Is(err, etcdclaims.ErrReleased) {
			t.Errorf("%q, %v, want ErrReleased", result, err)
		}
	})
	virtualCase(t, "zombie", func(t *testing.T, w *world) {
		c, other := w.peer(), w.peer()
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err := c.TryOnce(ctx, "k", func(context.Context) ([]byte, error) {
			cancel()
			time.Sleep(10 * sec) // the drain is 3 s
			return []byte("x"), nil
		})
		lossOf(t, err, etcdclaims.ReasonOutlived)
		result, first, err := other.Once(t.Context(), "k", returns("y", nil))
		if string(result) != "y" || !first || err != nil {
			t.Errorf("the next: %q, %v, %v", result, first, err)
		}
	})
}

func TestOncePassthrough(t *testing.T) {
	t.Parallel()
	c := newClient(t, nil, config{})
	for range 2 {
		result, first, err := c.TryOnce(t.Context(), "k", returns("x", nil))
		if string(result) != "x" || !first || err != nil {
			t.Errorf("%q, %v, %v", result, first, err)
		}
	}
}
