package etcdmodel_test

import (
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// wanted lists what the steps of a test must have met, by the names that note gives it.
func wanted() []string {
	all := []string{
		"compaction", "expiry of several keys", "revocation of a lease without keys", "renewal", "renewal of no lease",
		"nested transaction that succeeds", "nested transaction that fails", "nested twice",
		"deletion of several", "deletion of none",
		"read of the past", "more", "filtered", "filtered to none", "count", "keys without leases",
		"values",
		"deletion seen", "put seen", "no events",
		"several changes at one revision", "nothing changed",
	}
	for _, err := range []error{
		rpctypes.ErrCompacted, rpctypes.ErrFutureRev, rpctypes.ErrDuplicateKey,
		rpctypes.ErrLeaseNotFound, rpctypes.ErrLeaseExist,
	} {
		all = append(all, err.Error())
	}
	for _, target := range targets {
		for result := range pb.Compare_CompareResult_name {
			for _, holds := range []bool{true, false} {
				all = append(all, fmt.Sprint(target, pb.Compare_CompareResult(result), holds))
			}
		}
	}
	for _, target := range []pb.RangeRequest_SortTarget{pb.RangeRequest_KEY, pb.RangeRequest_CREATE} {
		for _, order := range []pb.RangeRequest_SortOrder{pb.RangeRequest_ASCEND, pb.RangeRequest_DESCEND} {
			all = append(all, fmt.Sprint(target, order))
		}
	}
	return all
}

// note counts what a step has met.
func note(seen map[string]int, before etcdmodel.State, s step, reply any, err error) {
	count := func(what string, met bool) {
		if met {
			seen[what]++
		}
	}
	if err != nil {
		seen[err.Error()]++
		return
	}
	switch r := reply.(type) {
	case *pb.TxnResponse:
		in := s.request.(*pb.TxnRequest)
		for _, c := range in.Compare {
			count(fmt.Sprint(c.Target, c.Result, r.Succeeded), r.Succeeded || len(in.Compare) == 1)
		}
		noteTxn(count, in, r, 0)
		count("nothing changed", r.Header.Revision == before.Revision())
	case *pb.RangeResponse:
		noteRange(count, s.request.(*pb.RangeRequest), r)
	case *pb.WatchResponse:
		noteEvents(count, r.Events)
	case *pb.LeaseRevokeResponse:
		keys := attached(before, s.id)
		count("expiry of several keys", s.name == "expire" && strings.Contains(keys, " "))
		count("revocation of a lease without keys", s.name == "revoke" && keys == "[]")
	case *pb.LeaseKeepAliveResponse:
		count("renewal", r.TTL > 0)
		count("renewal of no lease", r.TTL == 0)
	case *pb.CompactionResponse:
		count("compaction", true)
	}
}

func noteTxn(count func(string, bool), in *pb.TxnRequest, r *pb.TxnResponse, depth int) {
	count("nested transaction that succeeds", depth > 0 && r.Succeeded)
	count("nested transaction that fails", depth > 0 && !r.Succeeded)
	count("nested twice", depth > 1)
	ops := in.Success
	if !r.Succeeded {
		ops = in.Failure
	}
	for i, op := range ops {
		switch out := r.Responses[i].Response.(type) {
		case *pb.ResponseOp_ResponseRange:
			noteRange(count, op.GetRequestRange(), out.ResponseRange)
		case *pb.ResponseOp_ResponseDeleteRange:
			count("deletion of several", out.ResponseDeleteRange.Deleted > 1)
			count("deletion of none", out.ResponseDeleteRange.Deleted == 0)
		case *pb.ResponseOp_ResponseTxn:
			noteTxn(count, op.GetRequestTxn(), out.ResponseTxn, depth+1)
		}
	}
}

func noteRange(count func(string, bool), in *pb.RangeRequest, r *pb.RangeResponse) {
	n := int64(len(r.Kvs))
	count("read of the past", in.Revision > 0 && in.Revision < r.Header.Revision && n > 0)
	count("more", r.More)
	count("filtered", in.Limit == 0 && !in.CountOnly && 0 < n && n < r.Count)
	count("filtered to none", in.Limit == 0 && !in.CountOnly && n == 0 && r.Count > 0)
	count("count", in.CountOnly && r.Count > 1)
	count(fmt.Sprint(in.SortTarget, in.SortOrder), n > 2)
	for _, kv := range r.Kvs {
		count("keys without leases", in.KeysOnly && kv.Lease == 0)
		count("values", len(kv.Value) > 0)
	}
}

func noteEvents(count func(string, bool), events []*mvccpb.Event) {
	count("no events", len(events) == 0)
	for i, ev := range events {
		count("deletion seen", ev.Type == mvccpb.Event_DELETE)
		count("put seen", ev.Type == mvccpb.Event_PUT)
		count("several changes at one revision", i > 0 && ev.Kv.ModRevision == events[i-1].Kv.ModRevision)
	}
}
