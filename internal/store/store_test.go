package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// etcd is a KV at a revision, with an epoch.
type etcd struct {
	clientv3.KV
	rev   int64
	epoch *mvccpb.KeyValue
	err   error
}

func (e *etcd) Delete(context.Context, string, ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return &clientv3.DeleteResponse{Header: e.header()}, e.err
}

func (e *etcd) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp := &clientv3.GetResponse{Header: e.header()}
	if e.epoch != nil {
		resp.Kvs = append(resp.Kvs, e.epoch)
	}
	return resp, e.err
}

func (e *etcd) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{Revision: e.rev}
}

// stored is the key of the epoch with a value.
func stored(value string, rev int64) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte("/p/epoch"), Value: []byte(value), ModRevision: rev}
}

// watched is a store that notes what it reports.
type watched struct {
	*Store
	kv      *etcd
	logs    *observer.ObservedLogs
	rewinds []error
}

func newStore(rev int64) *watched {
	core, logs := observer.New(zap.InfoLevel)
	w := &watched{kv: &etcd{rev: rev}, logs: logs}
	ignore := func(context.Context, time.Time, error) {}
	w.Store = &Store{kv: w.kv, Layout: protocol.Layout{Prefix: "/p/"}, cfg: Config{
		Log: zap.New(core), Timeout: time.Second, Observe: ignore, ObserveOther: ignore,
		Requested: func(string, time.Time, error) {},
		OnRewind:  func(err error) { w.rewinds = append(w.rewinds, err) },
	}}
	w.epoch.Store(&txn.Epoch{})
	return w
}

// reply is a reply with the revision to a request that is sent now.
func (w *watched) reply(rev int64) error {
	return w.see(context.Background(), w.now(), rev)
}

func (w *watched) now() era { return era{w.Store.rewinds.Load(), w.Seen()} }

func begun(next <-chan struct{}) bool {
	select {
	case <-next:
		return true
	default:
		return false
	}
}

// A member that answers from its past is no rewind: a request that goes through consensus shows that.
func TestAnswerFromThePast(t *testing.T) {
	t.Parallel()
	w := newStore(12)
	if err := w.reply(10); err != nil || w.Seen() != 10 {
		t.Fatal(err, w.Seen())
	}
	err := w.reply(7)
	if status.Code(err) != codes.Unavailable || w.HasRewound() || len(w.rewinds) > 0 || w.Ready(context.Background()) != nil {
		t.Errorf("%v, rewound %v", err, w.HasRewound())
	}
	w.kv.err = errors.New("away")
	if err := w.reply(7); !errors.Is(err, w.kv.err) || w.HasRewound() {
		t.Errorf("%v, rewound %v", err, w.HasRewound())
	}
}

// After a rewind nothing may be claimed until a greater epoch is set. It is reported once. What was sent
// before the epoch was raised, and is answered later, shows nothing.
func TestRewind(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newStore(5)
	if err := w.reply(10); err != nil {
		t.Fatal(err)
	}
	before, next := w.now(), w.Generation.Next()
	for range 2 {
		if err := w.reply(7); !errors.Is(err, ErrRewound) {
			t.Error(err)
		}
	}
	if len(w.rewinds) != 1 || !errors.Is(w.rewinds[0], ErrRewound) || !begun(next) {
		t.Errorf("reported %d times, watches begin anew: %v", len(w.rewinds), begun(next))
	}
	if err := w.Ready(ctx); !errors.Is(err, ErrRewound) {
		t.Error(err)
	}
	w.kv.rev, w.kv.epoch = 6, stored("1", 6)
	if err := w.Ready(ctx); err != nil || w.HasRewound() || w.Seen() != 6 {
		t.Errorf("%v, rewound %v, seen %d", err, w.HasRewound(), w.Seen())
	}
	if err := w.see(ctx, before, 11); status.Code(err) != codes.Unavailable || w.Seen() != 6 {
		t.Errorf("%v, seen %d", err, w.Seen())
	}
	if err := w.reply(7); err != nil {
		t.Error(err)
	}
}

// An epoch that went back is refused, and logged once for each value. One that was read before the known
// one is no news.
func TestLearnEpoch(t *testing.T) {
	t.Parallel()
	w := newStore(0)
	learn := func(asOf int64, kvs ...*mvccpb.KeyValue) error { return w.LearnEpoch(kvs, asOf) }
	const event = "epoch went back; claims refused until it is raised above the known one"
	next := w.Generation.Next()
	if err := learn(5, stored("3", 5)); err != nil || w.Epoch().Value != 3 || !begun(next) {
		t.Fatal(err, w.Epoch(), begun(next))
	}
	next = w.Generation.Next()
	if err := learn(4); err != nil || w.Epoch().Value != 3 {
		t.Error("overtaken:", err, w.Epoch())
	}
	if err := learn(6, stored("3", 5)); err != nil || begun(next) {
		t.Error("the same:", err, begun(next))
	}
	for i, kv := range []*mvccpb.KeyValue{stored("2", 7), stored("2", 7), stored("1", 9)} {
		if err := learn(int64(7+i), kv); !errors.Is(err, ErrRewound) || !w.EpochIsLower() {
			t.Errorf("%q: %v, lower %v", kv.Value, err, w.EpochIsLower())
		}
	}
	if n := w.logs.FilterMessage(event).Len(); n != 2 {
		t.Errorf("%d lines about two values", n)
	}
	if err := learn(10, stored("4", 10)); err != nil || w.EpochIsLower() || !begun(next) {
		t.Error("raised:", err, w.EpochIsLower(), begun(next))
	}
	if err := learn(11, stored("x", 11)); err == nil || errors.Is(err, ErrRewound) {
		t.Error("no number:", err)
	}
}

// Replies of two clusters are logged once.
func TestOtherCluster(t *testing.T) {
	t.Parallel()
	w := newStore(0)
	for _, id := range []uint64{1, 1, 2, 1, 3} {
		w.seeCluster(id)
	}
	if all := w.logs.All(); len(all) != 1 || all[0].ContextMap()["cluster"] != "1" || all[0].ContextMap()["other"] != "2" {
		t.Error(all)
	}
}
