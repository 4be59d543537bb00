package line

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// listed lists a waiter of these, that may be called with Reentrant.
func (ws *Waiters) listed(id string, s *lease.Session, since int64, reentrant bool) *waiter {
	a := &acquire.Attempt{User: "k-" + id, S: s, Call: &acquire.Call{Reentrant: reentrant}}
	a.ID = id
	w := &waiter{
		a: a, in: ws, since: since, notices: make(chan *mvccpb.KeyValue, 1), ask: make(chan struct{}, 1),
		share: make(chan struct{}, 1),
	}
	ws.add(w)
	return w
}

// news takes what a waiter was sent.
func (w *waiter) news() string {
	var all []string
	select {
	case kv := <-w.notices:
		all = append(all, string(kv.Value))
	default:
	}
	select {
	case <-w.ask:
		all = append(all, "ask")
	default:
	}
	select {
	case <-w.share:
		all = append(all, "share")
	default:
	}
	return strings.Join(all, " ")
}

func notice(id, value string) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(layout.Notice(layout.Instance, id)), Value: []byte(value)}
}

// The last notice counts, for its waiter alone. One that is withdrawn is forgotten, and the waiter reads its
// position.
func TestNotices(t *testing.T) {
	t.Parallel()
	var ws Waiters
	a, b := ws.listed("a", nil, 1, false), ws.listed("b", nil, 1, false)
	same(t, "count", ws.Count(), 2)
	ws.Deliver(notice("a", "first"))
	ws.Deliver(notice("a", "second"))
	ws.Deliver(notice("x", "nobody's"))
	same(t, "its own", a.news(), "second")
	same(t, "the other", b.news(), "")
	ws.Deliver(notice("a", "first"))
	ws.Withdrawn("a")
	ws.Withdrawn("x")
	same(t, "withdrawn", a.news()+b.news(), "ask")
	ws.Deliver(notice("a", "first"))
	ws.DoubtAll()
	ws.DoubtAll()
	same(t, "has a notice", a.news(), "first")
	same(t, "has none", b.news(), "ask")
	ws.remove(a)
	ws.Deliver(notice("a", "late"))
	same(t, "listed no more", a.news(), "")
	same(t, "count", ws.Count(), 1)
}

// Only waiters with Reentrant may share a claim of their client, and only those of its key are woken.
func TestShare(t *testing.T) {
	t.Parallel()
	var ws Waiters
	a, b, c := ws.listed("a", nil, 1, true), ws.listed("b", nil, 1, true), ws.listed("c", nil, 1, false)
	ws.Share(func(key string) bool { return key != "k-b" })
	same(t, "woken", fmt.Sprint(a.news(), "|", b.news(), "|", c.news()), "share||")
	ws.remove(a)
	ws.remove(c)
	ws.Share(func(string) bool { return true })
	same(t, "woken", fmt.Sprint(a.news(), "|", b.news(), "|", c.news()), "|share|")
	ws.remove(b)
	ws.Share(func(key string) bool { t.Error("asked for", key); return true })
}

// The oldest waiter of a session counts: from then on there may be notices.
func TestNoticesSince(t *testing.T) {
	t.Parallel()
	var ws Waiters
	s, other := new(lease.Session), new(lease.Session)
	rev, ok := ws.NoticesSince(s)
	same(t, "nobody waits", fmt.Sprint(rev == math.MaxInt64, ok), "true false")
	a := ws.listed("a", s, 5, false)
	ws.listed("b", s, 7, false)
	ws.listed("c", other, 3, false)
	rev, ok = ws.NoticesSince(s)
	same(t, "two wait", fmt.Sprint(rev, ok), "5 true")
	ws.remove(a)
	rev, ok = ws.NoticesSince(s)
	same(t, "one waits", fmt.Sprint(rev, ok), "7 true")
}

// Who follows a waiter waits in its queue, if its claim will be on the lease of that session.
func TestQueueOf(t *testing.T) {
	t.Parallel()
	var ws Waiters
	s := new(lease.Session)
	a := ws.listed("a", s, 1, false)
	same(t, "its own", ws.QueueOf("a", s), &a.local)
	same(t, "of another session", ws.QueueOf("a", new(lease.Session)), nil)
	same(t, "of another claim", ws.QueueOf("x", s), nil)
}

// A renewal compares what the waiters of its session wait for. What it cannot compare, they read.
func TestWhatWaitersWaitFor(t *testing.T) {
	t.Parallel()
	var ws Waiters
	s := new(lease.Session)
	a, every, none := ws.listed("a", s, 1, false), ws.listed("b", s, 1, false), ws.listed("c", s, 1, false)
	other := ws.listed("d", new(lease.Session), 1, false)
	end := ws.await(a, protocol.Wait{Key: "own", Rev: 7})
	ws.await(every, protocol.Wait{Key: "own", Rev: everyRenewal})
	ws.await(none, protocol.Wait{Key: "own"})
	ws.await(other, protocol.Wait{Key: "own", Rev: 7})
	all := ws.Of(s)
	if len(all) != 1 || all[0].Wait != (protocol.Wait{Key: "own", Rev: 7}) {
		t.Fatalf("got %v", all)
	}
	same(t, "read", fmt.Sprint(a.news(), "|", every.news(), "|", none.news(), "|", other.news()), "|ask||")
	all[0].Waiter.Changed(protocol.Wait{Key: "own", Rev: 6})
	same(t, "another change", a.news(), "")
	all[0].Waiter.Changed(all[0].Wait)
	same(t, "the change", a.news(), "ask")
	end()
	all[0].Waiter.Changed(all[0].Wait)
	same(t, "it waits no more", a.news(), "")
	same(t, "listed", slices.ContainsFunc(ws.reentrant(),
		func(*waiter) bool { return true }) || len(ws.Of(s)) > 0, false)
}
