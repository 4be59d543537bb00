package line

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// waiting is an attempt in line for the key k.
type waiting struct {
	w      *world
	a      *acquire.Attempt
	placed bool
	leave  context.CancelFunc
	done   chan acquire.Result
}

// waits has a call join the line.
func (w *world) waits(t *testing.T, o *acquire.Call) *waiting {
	t.Helper()
	s := w.Open(t)
	s.Again()
	if o.Manual {
		s = w.Session(t)
	}
	ctx, leave := context.WithCancel(t.Context())
	x := &waiting{w: w, a: w.New(s, o.Mode, o), leave: leave, done: make(chan acquire.Result, 1)}
	go func() { x.done <- w.waitInLine(ctx, x.a, func() { x.placed = true }) }()
	synctest.Wait()
	return x
}

// ends returns how the attempt has ended.
func (x *waiting) ends() string {
	synctest.Wait()
	select {
	case r := <-x.done:
		if r.Next == acquire.Retry {
			return "again"
		}
		return outcome(r.Err)
	default:
		x.leave()
		<-x.done
		return "waits"
	}
}

// hands has the holder hand the key over, and returns the notice.
func (x *waiting) hands(notice string) *mvccpb.KeyValue {
	name := []byte(layout.Notice(layout.Instance, x.a.ID))
	kv := &mvccpb.KeyValue{Key: name, Value: []byte(notice)}
	x.w.Parts.Etcd.With(func(m *memetcd.Model) {
		m.Do(&pb.TxnRequest{Success: []*pb.RequestOp{
			txn.Put([]byte(layout.Own("k")), x.a.PlaceValue, x.a.Lease), txn.Delete([]byte(x.a.PlaceKey())),
			txn.Put(name, notice, x.a.Lease),
		}})
		kv.ModRevision = m.Revision()
	})
	return kv
}

func own() *mvccpb.KeyValue { return &mvccpb.KeyValue{Key: []byte(layout.Own("k")), ModRevision: 1000} }

// What a waiter makes of each hint. A hint that shows nothing new sends one request, and it waits on.
func TestAwait(t *testing.T) {
	t.Parallel()
	good := keyspace.Encode(protocol.Notice{Version: protocol.Version})
	newer := keyspace.Encode(protocol.Notice{Version: protocol.Version + 1})
	for _, tt := range []struct {
		name string
		do   func(x *waiting)
		want string
		sent string // after it had its place
	}{
		{"nothing", func(*waiting) {}, "waits", ""},
		{"a notice", func(x *waiting) { x.w.Waiters.Deliver(x.hands(good)) }, "won", ""},
		{"a notice that it cannot read", func(x *waiting) { x.w.Waiters.Deliver(x.hands(newer)) }, "waits", ""},
		{"a notice to another", func(x *waiting) {
			kv := x.hands(good)
			kv.Key = []byte(layout.Notice("other", x.a.ID))
			x.w.Waiters.Deliver(kv)
		}, "waits", ""},
		{"doubt, still held", func(x *waiting) { x.w.Waiters.DoubtAll() }, "waits", "advance"},
		{"doubt, free", func(x *waiting) {
			x.w.Remove(layout.Own("k"))
			x.w.Waiters.DoubtAll()
		}, "won", "advance"},
		{"doubt, handed over without a notice", func(x *waiting) {
			x.hands(good)
			x.w.Waiters.DoubtAll()
		}, "won", "advance"},
		{"doubt, its place deleted", func(x *waiting) {
			x.w.Remove(x.a.PlaceKey())
			x.w.Waiters.DoubtAll()
		}, "again", "advance, delete, read"},
		{"a notice that is withdrawn", func(x *waiting) {
			x.w.Waiters.Withdrawn(x.a.ID)
		}, "waits", "advance"},
		{"watch: the claim deleted", func(x *waiting) {
			pass(time.Second)
			x.w.Remove(layout.Own("k"))
			x.w.tells(mvccpb.DELETE, own())
		}, "won", "advance"},
		{"watch: another key", func(x *waiting) {
			pass(time.Second)
			x.w.tells(mvccpb.DELETE, &mvccpb.KeyValue{Key: []byte("/p/note/k")})
		}, "waits", ""},
		{"watch: its own claim", func(x *waiting) {
			pass(time.Second)
			x.hands(good)
			kv := own()
			kv.Value, kv.Lease = []byte(x.a.Value), x.a.Lease
			x.w.tells(mvccpb.PUT, kv)
		}, "won", ""},
		{"watch: broken", func(x *waiting) {
			pass(time.Second)
			x.w.breaks()
			pass(time.Second)
		}, "waits", "advance"},
		{"a deaf watch, and a renewal", func(x *waiting) {
			x.w.Remove(layout.Own("k"))
			_ = x.a.S.Renew(context.Background())
		}, "won", "read, read, advance"},
		{"session dead", func(x *waiting) { x.a.S.Die(claimerr.Loss{Reason: claimerr.Revoked}) }, "lost", ""},
		{"its caller leaves", func(x *waiting) { x.leave() }, "waited for x: context canceled", "delete"},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Other(layout.Own("k"), "x")
			x := w.waits(t, exclusive("k"))
			same(t, "joins", w.Steps(), "join")
			same(t, "has its place", x.placed, true)
			tt.do(x)
			synctest.Wait()
			sent := w.Steps()
			if tt.want == "again" { // it is undone at the same time
				all := strings.Split(sent, ", ")
				slices.Sort(all)
				sent = strings.Join(all, ", ")
			}
			same(t, "sent", sent, tt.sent)
			same(t, "outcome", x.ends(), tt.want)
			if tt.want == "won" {
				same(t, "owner", w.Owner("k").Claim, x.a.ID)
			}
			same(t, "listed", w.Waiters.Count(), 0)
		})
	}
}

// A waiter watches what must change only after a while: most are handed the key before. It never misses a change
// since.
func TestAwaitWatchesAfterAWhile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		do         func(w *world)
		call       func(o *acquire.Call)
		at, before time.Duration // it watches at, and not before
		key        string
	}{
		{"the first", func(*world) {}, func(*acquire.Call) {}, 200 * time.Millisecond, 199 * time.Millisecond, "own/k"},
		{"one that serves itself", func(*world) {}, func(o *acquire.Call) { o.Note = []byte("n") }, 0, -1, "own/k"},
		{
			"the second", func(w *world) { w.Other(layout.Place("k", "0"), "0") }, func(*acquire.Call) {},
			2 * time.Second, 500 * time.Millisecond,
			"wait/" + keyspace.Digest("k") + "/0",
		},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Other(layout.Own("k"), "x")
			tt.do(w)
			o := exclusive("k")
			tt.call(o)
			x := w.waits(t, o)
			if tt.before >= 0 {
				pass(tt.before)
				same(t, "before", w.watched(), "")
			}
			pass(tt.at - max(tt.before, 0))
			same(t, "watched", w.watched(), tt.key)
			for _, g := range w.watches {
				var rev int64
				w.Parts.Etcd.With(func(m *memetcd.Model) { rev = m.Revision() })
				same(t, "from", g.rev, rev+1)
			}
			same(t, "outcome", x.ends(), "waits")
			synctest.Wait()
			same(t, "watched after it", w.watched(), "")
			same(t, "counted after it", len(w.Watches.creations)+len(w.Watches.places), 0)
		})
	}
}

// What each waiter waits for.
func TestAwaitedKey(t *testing.T) {
	t.Parallel()
	pred := &mvccpb.KeyValue{Key: []byte("/p/wait/x/0"), ModRevision: 5}
	held := &mvccpb.KeyValue{Key: []byte(layout.Own("k")), ModRevision: 7}
	slots, alone := protocol.NewSlots(layout, "k", 2, 0), protocol.Exclusive{Layout: layout, Key: "k"}
	for _, tt := range []struct {
		name string
		mode protocol.Mode
		p    protocol.Position
		want protocol.Wait
	}{
		{
			"the place before its own", alone,
			protocol.Position{Own: held, Pred: pred},
			protocol.Wait{Key: "/p/wait/x/0", Rev: 5},
		},
		{
			"the place before its own, for a slot", slots,
			protocol.Position{Own: held, Pred: pred},
			protocol.Wait{Key: "/p/wait/x/0", Rev: 5},
		},
		{"the claim", alone, protocol.Position{Own: held}, protocol.Wait{Key: layout.Own("k"), Rev: 7}},
		{"any slot", slots, protocol.Position{Own: held}, protocol.Wait{Key: layout.Own("k"), Rev: everyRenewal}},
		{
			"all that share it", alone, protocol.Position{Own: held, Readers: true}, protocol.Wait{
				Key: layout.Own("k"),
				Rev: everyRenewal,
			},
		},
		{"what is not known", alone, protocol.Position{Behind: true}, protocol.Wait{Key: layout.Own("k")}},
	} {
		a := &acquire.Attempt{User: "k"}
		a.Layout, a.Mode = layout, tt.mode
		same(t, tt.name, awaitedKey(a, tt.p), tt.want)
	}
}

// Places before a waiter's own are watched by so many waiters at most. The others are handed the key all the same.
func TestWatchesOfPlacesAreBounded(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		for range mostPlaceWatches {
			w.Watches.places <- struct{}{}
		}
		w.Other(layout.Own("k"), "x")
		w.Other(layout.Place("k", "0"), "0")
		x := w.waits(t, exclusive("k"))
		pass(5 * time.Second)
		same(t, "watched", w.watched(), "")
		w.Waiters.Deliver(x.hands(keyspace.Encode(protocol.Notice{Version: protocol.Version})))
		same(t, "outcome", x.ends(), "won")
	})
}

// A member that hangs while a watch begins keeps no waiter from its notice.
func TestAwaitWhileAWatchHangs(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.hangs = func(string) bool { return true }
		w.Other(layout.Own("k"), "x")
		x := w.waits(t, exclusive("k"))
		pass(300 * time.Millisecond)
		begun := time.Now()
		w.Waiters.Deliver(x.hands(keyspace.Encode(protocol.Notice{Version: protocol.Version})))
		same(t, "outcome", x.ends(), "won")
		same(t, "at once", time.Since(begun), 0)
	})
}
