package localline

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
)

type (
	line   = Line[string, int]
	queue  = Queue[string, int]
	waiter = Waiter[string, int]
)

// queued returns waiters of these names, which are in the queue.
func queued(l *line, q *queue, names ...string) (all []*waiter) {
	for _, name := range names {
		f := NewWaiter[string, int](name)
		l.Join(q, f)
		all = append(all, f)
	}
	return all
}

// names returns the names of waiters.
func names(fs []*waiter) string {
	var all []string
	for _, f := range fs {
		all = append(all, f.Attempt)
	}
	return strings.Join(all, " ")
}

// sent returns of each waiter whether it was sent to the line in etcd, and behind which.
func sent(fs ...*waiter) string {
	var all []string
	for _, f := range fs {
		select {
		case <-f.Done:
			behind := ""
			if f.Before != nil {
				behind = f.Before.Attempt
			}
			all = append(all, f.Attempt+"<"+behind)
		default:
		}
	}
	return strings.Join(all, " ")
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// The key goes to the first that still waits. One that was not handed it is the first again.
func TestNext(t *testing.T) {
	t.Parallel()
	var l line
	var q queue
	all := queued(&l, &q, "a", "b", "c")
	same(t, "leaves", l.Leave(all[0]), true)
	b := l.Next(&q)
	same(t, "the first", b, all[1])
	l.PutBack(&q, b)
	same(t, "the first again", l.Next(&q), all[1])
	same(t, "its caller waits", l.Settle(b), true)
	same(t, "leaves too late", l.Leave(b), false)
	c := l.Next(&q)
	l.Leave(c) // while it is handed the key
	same(t, "its caller waits", l.Settle(c), false)
	l.PutBack(&q, c)
	same(t, "nobody is left", l.Next(&q), (*waiter)(nil))
}

// A queue that is closed sends its waiters to the line in etcd in their order, without those that left.
func TestClose(t *testing.T) {
	t.Parallel()
	var l line
	var q queue
	all := queued(&l, &q, "a", "b", "c")
	l.Leave(all[1])
	l.Close(&q)
	same(t, "sent", sent(all...), "a< c<a")
	same(t, "joins", l.Join(&q, NewWaiter[string, int]("d")), false)
	same(t, "joins behind what is in no queue", l.JoinBehind(all[0], NewWaiter[string, int]("d")), false)
	same(t, "leaves too late", l.Leave(all[2]), false)
}

// Waiters move to the front of another queue, in their order, and callers may join behind them there.
// Without another queue, or if it is closed, they go to the line in etcd.
func TestCloseTo(t *testing.T) {
	t.Parallel()
	var l line
	var q, to queue
	all := queued(&l, &q, "a", "b")
	queued(&l, &to, "c")
	l.CloseTo(&q, func() *queue { return &to })
	same(t, "moved", names(l.Waiting(&to)), "a b c")
	same(t, "joins behind", l.JoinBehind(all[0], NewWaiter[string, int]("d")), true)
	same(t, "joined", names(l.Waiting(&to)), "a b c d")
	same(t, "awaited", fmt.Sprint(l.Awaited(&q), l.Awaited(&to)), "false true")
	var closed queue
	l.Close(&closed)
	l.Inherit(&to, &closed)
	same(t, "moved to what is closed", names(l.Waiting(&to)), "a b c d")
	l.CloseTo(&to, func() *queue { return &closed })
	same(t, "sent", sent(all...), "a< b<a")
	none := queued(&l, new(queue), "e")
	l.CloseTo(none[0].in, func() *queue { return nil })
	same(t, "sent", sent(none...), "e<")
}

// Waiters that came and left take no memory while the queue is long.
func TestThoseThatLeftAreForgotten(t *testing.T) {
	t.Parallel()
	var l line
	var q queue
	queued(&l, &q, "a")
	for range 10_000 {
		l.Leave(queued(&l, &q, "b")[0])
	}
	if n := len(q.waiters); n > 20 {
		t.Errorf("%d waiters are kept, of which one waits", n)
	}
}

// A waiter came first if its arrival is known and older than the place. One without an arrival gives way.
func TestArrival(t *testing.T) {
	t.Parallel()
	var l line
	var q queue
	all := queued(&l, &q, "a", "b")
	l.RecordArrival(all[:1], 7)
	l.RecordArrival(all[:1], 5) // the first reply counts
	same(t, "has an arrival", fmt.Sprint(l.Arrival(all[0]) > 0, l.Arrival(all[1]) > 0), "true false")
	same(t, "arrival", fmt.Sprint(l.Arrival(all[0]), l.Arrival(all[1])), "7 0")
	there, ok := l.BeginReading(&q)
	same(t, "reads", fmt.Sprintln(ok, names(there)), "true a b\n")
	_, ok = l.BeginReading(&q)
	same(t, "reads twice at once", ok, false)
	late := queued(&l, &q, "c")
	l.GiveWay(&q, there)
	l.EndReading(&q)
	same(t, "sent", sent(append(all, late...)...), "b<")
	same(t, "goes to the end", fmt.Sprint(all[0].Last, all[1].Last), "false true")
	same(t, "stay", names(l.Waiting(&q)), "a c")
	_, ok = l.BeginReading(&q)
	same(t, "reads again", ok, true)
}

// Those that want one key ask in turn, until one takes too long, or what they wait with ends.
func TestAskInTurn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		known, dead, cancel bool
		want                time.Duration
	}{
		"the one before has its place": {known: true, want: time.Millisecond},
		"it hangs":                     {want: txn.Hanging},
		"the session dies":             {dead: true, want: time.Millisecond},
		"the caller leaves":            {cancel: true, want: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var l line
				ctx, cancel := context.WithCancel(t.Context())
				dead := make(chan struct{})
				first := l.AskInTurn(ctx, dead, "k")
				l.AskInTurn(ctx, dead, "other")()
				time.AfterFunc(time.Millisecond, func() {
					switch {
					case tt.known:
						first()
					case tt.dead:
						close(dead)
					case tt.cancel:
						cancel()
					}
				})
				began := time.Now()
				second := l.AskInTurn(ctx, dead, "k")
				same(t, "waited", time.Since(began), tt.want)
				first()
				second()
				second()
				if len(l.asking) > 0 {
					t.Errorf("%d keys are still asked for", len(l.asking))
				}
				cancel()
			})
		})
	}
}
