package acquire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/metadata"
)

// name names a result.
func (r Result) name() string {
	switch {
	case r.Term != nil:
		return "won"
	case r.Next == Retry:
		return "retry"
	case r.Next == Later:
		return "later: " + outcome(r.Err)
	}
	return "stop: " + outcome(r.Err)
}

// crowd is calls that try for a key at the same time.
type crowd struct {
	w       *world
	hold    chan struct{} // until which all attempts are under way
	results chan string
}

func (w *world) crowd() *crowd {
	return &crowd{w: w, hold: make(chan struct{}), results: make(chan string, 10)}
}

// asks makes a call, whose attempt would end with a result.
func (c *crowd) asks(ctx context.Context, o *Call, r func() Result) {
	go func() {
		defer func() {
			if p := recover(); p != nil {
				c.results <- fmt.Sprint("panic: ", p)
			}
		}()
		got := c.w.together(ctx, "k", o, func(_ context.Context, s *lease.Session, _ string, o *Call) Result {
			c.w.Note("attempt")
			<-c.hold
			return r()
		})
		c.results <- got.name()
	}()
	synctest.Wait()
}

// patient is a call that may take long.
func patient(key string) *Call {
	o := exclusive(key)
	o.Until = time.Now().Add(time.Hour)
	return o
}

// ends lets all attempts end, and returns how the calls have ended: the first one, and the others.
func (c *crowd) ends(calls int) string {
	close(c.hold)
	var all []string
	for range calls {
		all = append(all, <-c.results)
	}
	return strings.Join(all, ", ")
}

// What the end of an attempt means for a call that asks for the same key at the same time.
func TestCallersShareAnAnswer(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, tt := range []struct {
		name   string
		result Result
		want   string
	}{
		{"held", Result{Err: &held{claim: "x"}}, "stop: : held by x"},
		{"to be tried at once", Result{Next: Retry}, "retry"},
		{"to be tried later", Result{Next: Later, Err: failed}, "later: failed"},
		{"unknown, to be tried later", Result{Next: Later, Err: txn.Unknown(failed)}, "later: failed"},
		{"refused for all", Result{Err: failed}, "stop: failed"},
		{"denied for all", Result{Err: txn.ErrPermissionDenied}, "stop: denied"},
		{"unknown", Result{Err: txn.Unknown(failed)}, "retry"},
		{"lost", Result{Err: claimerr.ErrLost}, "retry"},
		{"over a limit", Result{Err: txn.ErrTooLarge}, "retry"},
		{"its time is up", Result{Err: context.DeadlineExceeded}, "retry"},
		{"its caller has gone", Result{Err: context.Canceled}, "retry"},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Open(t)
			c := w.crowd()
			c.asks(t.Context(), exclusive("k"), func() Result { return tt.result })
			c.asks(t.Context(), patient("k"), func() Result { return Result{Err: errors.New("asked twice")} })
			close(c.hold)
			same(t, "the first", <-c.results, tt.result.name())
			same(t, "the other", <-c.results, tt.want)
			same(t, "attempts", w.Take(), "attempt")
		})
	}
}

// An error that names a holder is another one for each caller.
func TestEachCallerHasAnErrorOfItsOwn(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Open(t)
		refusal := &held{claim: "x"}
		a, _ := w.asks.Join(askKey{key: "k"})
		_, _ = w.asks.Join(askKey{key: "k"})
		w.asks.Answer(a, func() verdict { return verdict{err: refusal} })
		r := w.shareAnswer(t.Context(), a, &Call{Until: time.Now().Add(time.Hour)})
		var got *held
		if !errors.As(r.Err, &got) || got == refusal || !got.copied {
			t.Errorf("%v is the same", r.Err)
		}
	})
}

// The others are excluded by the claim of a call that won. Of a key in slots, or one that is shared, they ask again
// with what it has learnt.
func TestCallersOfAKeyThatOneHasWon(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		mode     protocol.Mode
		want     string
		attempts int
	}{
		{"exclusive", protocol.Exclusive{Layout: layout, Key: "k"}, "stop: k: held by ", 1},
		{"shared", protocol.NewShared(layout, "k"), "retry", 1},
		{"slots", protocol.NewSlots(layout, "k", 2, 0), "stop: unmet", 2},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			one := exclusive("k")
			one.Mode = tt.mode
			other := *one
			other.Until = time.Now().Add(time.Hour)
			var own *term.Term
			c := w.crowd()
			c.asks(t.Context(), one, func() Result {
				o := exclusive("k")
				o.Kind, o.Mode = "another", tt.mode
				own = w.hold(t, o)
				return Result{Term: own}
			})
			c.asks(t.Context(), &other, func() Result {
				w.Note("attempt of the other")
				return Result{Err: claimerr.ErrRefused}
			})
			close(c.hold)
			same(t, "the first", <-c.results, "won")
			got := <-c.results
			if tt.want == "stop: k: held by " {
				tt.want += own.ID
			}
			same(t, "the other", got, tt.want)
			same(t, "the other has asked", strings.Contains(w.Take(), "attempt of the other"), tt.attempts == 2)
			if m := other.Mode.Keys(); tt.name == "shared" {
				same(t, "the other knows the record", m.Joins, true)
			}
		})
	}
}

// Calls that differ in what etcd would answer them do not share an answer. Nor does one that comes after the request
// has left, or that shares a round trip anyway.
func TestCallersThatShareNoAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		ctx  func(ctx context.Context) context.Context
		do   func(w *world, first, o *Call)
		want int // attempts
	}{
		{name: "the same", want: 1},
		{name: "other leases", do: func(_ *world, _, o *Call) { o.TTL, o.Manual = 2*ttl, true }, want: 1},
		{name: "a note", do: func(_ *world, _, o *Call) { o.Note = []byte("n") }, want: 2},
		{name: "a key beside it", do: func(w *world, _, o *Call) { o.Beside = &partner{w: w} }, want: 2},
		{name: "another kind", do: func(_ *world, _, o *Call) { o.Kind = "other" }, want: 2},
		{name: "after the request", do: func(_ *world, first, _ *Call) { first.ask.Departed.Store(true) }, want: 2},
		{
			name: "other credentials", ctx: func(ctx context.Context) context.Context {
				return metadata.AppendToOutgoingContext(ctx, "token", "other")
			}, want: 2,
		},
		{
			name: "a record that is known", do: func(_ *world, first, o *Call) {
				m := protocol.NewShared(layout, "k").For("a", 0).(protocol.Shared)
				o.Mode, o.Kind = m.Knowing(7, 0), first.Kind
			}, want: 2,
		},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Open(t)
			first, o, ctx := exclusive("k"), patient("k"), t.Context()
			c := w.crowd()
			c.asks(ctx, first, func() Result { return Result{Next: Retry} })
			if tt.do != nil {
				tt.do(w, first, o)
			}
			if tt.ctx != nil {
				ctx = tt.ctx(ctx)
			}
			c.asks(ctx, o, func() Result { return Result{Next: Retry} })
			same(t, "results", c.ends(2), "retry, retry")
			same(t, "attempts", strings.Count(w.Take(), "attempt"), tt.want)
		})
	}
}

// A call that shares an answer waits for that no longer than it may.
func TestACallerThatSharesEndsInTime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		ctx  time.Duration
		want error
	}{{"its own end", time.Hour, txn.ErrNoAnswer}, {"its context", time.Second, context.DeadlineExceeded}} {
		run(t, tt.name, func(t *testing.T, w *world) {
			a, _ := w.asks.Join(askKey{key: "k"})
			_, _ = w.asks.Join(askKey{key: "k"})
			ctx, cancel := context.WithTimeout(t.Context(), tt.ctx)
			defer cancel()
			begun := time.Now()
			r := w.shareAnswer(ctx, a, &Call{Until: begun.Add(2 * time.Second)})
			if d := time.Since(begun); !errors.Is(r.Err, tt.want) || d != min(tt.ctx, 2*time.Second) {
				t.Errorf("%v after %v", r.Err, d)
			}
		})
	}
}

// A call that panics does not leave the others behind. One with an unknown outcome has answered them before it is
// over.
func TestCallersAreNotLeftBehind(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Open(t)
		c := w.crowd()
		c.asks(t.Context(), exclusive("k"), func() Result { panic("hook") })
		c.asks(t.Context(), patient("k"), func() Result { return Result{} })
		if got := c.ends(2); got != "panic: hook, retry" && got != "retry, panic: hook" {
			t.Error(got)
		}
		a, _ := w.asks.Join(askKey{key: "other"})
		_, _ = w.asks.Join(askKey{key: "other"})
		w.Answer(testlayers.Always(txn.ErrNoAnswer), nil)
		o := exclusive("other")
		o.ask = a
		go func() { _ = w.Alone(t.Context(), "other", o, w.TryOnce) }()
		begun := time.Now()
		r := w.shareAnswer(t.Context(), a, &Call{Until: begun.Add(time.Hour)})
		same(t, "the other", r.name(), "later: "+outcome(txn.ErrNoAnswer))
		same(t, "at once", time.Since(begun), 0)
		pass(time.Minute)
	})
}

// What the first has learnt of the key beside the claim, the others know too.
func TestCallersShareWhatOneHasLearnt(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Open(t)
		one, p := w.beside("k")
		other, q := w.beside("k")
		other.Until = time.Now().Add(time.Hour)
		c := w.crowd()
		c.asks(t.Context(), one, func() Result {
			p.Changed(&mvccpb.KeyValue{ModRevision: 7})
			return Result{Next: Retry}
		})
		c.asks(t.Context(), other, func() Result { return Result{} })
		same(t, "results", c.ends(2), "retry, retry")
		same(t, "revision", q.Rev(), 7)
	})
}

// A call that comes while the request is under way sends its own: the answer may be of before it came.
func TestACallerThatComesTooLateAsksItself(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Open(t)
		w.Other(layout.Own("k"), "x")
		answered := make(chan struct{})
		w.Answer(func(*pb.TxnRequest) error { <-answered; return nil }, nil)
		results := make(chan string, 2)
		for range 2 {
			go func() {
				_, err := w.Try(t.Context(), "k", patient("k"))
				results <- outcome(err)
			}()
			synctest.Wait()
		}
		pass(300 * time.Millisecond)
		close(answered)
		same(t, "outcomes", <-results+", "+<-results, "k: held by x, k: held by x")
		same(t, "sent", w.Steps(), "take, take")
	})
}
