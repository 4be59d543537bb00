package etcdmodel_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
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
		fmt.Fprintln(&b, id, m.KeepAlive(id))
	}
	return b.String()
}

func encode(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return fmt.Sprintf("%x %v", protowire.AppendBytes(nil, b), err)
}

// TestStatesNeverChange keeps all states of a run, and looks at each again in the end. A request to a
// state that others came from has the same effect as the first time.
func TestStatesNeverChange(t *testing.T) {
	for seed := range uint64(20) {
		m := etcdmodel.New(1)
		all := steps(seed, 60)
		states, bytes, looks := []etcdmodel.State{m}, [][]byte{m.Append(nil, etcdmodel.Names{})}, []string{seenBy(m)}
		for _, s := range all {
			m, _, _ = s.apply(m)
			states, bytes, looks = append(states, m), append(bytes, m.Append(nil, etcdmodel.Names{})), append(looks, seenBy(m))
		}
		for i, m := range states {
			if !slices.Equal(m.Append(nil, etcdmodel.Names{}), bytes[i]) || seenBy(m) != looks[i] {
				t.Fatalf("seed %d: the state after %d steps is another one %d steps later", seed, i, len(all)-i)
			}
			if i == len(all) {
				continue
			}
			for _, other := range all[:i] {
				_, _, _ = other.apply(m)
			}
			if next, _, _ := all[i].apply(m); !slices.Equal(next.Append(nil, etcdmodel.Names{}), bytes[i+1]) {
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
		{name: "grant", id: 1, n: 2},
		{name: "grant", id: 1, n: 3},
		{name: "grant", id: 2, n: 2},
		{name: "revoke", id: 1},
		{name: "compact", n: 2},
		{name: "compact", n: 3},
	}
	looks, bytes := map[string]string{}, map[string]string{}
	met := 0
	for level, depth := []etcdmodel.State{etcdmodel.New(1)}, 0; depth <= 4; depth++ {
		var next []etcdmodel.State
		for _, m := range level {
			b, look := string(m.Append(nil, etcdmodel.Names{})), seenBy(m)
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

// TestAppendWithOtherNames sends the same requests under two names, each with the other's lease, the other
// way round: what is appended with the names exchanged is the same.
func TestAppendWithOtherNames(t *testing.T) {
	exchange := func(b []byte, text string) []byte {
		for _, c := range []byte(text) {
			switch c {
			case 'A':
				c = 'B'
			case 'B':
				c = 'A'
			}
			b = append(b, c)
		}
		return b
	}
	names := etcdmodel.Names{Text: exchange, Lease: func(id int64) int64 { return 3 - id }}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		one, other := etcdmodel.New(1), etcdmodel.New(1)
		for range 30 {
			text := func() string { return []string{"own/k", "A", "B", "wait/A/1", "wait/B/2", "AB", "B/A"}[r.IntN(7)] }
			lease, key, value := int64(r.IntN(3)), text(), text()
			put := &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease}
			mirrored := &pb.PutRequest{Key: exchange(nil, key), Value: exchange(nil, value)}
			if lease != 0 {
				mirrored.Lease = 3 - lease
			}
			switch r.IntN(8) {
			case 0:
				one, _ = one.Grant(1+lease%2, 10+lease)
				other, _ = other.Grant(2-lease%2, 10+lease)
			case 1:
				one, _ = one.Revoke(lease)
				other, _ = other.Revoke(mirrored.Lease)
				one, other = one.Compact(one.Revision()), other.Compact(other.Revision())
			case 2:
				one, other = one.Compact(one.Revision()-2), other.Compact(one.Revision()-2)
			default:
				one, _, _ = one.Txn(&pb.TxnRequest{Success: []*pb.RequestOp{ofPut(put)}})
				other, _, _ = other.Txn(&pb.TxnRequest{Success: []*pb.RequestOp{ofPut(mirrored)}})
			}
			got, want := one.Append(nil, names), other.Append(nil, etcdmodel.Names{})
			if !bytes.Equal(got, want) {
				t.Fatalf("seed %d: %q, not %q", seed, got, want)
			}
			if back := other.Append(nil, names); !bytes.Equal(back, one.Append(nil, etcdmodel.Names{})) {
				t.Fatalf("seed %d: %q, not %q", seed, back, one.Append(nil, etcdmodel.Names{}))
			}
		}
	}
}
