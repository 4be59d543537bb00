package etcdmodel_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

var firstSeed = flag.Uint64("seed", 1, "the first seed")

// TestModelIsEtcd sends the same random requests to the model and to the real server: each reply, each
// error and each event must be the same, and so must what they store in the end.
func TestModelIsEtcd(t *testing.T) {
	const length = 200
	seeds := 20
	if testetcd.Long() {
		seeds = 500
	}
	seen := map[string]int{}
	for seed := *firstSeed; seed < *firstSeed+uint64(seeds); seed++ {
		all := steps(seed, length)
		at, diff := run(t, all, seen)
		if diff == "" && !valid(all) {
			t.Fatalf("seed %d: the steps are not valid", seed)
		}
		if diff == "" {
			continue
		}
		short, diff := shorten(t, all[:min(at+1, len(all))], diff)
		var story strings.Builder
		for i, s := range short {
			fmt.Fprintf(&story, "%3d. %v\n", i+1, s)
		}
		t.Fatalf("seed %d, step %d:\n%s%s", seed, at, &story, diff)
	}
	for _, what := range wanted() {
		if seen[what] == 0 {
			t.Errorf("%d steps, and none had %q: they show nothing of it", seeds*length, what)
		}
	}
	t.Logf("seeds %d to %d, %d steps each", *firstSeed, *firstSeed+uint64(seeds)-1, length)
}

// shorten leaves out steps, and parts of transactions, as long as a difference remains.
func shorten(t *testing.T, all []step, diff string) ([]step, string) {
	t.Helper()
	tries := 0
	better := func(fewer []step) bool {
		if !valid(fewer) {
			return false
		}
		tries++
		at, d := run(t, fewer, nil)
		if d != "" {
			all, diff = fewer[:min(at+1, len(fewer))], d
		}
		return d != ""
	}
	for size := len(all) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(all) && tries < 200; {
			if !better(slices.Concat(all[:from], all[from+size:])) {
				from += size
			}
		}
	}
	for i := 0; i < len(all); i++ {
		for again := true; again && tries < 500 && i < len(all); {
			again = slices.ContainsFunc(all[i].parts(), func(s step) bool {
				return better(slices.Concat(all[:i], []step{s}, all[i+1:]))
			})
		}
	}
	return all, diff
}

// run carries out steps in a new etcd and a new model. It returns the first that makes a difference.
func run(t *testing.T, all []step, seen map[string]int) (at int, diff string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := testetcd.StartVirtual(t).Client(t)
		e := etcd{Client: c, kv: pb.NewKVClient(c.ActiveConnection()), leases: pb.NewLeaseClient(c.ActiveConnection())}
		m := etcdmodel.New(1)
		for i, s := range all {
			at = i
			next, want, wantErr := s.apply(m)
			got, err := e.apply(t.Context(), s)
			if s.name == "expire" {
				got, err = want, wantErr // etcd reports it to nobody
				if _, diff = e.same(t.Context(), next, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}); diff != "" {
					return
				}
			}
			if diff = compare(want, got, wantErr, err); diff != "" {
				return
			}
			if seen != nil {
				note(seen, m, s, want, err)
			}
			m = next
		}
		at = len(all)
		diff = e.end(t.Context(), m)
	})
	return at, diff
}

// compare returns the difference between two replies, or "" if they are equal.
func compare(want, got any, wantErr, err error) string {
	if !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
		return fmt.Sprintf("the model returns %v, etcd %v", wantErr, err)
	}
	if w, g := want.(proto.Message), got.(proto.Message); err == nil && !proto.Equal(w, g) {
		text := prototext.MarshalOptions{}
		return fmt.Sprintf("model: %s\n etcd: %s", text.Format(w), text.Format(g))
	}
	return ""
}

// etcd is the real server.
type etcd struct {
	*clientv3.Client
	kv     pb.KVClient
	leases pb.LeaseClient
}

// apply carries out a step.
func (e etcd) apply(ctx context.Context, s step) (any, error) {
	switch s.name {
	case "txn":
		return plain(e.kv.Txn(ctx, proto.Clone(s.request).(*pb.TxnRequest)))
	case "range":
		return plain(e.kv.Range(ctx, proto.Clone(s.request).(*pb.RangeRequest)))
	case "watch":
		return e.watch(ctx, s.request.(*pb.WatchCreateRequest))
	case "grant":
		return plain(e.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: s.id, TTL: s.n}))
	case "renew":
		resp, err := e.KeepAliveOnce(ctx, clientv3.LeaseID(s.id))
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return &pb.LeaseKeepAliveResponse{ID: s.id}, nil
		}
		if err != nil {
			return nil, err
		}
		return &pb.LeaseKeepAliveResponse{ID: s.id, TTL: min(resp.TTL, alive)}, nil
	case "revoke":
		return plain(e.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: s.id}))
	case "expire":
		time.Sleep((soon + 2) * time.Second)
		return nil, nil
	}
	return plain(e.kv.Compact(ctx, &pb.CompactionRequest{Revision: s.n, Physical: true}))
}

// plain removes from a reply what the model leaves out, and returns the client's error.
func plain[T interface {
	proto.Message
	GetHeader() *pb.ResponseHeader
}](resp T, err error) (any, error) {
	if err == nil {
		h := resp.GetHeader()
		h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
		lean(resp)
	}
	return resp, rpctypes.Error(err)
}

// lean removes versions of keys, and headers of what changes them.
func lean(reply proto.Message) {
	unversioned := func(kvs ...*mvccpb.KeyValue) {
		for _, kv := range kvs {
			if kv != nil {
				kv.Version = 0
			}
		}
	}
	switch r := reply.(type) {
	case *pb.RangeResponse:
		unversioned(r.Kvs...)
	case *pb.WatchResponse:
		for _, ev := range r.Events {
			unversioned(ev.Kv)
		}
	case *pb.TxnResponse:
		for _, op := range r.Responses {
			switch o := op.Response.(type) {
			case *pb.ResponseOp_ResponseRange:
				lean(o.ResponseRange)
			case *pb.ResponseOp_ResponsePut:
				o.ResponsePut.Header = nil
			case *pb.ResponseOp_ResponseDeleteRange:
				o.ResponseDeleteRange.Header = nil
			case *pb.ResponseOp_ResponseTxn:
				lean(o.ResponseTxn)
			}
		}
	}
}

// watch returns all events that etcd has.
func (e etcd) watch(ctx context.Context, w *pb.WatchCreateRequest) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	opts := []clientv3.OpOption{clientv3.WithRev(w.StartRevision), clientv3.WithRange(string(w.RangeEnd))}
	events := e.Watch(ctx, string(w.Key), opts...)
	time.Sleep(time.Second) // virtual: by then etcd has sent what it has
	synctest.Wait()
	all, err := &pb.WatchResponse{}, error(nil)
	for more := true; more; {
		select {
		case resp, ok := <-events:
			more = ok
			if ok && err == nil {
				err = resp.Err()
			}
			all.Events = append(all.Events, resp.Events...)
		default:
			more = false
		}
	}
	cancel()
	for range events { // until it is closed
	}
	lean(all)
	return all, err
}

// same compares a read.
func (e etcd) same(ctx context.Context, m etcdmodel.State, r *pb.RangeRequest) (any, string) {
	want, wantErr := m.Range(r)
	got, err := plain(e.kv.Range(ctx, r))
	return got, compare(want, got, wantErr, err)
}

// end compares what etcd and the model store, at each revision, and their leases.
func (e etcd) end(ctx context.Context, m etcdmodel.State) string {
	for rev := range m.Revision() + 2 {
		if _, diff := e.same(ctx, m, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: rev}); diff != "" {
			return fmt.Sprintf("at revision %d: %s", rev, diff)
		}
	}
	leases, err := e.Leases(ctx)
	if err != nil {
		return err.Error()
	}
	all := make(map[int64]string)
	for id := range int64(lastLease + 1) {
		if m.Lives(id) {
			all[id] = attached(m, id)
		}
	}
	for _, l := range leases.Leases {
		l, err := e.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
		if err != nil {
			return err.Error()
		}
		slices.SortFunc(l.Keys, bytes.Compare)
		id := int64(l.ID)
		if got := fmt.Sprintf("%q", l.Keys); got != all[id] {
			return fmt.Sprintf("lease %d: the model has %s, etcd %s", id, all[id], got)
		}
		delete(all, id)
	}
	if len(all) > 0 {
		return fmt.Sprintf("etcd does not have the leases %v", all)
	}
	return ""
}

// attached lists the keys on a lease.
func attached(m etcdmodel.State, id int64) string {
	var keys []string
	for _, k := range m.Under("") {
		if k.Lease == id {
			keys = append(keys, k.Name)
		}
	}
	return fmt.Sprintf("%q", keys)
}
