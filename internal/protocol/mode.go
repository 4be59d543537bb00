package protocol

import (
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A Mode is how callers have a key: one at a time ([Exclusive]), in slots ([Slots]), or
// together ([Shared]). A mode is a value. What a caller learns of the key makes another one.
//
// A key in slots, or one that is shared, has a record in the place of its claim. A caller
// requires the record that it knows. If it knows none, it requires that there is none, and
// puts it. So these callers and exclusive ones exclude each other with no further condition.
type Mode interface {
	// For returns the mode of an attempt under the epoch. The name ends the key of its claim, if that is not the key itself.
	For(name string, epoch int64) Mode
	// Keys names what stands for the key in etcd.
	Keys() Keys
	// Take returns what the put of a claim needs beside the claim: conditions, and the record
	// that it puts, "" if there is one.
	Take() (conditions []*pb.Compare, record string)
	// Learn takes over what was read of the key.
	Learn(s Sight) (Mode, Judged, error)
	// At returns the mode with the claim at an etcd key. rev is the revision at which the caller
	// has that claim, 0 if it is free. False means that no claim of the caller can stand there.
	At(name []byte, rev int64) (Mode, bool)
	// Guard returns the record that a holder with the fence needs.
	Guard(fence int64) Record
	// Hand returns the conditions under which a release may hand the claim over. False means that
	// it must free the key.
	Hand() (conditions []*pb.Compare, ok bool)
	// Leave returns the operations by which a release of the claim with the value also gives
	// up the record, and counts the claims that are left. alone means that no other claim of the
	// client belongs to the record.
	Leave(value string, alone bool) (ops []*pb.RequestOp, beside txn.Beside)
}

// Keys are the names of a key in a mode.
type Keys struct {
	User  string // as callers name it
	Claim string // whose etcd key is the claim
	Line  string // names the line, and the requests that must not share a round trip
	// Shares is the range in which the claim's key has a name of its own, "" if it has none.
	Shares string
	// Mark begins the names of the mode's places in line. Places with a mark come after all others
	// in the order of etcd's keys, and wait only for those without.
	Mark string
	// Slots is how many claims the key has room for, 0 if it is one or any number. Slot is which
	// of them the claim is.
	Slot, Slots int
	// Record says that the key has a record in the place of its claim.
	Record bool
	// First and End are the range of etcd keys in which a caller looks for a claim that is free,
	// empty if there is only one that it can have.
	First, End string
	// Joins says that the record is known, so that the acquisition may share a round trip with
	// others of the key.
	Joins bool
}

// before ends the range of the places that must be gone before the caller's turn comes: all
// others, or those without a mark.
func (k Keys) before(l Layout) string {
	line := l.Waiting(k.Line)
	if k.Mark != "" {
		return line + k.Mark
	}
	return keyspace.RangeEnd(line)
}

// noneBefore is the condition that there is no such place.
func (k Keys) noneBefore(l Layout) *pb.Compare {
	line := l.Waiting(k.Line)
	if k.Mark != "" {
		return txn.NoneIn(line, line+k.Mark)
	}
	return txn.NoneUnder(line)
}

// concerned are the keys, beside the line's, that the requests of an acquisition concern.
func (k Keys) concerned(putsRecord bool) []string {
	switch {
	case !k.Record:
		return nil
	case putsRecord && k.User != k.Line: // it stands where a claim on the whole key would be
		return []string{k.Claim, k.User}
	}
	return []string{k.Claim}
}

// Sight is what a caller sees of a key.
type Sight struct {
	Own    *mvccpb.KeyValue   // the claim that was tried for
	Record *mvccpb.KeyValue   // what stands in the place of a claim on the whole key
	Claims []*mvccpb.KeyValue // those from First to End
	Epoch  int64              // the present one
	Joined bool               // the caller has a place in line
	Held   bool               // the caller has its claim: only the record is of interest
}

// Judged is what a sight means.
type Judged struct {
	// Own is the claim that excludes the caller; nil if none does.
	Own *mvccpb.KeyValue
	// Refused means that the caller was refused although nothing excludes it: what it had
	// tried for is as the caller knew it.
	Refused bool
}

// Record is what a claim needs in the place of a claim on the whole key, as it must be for the
// whole term. Otherwise the key may have had an exclusive owner meanwhile.
type Record struct {
	Name []byte // its key in etcd; nil if the claim needs no record
	Rev  int64
	// Unchanged means that Rev is the revision of the record, and the fence of its claims.
	// Otherwise it was created at Rev or before, and can change, as the number of slots does. A
	// record that was deleted and put again was created after the claim.
	Unchanged bool
}

// Stands are the conditions that etcd has the record.
func (r Record) Stands() []*pb.Compare {
	switch {
	case r.Name == nil:
		return nil
	case r.Unchanged:
		return []*pb.Compare{txn.ModifiedAt(r.Name, r.Rev)}
	}
	return []*pb.Compare{txn.CreatedAfter(r.Name, 0), txn.CreatedBefore(r.Name, r.Rev+1)}
}

// Is reports whether etcd had the record when it was read, by the same conditions.
func (r Record) Is(kvs []*mvccpb.KeyValue) bool {
	switch {
	case r.Name == nil:
		return true
	case len(kvs) == 0:
		return false
	case r.Unchanged:
		return kvs[0].ModRevision == r.Rev
	}
	return kvs[0].CreateRevision <= r.Rev
}

// Token names a claim with the fence as gates see it. Claims that share an unchanged record have
// its key and its revision: with revisions of their own, gates would refuse those that began
// before others.
func Token(m Mode, fence int64) fencing.Token {
	k, r := m.Keys(), m.Guard(fence)
	if r.Unchanged {
		return fencing.Token{Key: k.User, Fence: keyspace.Fence(keyspace.Epoch(fence), r.Rev)}
	}
	return fencing.Token{Key: k.Claim, Fence: fence}
}

// Exclusive is the mode of a key that one caller has at a time.
type Exclusive struct {
	Layout
	Key string
}

// For is the same for all attempts.
func (e Exclusive) For(string, int64) Mode { return e }

// Keys are all the key itself.
func (e Exclusive) Keys() Keys { return Keys{User: e.Key, Claim: e.Key, Line: e.Key} }

// Take needs nothing beside the claim.
func (e Exclusive) Take() ([]*pb.Compare, string) { return nil, "" }

// Learn has nothing to learn.
func (e Exclusive) Learn(s Sight) (Mode, Judged, error) {
	return e, Judged{Own: s.Own, Refused: s.Own == nil}, nil
}

// At is its own key only.
func (e Exclusive) At(name []byte, _ int64) (Mode, bool) { return e, string(name) == e.Own(e.Key) }

// Guard needs no record.
func (e Exclusive) Guard(int64) Record { return Record{} }

// Hand has no condition.
func (e Exclusive) Hand() ([]*pb.Compare, bool) { return nil, true }

// Leave deletes nothing beside the claim.
func (e Exclusive) Leave(string, bool) ([]*pb.RequestOp, txn.Beside) { return nil, txn.BesideNone }
