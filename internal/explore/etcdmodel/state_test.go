package etcdmodel_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/values"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// seenBy describes all that requests can learn of a state.
func seenBy(m etcdmodel.State) string {
	var b strings.Builder
	everything := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
	for rev := range m.Revision() + 1 {
		everything.Revision = rev
		r, err := m.Range(everything)
		events, watchErr := m.Events(&pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: rev + 1})
		fmt.Fprintln(&b, err, watchErr, encode(r), encode(&pb.WatchResponse{Events: events}))
	}
	for id := range int64(lastLease + 1) {
		fmt.Fprintln(&b, id, m.Lives(id))
	}
	return b.String()
}

func encode(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return fmt.Sprintf("%x %v", protowire.AppendBytes(nil, b), err)
}

func bytesOf(m etcdmodel.State) (b values.Code) {
	m.Walk(&b, func() {})
	return b
}

// TestStatesNeverChange keeps all states of a run, and looks at each again in the end. A request to a
// state that others came from has the same effect as the first time.
func TestStatesNeverChange(t *testing.T) {
	for seed := range uint64(20) {
		m := etcdmodel.New(1)
		all := steps(seed, 60)
		states, bytes, looks := []etcdmodel.State{m}, [][]byte{bytesOf(m)}, []string{seenBy(m)}
		for _, s := range all {
			m, _, _ = s.apply(m)
			states, bytes, looks = append(states, m), append(bytes, bytesOf(m)), append(looks, seenBy(m))
		}
		for i, m := range states {
			if !slices.Equal(bytesOf(m), bytes[i]) || seenBy(m) != looks[i] {
				t.Fatalf("seed %d: the state after %d steps is another one %d steps later", seed, i, len(all)-i)
			}
			if i == len(all) {
				continue
			}
			for _, other := range all[:i] {
				_, _, _ = other.apply(m)
			}
			if next, _, _ := all[i].apply(m); !slices.Equal(bytesOf(next), bytes[i+1]) {
				t.Fatalf("seed %d: step %d, %v, has another effect than the first time", seed, i+1, all[i])
			}
		}
	}
}

// TestBytesAreTheState takes all ways of up to four steps: two states have the same bytes if and only
// if requests see the same.
func TestBytesAreTheState(t *testing.T) {
	put := func(key, value string, lease int64) *pb.RequestOp {
		return ofPut(&pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease})
	}
	del := func(key, end string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)},
		}}
	}
	txn := func(ops ...*pb.RequestOp) step { return step{name: "txn", request: &pb.TxnRequest{Success: ops}} }
	choices := []step{
		txn(put("a", "", 0)), txn(put("a", "b", 0)), txn(put("ab", "", 0)), txn(put("a", "", 1)),
		txn(put("ab", "", 0), put("a", "", 0)), txn(put("a", "", 0), put("ab", "", 0)),
		txn(del("a", "")), txn(del("a", "b")), txn(put("c", "", 0), del("a", "\x00")),
		{name: "grant", id: 1},
		{name: "grant", id: 2},
		{name: "revoke", id: 1},
		{name: "compact", n: 2},
		{name: "compact", n: 3},
	}
	looks, bytes := map[string]string{}, map[string]string{}
	met := 0
	for level, depth := []etcdmodel.State{etcdmodel.New(1)}, 0; depth <= 4; depth++ {
		var next []etcdmodel.State
		for _, m := range level {
			b, look := string(bytesOf(m)), seenBy(m)
			met++
			old, again := looks[b]
			if again && old != look || !again && bytes[look] != "" {
				t.Fatalf("the same bytes: %v\n%s\n%s", again, look, old)
			}
			if looks[b], bytes[look] = look, b; again {
				continue
			}
			for _, s := range choices {
				n, _, _ := s.apply(m)
				next = append(next, n)
			}
		}
		level = next
	}
	if len(looks)*3 > met*2 || len(looks) < 1000 {
		t.Errorf("%d states, %d of them different: the ways meet too seldom", met, len(looks))
	}
	t.Logf("%d states, %d of them different", met, len(looks))
}
