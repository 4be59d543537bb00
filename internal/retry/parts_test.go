package retry

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// narrow is an etcd with keys of some bytes each, whose replies must have at most a number of them.
type narrow struct {
	*testing.T
	keys, size, most int
	mostOps          int // of one request; 0 for no limit
	rev, compacted   int64
	compactAt        int // the request before which the revision is compacted
	requests         int
	refused          map[string]bool
}

func (n *narrow) send(ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if n.requests++; n.requests == n.compactAt {
		n.rev++
		n.compacted, n.refused = n.rev, map[string]bool{}
	}
	if n.mostOps > 0 && len(ops) > n.mostOps {
		return nil, rpctypes.ErrTooManyOps
	}
	asked, bytesOf := "", 0
	resp := &clientv3.TxnResponse{Header: &pb.ResponseHeader{Revision: n.rev}}
	for _, op := range ops {
		asked += fmt.Sprintf("%s-%s %d @%d, ", op.KeyBytes(), op.RangeBytes(), op.Limit(), op.Rev())
		if op.Rev() != 0 && op.Rev() < n.compacted {
			return nil, rpctypes.ErrCompacted
		}
		r := &pb.RangeResponse{}
		for i := range n.keys {
			at := i
			if op.IsSortSet() {
				at = n.keys - 1 - i
			}
			key := fmt.Appendf(nil, "k%03d", at)
			if bytes.Compare(key, op.KeyBytes()) < 0 || bytes.Compare(key, op.RangeBytes()) >= 0 {
				continue
			}
			if r.Count++; op.Limit() > 0 && r.Count > op.Limit() {
				r.More = true
				continue
			}
			r.Kvs = append(r.Kvs, &mvccpb.KeyValue{Key: key, Value: make([]byte, n.size)})
			bytesOf += n.size
		}
		resp.Responses = append(resp.Responses, ofRange(r))
	}
	if n.refused[asked] {
		n.Fatalf("%s was too large, and is asked again", asked)
	}
	if bytesOf > n.most {
		n.refused[asked] = true
		return nil, status.Error(codes.ResourceExhausted, fmt.Sprintf("grpc: received message larger than max (%d vs. %d)", bytesOf, n.most))
	}
	return resp, nil
}

func newNarrow(t *testing.T, keys int) *narrow {
	return &narrow{T: t, keys: keys, size: 10, most: 100, rev: 5, refused: map[string]bool{}}
}

func names(kvs []*mvccpb.KeyValue) (all []string) {
	for _, kv := range kvs {
		all = append(all, string(kv.Key))
	}
	return all
}

// Reads that are too large together or by themselves are carried out in parts, with the reply that they
// would have had. No request is sent again as it was.
func TestReadsInParts(t *testing.T) {
	t.Parallel()
	all := []clientv3.Op{
		clientv3.OpGet("k000", clientv3.WithRange("k005")), clientv3.OpGet("k", clientv3.WithPrefix()),
		clientv3.OpGet("k", clientv3.WithPrefix(), clientv3.WithLimit(50)), clientv3.OpGet("k300", clientv3.WithRange("k310")),
	}
	for _, compactAt := range []int{0, 1, 3, 6, 20, 40} {
		n := newNarrow(t, 400)
		n.compactAt = compactAt
		resp, err := InParts(all, n.send)
		if err != nil {
			t.Fatalf("compacted at request %d: %v", compactAt, err)
		}
		for i, want := range []struct {
			kvs  int
			more bool
		}{{5, false}, {400, false}, {50, true}, {10, false}} {
			r := resp.Responses[i].GetResponseRange()
			got := names(r.Kvs)
			if len(got) != want.kvs || r.More != want.more || !slices.IsSorted(got) || len(slices.Compact(got)) != want.kvs {
				t.Errorf("operation %d: %d keys, more %v, want %d, %v", i, len(got), r.More, want.kvs, want.more)
			}
		}
		if resp.Header.Revision != n.rev {
			t.Errorf("revision %d, want %d", resp.Header.Revision, n.rev)
		}
	}
}

// A value that is too large by itself is an error.
func TestAValueLargerThanTheLimit(t *testing.T) {
	t.Parallel()
	n := newNarrow(t, 10)
	n.most = 9
	if _, err := InParts([]clientv3.Op{clientv3.OpGet("k", clientv3.WithPrefix())}, n.send); err == nil ||
		!strings.Contains(err.Error(), "larger than max") {
		t.Errorf("got %v", err)
	}
}

// Pages yield each key once in either direction, and go on at a later revision if theirs is compacted.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, descending := range []bool{false, true} {
		for _, compactAt := range []int{0, 3} {
			n := newNarrow(t, 100)
			n.compactAt = compactAt
			op := clientv3.OpGet("k", clientv3.WithPrefix())
			if descending {
				clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend)(&op)
			}
			var got []string
			for page, err := range Pages(op, 80, 80, func(op clientv3.Op) (*clientv3.GetResponse, error) {
				resp, err := n.send(op)
				if err != nil {
					return nil, err
				}
				r := resp.Responses[0].GetResponseRange()
				r.Header = resp.Header
				return (*clientv3.GetResponse)(r), nil
			}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, names(page.Kvs)...)
			}
			if descending {
				slices.Reverse(got)
			}
			if len(got) != 100 || !slices.IsSorted(got) || len(slices.Compact(got)) != 100 {
				t.Errorf("descending %v: %d keys: %v", descending, len(got), got)
			}
		}
	}
}

// Reads that are too many for one request are carried out by several, at one revision.
func TestReadsThatAreTooMany(t *testing.T) {
	t.Parallel()
	n := newNarrow(t, 3)
	n.mostOps = 4
	ops := slices.Repeat([]clientv3.Op{clientv3.OpGet("k000", clientv3.WithRange("k002"))}, 9)
	resp, err := InParts(ops, n.send)
	if err != nil || len(resp.Responses) != len(ops) || resp.Header.Revision != n.rev {
		t.Fatalf("%v, %v", resp, err)
	}
	for i, r := range resp.Responses {
		if got := names(r.GetResponseRange().Kvs); !slices.Equal(got, []string{"k000", "k001"}) {
			t.Errorf("%d: %v", i, got)
		}
	}
}
