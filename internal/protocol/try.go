package protocol

import (
	"cmp"
	"strings"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Try is one attempt to claim a key, as the steps of an acquisition know it. It has an id of
// its own, and so a value that no other claim has. If its reply is lost, it can be read back,
// and made void if it may still arrive.
type Try struct {
	Layout
	Mode       Mode
	ID         string
	Value      string // of the claim
	Name       string // of its place in line; "" means the ID
	PlaceValue string // value of its place in line: that of the claim if a releaser may put it
	Lease      int64
	Epoch      *txn.Epoch
	Ask        Ask
	Beside     *Beside // a key that changes together with the claim, or nil

	Ticket string // what its requests went under, see txn.Request
	Queued int64  // CreateRevision of its place in line, 0 if it never had one
	First  bool   // a place with a mark: none without one is before it, and later ones are behind
	Over   *Over  // the claim that it takes the key from, or nil
}

// Ask is what a caller asks for beside the key.
type Ask struct {
	If   []*pb.Compare
	Then []*pb.RequestOp
	Note string // value of the claim's note, or ""
	// Concern names what If and Then concern; nil: that may be anything.
	Concern []string
}

// Beside is a key that a try puts together with the claim, if it is as it was.
type Beside struct {
	Key   string
	Rev   int64 // its ModRevision before, 0 if it must not exist
	Value string
	Lease int64
}

// claim returns the transaction that claims the key, without conditions on the line. Its second
// branch is empty.
func (t *Try) claim() *pb.TxnRequest {
	keys, own := t.Mode.Keys(), []byte(t.Own(t.Mode.Keys().Claim))
	conditions, record := t.Mode.Take()
	in := txn.Roomy()
	if t.Over == nil {
		in.Compare = append(in.Compare, txn.CreatedAt(own, 0))
	} else {
		in.Compare = append(in.Compare, t.Over.Guard...)
	}
	in.Compare = append(append(in.Compare, conditions...), t.Ask.If...)
	if record != "" {
		in.Success = append(in.Success, txn.Put([]byte(t.Own(keys.User)), record, noLease))
	}
	in.Success = append(in.Success, txn.Put(own, t.Value, t.Lease))
	switch {
	case t.Ask.Note != "":
		in.Success = append(in.Success, txn.Put([]byte(t.Layout.Note(keys.Claim)), t.Ask.Note, t.Lease))
	case t.Over != nil:
		in.Success = append(in.Success, txn.Delete([]byte(t.Layout.Note(keys.Claim))))
	}
	if b := t.Beside; b != nil {
		in.Compare = append(in.Compare, txn.ModifiedAt([]byte(b.Key), b.Rev))
		in.Success = append(in.Success, txn.Put([]byte(b.Key), b.Value, b.Lease))
	}
	in.Success = append(in.Success, t.Ask.Then...)
	return in
}

// besides reads the key beside the claim, if there is one.
func (t *Try) besides() []*pb.RequestOp {
	if t.Beside == nil {
		return nil
	}
	return []*pb.RequestOp{txn.Get([]byte(t.Beside.Key))}
}

// noLease is the lease of keys that stay.
const noLease int64 = 0

// newcomer is claim for a caller without a place: a place of another is in its way, unless it
// takes the key from its holder and does not yield.
func (t *Try) newcomer() *pb.TxnRequest {
	in := t.claim()
	if t.Over == nil || t.Over.Yields {
		keys := t.Mode.Keys()
		in.Compare = append(in.Compare, keys.noneBefore(t.Layout))
	}
	return in
}

// request makes a transaction that claims the key a request. A void of the ticket keeps it from
// being carried out late.
func (t *Try) request(in *pb.TxnRequest) txn.Request {
	t.Ticket = t.ID // not that of a round trip before
	r := t.line(in)
	r.Ticket, r.TicketLease, r.Epoch = &t.Ticket, txn.LeaseID(t.Lease), t.Epoch
	return r
}

// line makes a transaction that claims the key a request among those of the line.
func (t *Try) line(in *pb.TxnRequest) txn.Request {
	keys := t.Mode.Keys()
	_, record := t.Mode.Take()
	r := txn.Request{Key: keys.Line, Also: append(keys.concerned(record != ""), t.Ask.Concern...), In: in}
	if len(t.Ask.If)+len(t.Ask.Then) > 0 && t.Ask.Concern == nil {
		r.Key, r.Also = "", append(r.Also, keys.Line) // its operations may concern any key
	}
	if keys.Joins {
		r.Beside = txn.Joins
	}
	return r
}

// PlaceName is the name of the try's place in line. Another try can have it once all requests of
// this one were answered: see [Acquisition.Settled].
func (t *Try) PlaceName() string { return cmp.Or(t.Name, t.ID) }

// PlaceKey is the key of the try's place in line.
func (t *Try) PlaceKey() string {
	keys := t.Mode.Keys()
	return t.Layout.Place(keys.Line, keys.Mark+t.PlaceName())
}

// has are the conditions that the try succeeded, whatever became of its reply.
func (t *Try) has() []*pb.Compare {
	own := []byte(t.Own(t.Mode.Keys().Claim))
	return []*pb.Compare{txn.ValueIs(own, t.Value), txn.OnLease(own, t.Lease)}
}

// isOwn reports whether a key-value is the claim of the try: a request can be carried out twice
// on the way, and see itself the second time.
func (t *Try) isOwn(kv *mvccpb.KeyValue) bool {
	return kv != nil && kv.Lease == t.Lease && string(kv.Value) == t.Value
}

// Found returns the revision at which the try has one of the claims that were read, or 0. That
// claim is then the one of its mode.
func (t *Try) Found(kvs ...*mvccpb.KeyValue) int64 {
	for _, kv := range kvs {
		if !t.isOwn(kv) {
			continue
		}
		if m, ok := t.Mode.At(kv.Key, kv.ModRevision); ok {
			t.Mode = m
			return kv.ModRevision
		}
	}
	return 0
}

// Granted makes the claim, which was put at the revision, the one of the mode.
func (t *Try) Granted(rev int64) {
	keys := t.Mode.Keys()
	if !keys.Record {
		return // the claim is the key itself
	}
	if m, ok := t.Mode.At([]byte(t.Own(keys.Claim)), rev); ok {
		t.Mode = m
	}
}

// Notified takes over a notice that was put at the revision: the try has the key.
func (t *Try) Notified(n Notice, rev int64) {
	if m, ok := t.Mode.At([]byte(t.Own(SlotKey(t.Mode.Keys().User, n.Slot))), rev); ok {
		t.Mode = m
	}
	t.Epoch = &txn.Epoch{Value: n.Epoch, Rev: n.Rev}
	t.Granted(rev)
}

// Heard judges an event of a watch from the place of a claim on the whole key on. It returns the
// revision at which the try has the key, or whether the try may get further now. Between the
// record and what belongs to it there may be keys of others.
func (t *Try) Heard(kv *mvccpb.KeyValue, deleted bool) (rev int64, again bool) {
	keys, name := t.Mode.Keys(), string(kv.Key)
	whole := name == t.Own(keys.User)
	if keys.Record && whole {
		return 0, true // the record is another, or what stood in its place has gone
	}
	_, claim := t.Mode.At(kv.Key, max(kv.ModRevision, 1))
	if !claim && !whole && !strings.HasPrefix(name, t.Lines()) && !strings.HasPrefix(name, t.Sharers(keys.User)) {
		return 0, false
	}
	if !deleted {
		return t.Found(kv), false
	}
	if m, free := t.Mode.At(kv.Key, 0); free {
		t.Mode = m
	}
	return 0, true
}
