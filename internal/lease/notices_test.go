package lease

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/memetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stream is a watch that was begun.
type stream struct {
	after  int64
	events chan clientv3.WatchResponse
	ended  bool
}

// newsOf returns what follows a pool, and the watches that it begins.
func newsOf(w *world) (n *Notices, begun chan *stream) {
	begun = make(chan *stream, 8)
	note := func(what string) func(*mvccpb.KeyValue) {
		return func(kv *mvccpb.KeyValue) { w.news.Note(what + " " + string(kv.Key)[len("/p/session/me/"):]) }
	}
	return &Notices{
		Pool: w.Pool,
		Watch: func(_ context.Context, key string, opts ...clientv3.OpOption) (clientv3.WatchChan, context.CancelFunc, bool) {
			op := clientv3.OpGet(key, opts...)
			if string(op.KeyBytes()) != "/p/session/me/" || string(op.RangeBytes()) != "/p/session/me0" {
				w.news.Note("watch of " + key)
			}
			s := &stream{after: op.Rev() - 1, events: make(chan clientv3.WatchResponse)}
			begun <- s
			return s.events, func() { s.ended = true }, true
		},
		Evicted: note("evicted"), Handed: note("handed"), Question: note("asked"),
		Withdrawn: func(id string) { w.news.Note("withdrawn " + id) },
		Asked:     func(ev *clientv3.Event) { note("asked")(ev.Kv) },
		Missed:    func() { w.news.Note("missed") }, Restored: func() { w.news.Note("restored") },
	}, begun
}

// put puts a key of the client's own.
func put(w *world, name string) {
	w.Etcd.With(func(m *memetcd.Model) { m.Put("/p/session/me/"+name, "v", 0) })
}

// Each key has the same call, whether its event came or it was read. A question alone has an event of its end, and a
// notice that is withdrawn.
func TestEventsAndReads(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		put, deletion string
	}{
		{"evict/a", "evicted evict/a", ""},
		{"ask/other", "asked ask/other", "asked ask/other"},
		{"won/a", "handed won/a", "withdrawn a"},
		{"live/1", "", ""},
		{"live/x", "", ""},
		{"news/of/a/later/version", "", ""},
	} {
		in(t, func(t *testing.T, w *world) {
			n, _ := newsOf(w)
			kv := &mvccpb.KeyValue{Key: []byte("/p/session/me/" + tt.name)}
			n.heard(tt.name, &clientv3.Event{Type: mvccpb.Event_PUT, Kv: kv})
			same(t, tt.name+" put", w.news.Take(), tt.put)
			n.heard(tt.name, &clientv3.Event{Type: mvccpb.Event_DELETE, Kv: kv})
			same(t, tt.name+" deleted", w.news.Take(), tt.deletion)
			put(w, tt.name)
			if _, err := n.Read(); err != nil {
				t.Error(err)
			}
			same(t, tt.name+" read", w.news.Take(), strings.TrimPrefix(tt.put+", missed", ", "))
		})
	}
}

// The end of a sentinel ends its session, whether its event came or it is not found. A read does not judge sessions that
// are younger.
func TestSentinelGone(t *testing.T) {
	t.Parallel()
	remove := func(w *world, s *Session) {
		w.Etcd.With(func(m *memetcd.Model) { m.Remove(s.Sentinel()) })
	}
	for name, find := range map[string]func(n *Notices, s *Session) error{
		"event": func(n *Notices, s *Session) error {
			n.heard(strings.TrimPrefix(s.Sentinel(), "/p/session/me/"), &clientv3.Event{Type: mvccpb.Event_DELETE})
			return nil
		},
		"read": func(n *Notices, _ *Session) error { _, err := n.Read(); return err },
	} {
		in(t, func(t *testing.T, w *world) {
			n, _ := newsOf(w)
			s, other := w.open(t, true), w.open(t, true)
			w.add(t, s, "a")
			remove(w, s)
			if err := find(n, s); err != nil {
				t.Error(err)
			}
			if calls := w.news.Take(); !s.Ended() || other.Ended() || !strings.HasPrefix(calls, "lose a: lease revoked, lost a") && !strings.HasPrefix(calls, "missed, lose a") {
				t.Errorf("%s: ended %v, the other %v, %s", name, s.Ended(), other.Ended(), calls)
			}
		})
	}
	in(t, func(t *testing.T, w *world) {
		n, _ := newsOf(w)
		s := w.open(t, true)
		remove(w, s)
		synctest.Wait()
		s.born += 2 // the removal has a revision of its own
		if _, err := n.Read(); err != nil || s.Ended() {
			t.Errorf("%v, a session that is younger than the read has ended: %v", err, s.Ended())
		}
	})
}

// Many keys are read page by page, and followed from the revision of the first page.
func TestReadPages(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		n, _ := newsOf(w)
		s := w.open(t, true)
		for i := range 300 {
			put(w, "evict/"+strings.Repeat("x", i+1))
		}
		var first int64
		w.Etcd.With(func(m *memetcd.Model) { first = m.Revision() })
		w.answers(func(kind string, _ *pb.TxnRequest) error {
			if kind == memetcd.Range && w.sent[kind] == 2 {
				put(w, "live/9")
			}
			return nil
		})
		rev, err := n.Read()
		if calls := strings.Count(w.news.Take(), "evicted"); err != nil || rev != first || calls != 300 || s.Ended() {
			t.Errorf("revision %d, want %d; %d calls, %v", rev, first, calls, err)
		}
		w.fails(memetcd.Range, errAway)
		if _, err := n.Read(); !errors.Is(err, errAway) || w.news.Take() != "" || s.Ended() {
			t.Errorf("%v, ended %v", err, s.Ended())
		}
	})
}

// A watch that ends is followed by a read, which is tried until it succeeds, and a watch from there. So is one that
// waits for what is over, as after a restore. In between, claims are in doubt.
func TestFollow(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		n, begun := newsOf(w)
		if !w.Life.Finish(func() { n.Follow(s.born) }) {
			t.Fatal("not begun")
		}
		first := <-begun
		same(t, "from", first.after, s.born)
		first.events <- clientv3.WatchResponse{
			Header: &pb.ResponseHeader{Revision: 200},
			Events: []*clientv3.Event{{Type: mvccpb.Event_PUT, Kv: &mvccpb.KeyValue{Key: []byte("/p/session/me/won/a")}}},
		}
		synctest.Wait()
		same(t, "heard", w.news.Take(), "handed won/a")
		put(w, "evict/b")
		w.fails(memetcd.Range, errAway)
		first.events <- clientv3.WatchResponse{CompactRevision: 150}
		pass(time.Second)
		if calls := w.news.Take(); calls != "" || !first.ended || w.doubts.Load() != 1 || w.requests(memetcd.Range) < 3 {
			t.Errorf("calls %q, watch stopped %v, doubts %d, reads %d", calls, first.ended, w.doubts.Load(), w.requests(memetcd.Range))
		}
		w.answers(nil)
		second := <-begun
		var rev int64
		w.Etcd.With(func(m *memetcd.Model) { rev = m.Revision() })
		same(t, "from", second.after, rev)
		same(t, "read", w.news.Take(), "evicted evict/b, missed, restored")

		w.cfg.Store.Generation.Advance()
		third := <-begun
		if calls := w.news.Take(); calls != "evicted evict/b, missed, restored" || !second.ended || w.doubts.Load() != 2 {
			t.Errorf("calls %q, watch stopped %v, doubts %d", calls, second.ended, w.doubts.Load())
		}
		w.Life.BeginEnd()
		go func() { <-w.Life.IO.Done(); close(third.events) }()
		w.Life.End()
		if calls := w.news.Take(); calls != "" || len(begun) > 0 {
			t.Errorf("after the end: %q, %d watches", calls, len(begun))
		}
	})
}

// The pulse rests while no session is used, and notices a sleep of the machine from the first use on.
func TestPulseRests(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		var looks atomic.Int64
		boot := w.cfg.Clock.Boot
		w.cfg.Clock.Boot = func() time.Duration { looks.Add(1); return boot() }
		s := w.open(t, true)
		first := w.add(t, s, "first")[0]
		s.Unreserve()
		s.Remove(first)
		w.Life.Finish(w.KeepPulse)
		pass(5 * pulse / 2) // it was used before
		for _, name := range []string{"a", "b"} {
			before := looks.Load()
			pass(3 * pulse)
			if n := looks.Load() - before; n > 0 {
				t.Errorf("an empty session: %d looks at the clocks", n)
			}
			m := w.add(t, s, name)[0]
			w.Slept.Add(int64(pulse / 5))
			pass(pulse)
			same(t, "slept", w.news.Take(), "woke "+name)
			s.Remove(m)
			pass(pulse) // it sees that
		}
	})
}

// A machine that slept is noticed within a second, by which timers are late. A step of the wall clock is no sleep.
func TestPulse(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		w.add(t, s, "a")
		w.Life.Finish(w.KeepPulse)
		pass(5 * time.Second)
		w.Stepped.Store(int64(time.Hour))
		pass(pulse + 1)
		same(t, "awake", w.news.Take(), "")
		w.Slept.Store(int64(time.Second))
		pass(pulse)
		same(t, "slept", w.news.Take(), "woke a")
		pass(pulse)
		same(t, "noticed once", w.news.Take(), "")
		w.Slept.Store(int64(soft - 8*time.Second))
		pass(pulse)
		same(t, "slept over the soft deadline", w.news.Take(), "woke a, stop a: expired")
		w.Slept.Store(int64(hard))
		pass(pulse)
		all := strings.Split(w.news.Take(), ", ")
		if !slices.Equal(all, []string{"woke a", "lose a: expired", "lost a: expired (dead)"}) {
			t.Error("slept over the hard deadline:", all)
		}
	})
}
