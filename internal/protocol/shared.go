package protocol

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// sharedMark begins the names of places of callers that share the key. It comes after all other names,
// which are hexadecimal. So these callers can ask whether an exclusive one is before them.
const sharedMark = "~"

// SharedKey returns the key of one of the claims that share a key.
func SharedKey(key, id string) string { return key + keyspace.SharedSuffix + id }

// Shared is the mode of a key that many callers have together.
//
// The first shared holder puts the record, and the last one deletes it. Each holder has a key
// of its own beside it. The ModRevision of the record is the fence of all shared holders: it is
// greater than that of the exclusive claim before, and less than that of the next. The guard of
// a shared holder is its own key and the record.
//
// If the last holders die, the record remains. The next caller that it refuses deletes the
// record, on the condition that no holder is left.
type Shared struct {
	layout Layout
	key    string // that is shared
	name   string // of the claim
	rev    int64  // ModRevision of the record; 0: there is none, and the next claim puts it
	epoch  int64  // of the record: under another it is no use
	stale  int64  // the newest revision that was found not to be the record's any more
}

// NewShared returns the mode of a call that shares the key.
func NewShared(l Layout, key string) Shared { return Shared{layout: l, key: key} }

// For gives the attempt a key of its own. A record of another epoch is of no use to it.
func (s Shared) For(name string, epoch int64) Mode {
	s.name = name
	if s.epoch != epoch {
		s.rev, s.epoch = 0, epoch
	}
	return s
}

// Knowing returns the mode with a record that another caller knows, unless it was found to be
// gone, or one is known already.
func (s Shared) Knowing(rev, epoch int64) Shared {
	if s.rev == 0 && rev > s.stale {
		s.rev, s.epoch = rev, epoch
	}
	return s
}

// Revision returns the ModRevision of the record, 0 if none is known, and its epoch.
func (s Shared) Revision() (rev, epoch int64) { return s.rev, s.epoch }

// Keys are those of a claim of its own beside the record.
func (s Shared) Keys() Keys {
	return Keys{
		User: s.key, Claim: SharedKey(s.key, s.name), Shares: SharedKey(s.key, ""), Line: s.key, Mark: sharedMark,
		Record: true, Joins: s.rev > 0,
	}
}

// recorded is the condition that the record is as it is known.
func (s Shared) recorded() *pb.Compare {
	name := []byte(s.layout.Own(s.key))
	if s.rev == 0 {
		return txn.CreatedAt(name, 0)
	}
	return txn.ModifiedAt(name, s.rev)
}

// encoded is the value of the record that a claim puts.
func (s Shared) encoded() string { return sharedRecord(s.epoch) }

func sharedRecord(epoch int64) string { return Holder{Kind: KindShared, Epoch: epoch}.Encode() }

// Take requires the record, or puts it.
func (s Shared) Take() ([]*pb.Compare, string) {
	conditions := []*pb.Compare{s.recorded()}
	if s.rev == 0 {
		return conditions, s.encoded()
	}
	return conditions, ""
}

// Learn learns of the record. A record of another epoch excludes the caller: its holders have
// lost their claims, and may still be at work. A holder needs the record that it has, and no other.
func (s Shared) Learn(seen Sight) (Mode, Judged, error) {
	if seen.Held {
		return s, Judged{}, nil
	}
	before, own := s.rev, seen.Own
	s.rev, s.epoch = 0, seen.Epoch
	switch {
	case own != nil: // another client's, under a name that is random
	case seen.Record != nil && IsShared(seen.Record) && s.ofEpoch(seen.Record):
		s.rev = seen.Record.ModRevision
	default:
		own = seen.Record
	}
	if before != s.rev {
		s.stale = max(s.stale, before)
	}
	return s, Judged{Own: own, Refused: own == nil && s.rev == before}, nil
}

// ofEpoch reports whether a record was put under the epoch.
func (s Shared) ofEpoch(record *mvccpb.KeyValue) bool {
	h, err := DecodeHolder(record.Value)
	return err == nil && h.Epoch == s.epoch
}

// IsShared reports whether the key-value in the place of a claim is the record of a shared key.
func IsShared(own *mvccpb.KeyValue) bool {
	if own == nil || own.Lease != 0 {
		return false
	}
	h, err := DecodeHolder(own.Value)
	return err == nil && h.Kind == KindShared
}

// At is the claim of its own only. That was put at the revision, perhaps with the record.
func (s Shared) At(name []byte, rev int64) (Mode, bool) {
	if string(name) != s.layout.Own(SharedKey(s.key, s.name)) {
		return s, false
	}
	if s.rev == 0 {
		s.rev = rev
	}
	return s, true
}

// Guard needs the very record.
func (s Shared) Guard(int64) Record {
	return Record{Name: []byte(s.layout.Own(s.key)), Rev: s.rev, Unchanged: true}
}

// Hand hands nothing over: a shared holder frees its place.
func (s Shared) Hand() ([]*pb.Compare, bool) { return nil, false }

// Leave counts who is left. If the claim is alone, it also deletes the record if it is the last
// one: etcd reads all shared claims for that. The record is the one that is known, or the one that
// came with the claim.
func (s Shared) Leave(value string, alone bool) (ops []*pb.RequestOp, beside txn.Beside) {
	beside = txn.Leaves
	if alone {
		ops, beside = append(ops, s.clear(value)), txn.Clears
	}
	count := txn.Range(s.layout.Sharers(s.key))
	count.GetRequestRange().CountOnly = true
	return append(ops, count), beside
}

// clear deletes the record if the claim, which has the value and is being deleted, is the last one.
func (s Shared) clear(value string) *pb.RequestOp {
	name := []byte(s.layout.Own(s.key))
	record := txn.ModifiedAt(name, s.rev)
	if s.rev == 0 {
		record = txn.ValueIs(name, s.encoded())
	}
	claims := txn.ValueIs([]byte(s.layout.Sharers(s.key)), value)
	claims.RangeEnd = []byte(s.layout.SharersEnd(s.key))
	return txn.Nest(&pb.TxnRequest{Compare: []*pb.Compare{claims, record}, Success: []*pb.RequestOp{txn.Delete(name)}})
}

// Clear deletes the record of a shared key whose holders are all gone.
type Clear struct {
	Layout
	Key    string
	Record *mvccpb.KeyValue
}

// Build returns the request.
func (s Clear) Build() txn.Request {
	count := txn.Range(s.Sharers(s.Key))
	count.GetRequestRange().CountOnly = true
	return txn.Request{Key: s.Key, In: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.ModifiedAt(s.Record.Key, s.Record.ModRevision), txn.NoneUnder(s.Sharers(s.Key))},
		Success: []*pb.RequestOp{txn.Delete(s.Record.Key)},
		Failure: []*pb.RequestOp{count},
	}}
}

// Judge returns how many claims share the key, 0 if the record is not as it was any more.
func (s Clear) Judge(resp *pb.TxnResponse) int64 {
	if resp.Succeeded {
		return 0
	}
	return resp.Responses[0].GetResponseRange().Count
}
