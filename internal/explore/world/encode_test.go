package world

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// An etcd to which two clients have sent the same has the bytes of one to which each sent what the other did, once the
// names are exchanged.
func TestOtherNames(t *testing.T) {
	t.Parallel()
	exchange := renamings(2)[0]
	renamed := func(text string) []byte {
		b := []byte(text)
		exchange.apply(b)
		return b
	}
	put := func(e etcdmodel.State, key, value []byte, lease int64) etcdmodel.State {
		e, _, _ = e.Txn(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Put(key, string(value), lease)}})
		return e
	}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		one, other := etcdmodel.New(values.Revisions), etcdmodel.New(values.Revisions)
		for range 30 {
			text := func() string { return []string{"own/k", "A", "C", "wait/A/1", "wait/C/2", "AC", "C/A"}[r.IntN(7)] }
			key, value, i := text(), text(), r.IntN(2)
			lease, mirrored := int64(letter(i))<<7+1, int64(letter(1-i))<<7+1
			switch r.IntN(10) {
			case 0:
				one, _ = one.Grant(lease)
				other, _ = other.Grant(mirrored)
			case 1:
				one, _ = one.Revoke(lease) // the events of keys are in the order of their names
				other, _ = other.Revoke(mirrored)
				one, other = one.Compact(one.Revision()), other.Compact(other.Revision())
			case 2:
				one, other = one.Compact(one.Revision()-2), other.Compact(one.Revision()-2)
			case 3, 4, 5:
				lease, mirrored = 0, 0
				fallthrough
			default:
				one = put(one, []byte(key), []byte(value), lease)
				other = put(other, renamed(key), renamed(value), mirrored)
			}
			a, b := [][][]byte{partsOf(one)}, [][][]byte{partsOf(other)}
			if got, want := appendGroups(nil, a, &exchange), appendGroups(nil, b, nil); !bytes.Equal(got, want) {
				t.Fatalf("seed %d: %q, not %q", seed, got, want)
			}
			if got, want := appendGroups(nil, b, &exchange), appendGroups(nil, a, nil); !bytes.Equal(got, want) {
				t.Fatalf("seed %d: %q, not %q", seed, got, want)
			}
		}
	}
}
