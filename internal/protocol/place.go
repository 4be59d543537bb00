package protocol

import (
	"cmp"
	"math"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// The line for a key is the keys under wait/<digest>/, in the order of their
// creation. The holder of the key is not in it.
//
// A releaser hands the key to the first in line. In one transaction it puts the claim
// with the value and on the lease of the waiter, deletes the waiter's place, and puts a
// notice for the waiter. So no place is handed the key twice.
//
// The notice contains the next places, so that the new owner can release without
// reading them: new places are only added at the end, and a hand-over to a waiter that
// has left is refused. A waiter whose claim needs more than that (conditions of its
// caller) takes the key itself when the place before its own is gone.

// ReadAhead is how many places a releaser reads: the first, and those that the notice
// to the first contains.
const ReadAhead = 8

// Place is one in line, with what it takes to hand it the key.
type Place struct {
	Name  string `json:"name"` // of the place, with the mark of its mode
	Rev   int64  `json:"rev"`  // of the place
	Lease int64  `json:"lease"`
	Value string `json:"value"`
}

// placeOf returns the place in line of a key. Everything after the line's prefix is its
// name, even if another program put the key, without an attempt.
func placeOf(kv *mvccpb.KeyValue, waiting string) Place {
	return Place{Name: strings.TrimPrefix(string(kv.Key), waiting), Rev: kv.ModRevision, Lease: kv.Lease, Value: string(kv.Value)}
}

// Placed returns the id of the attempt whose place in line the key is.
func Placed(kv *mvccpb.KeyValue) string {
	if h, err := DecodeHolder(kv.Value); err == nil && h.Claim != "" {
		return h.Claim
	}
	return PlacedID(kv.Key)
}

// takes returns the claim that the place waits for, if a releaser may put it under the epoch.
func (p Place) takes(epoch int64) (Holder, bool) {
	h, err := DecodeHolder([]byte(p.Value))
	its := p.Name != "" && cmp.Or(h.Place, h.Claim) == p.Name // not a copy of another
	return h, err == nil && h.Kind != KindSelf && its && h.Epoch == epoch && p.Lease != 0
}

// Line is what a holder knows about the waiters behind it.
type Line struct {
	Next  []Place // the first in it
	Known bool    // that there is, or was, a line
	More  bool    // there are, or may be, further places behind those
}

// Unread is the line behind a new owner that got the key without a notice.
var Unread = Line{Known: true, More: true}

// firstCome is the line in the order in which its waiters came. count is how many there are.
func firstCome(places []*mvccpb.KeyValue, count int64, waiting string) Line {
	l := Line{Known: true, Next: make([]Place, len(places)), More: count > int64(len(places))}
	for i, kv := range places {
		l.Next[i] = placeOf(kv, waiting)
	}
	return l
}

// preferred is the line for a claim that goes to the most preferred caller in it. The
// others are not passed on with the claim: the next owner may want another order.
func preferred(places []*mvccpb.KeyValue, waiting, heir string) Line {
	l := Line{Known: true, More: len(places) > 1}
	if best := mostPreferred(places, heir); best != nil {
		l.Next = []Place{placeOf(best, waiting)}
	}
	return l
}

// mostPreferred returns the place whose caller is preferred to all others, the first
// of several with equal preferences, or nil. A caller of the client heir is preferred to those of others.
func mostPreferred(places []*mvccpb.KeyValue, heir string) (best *mvccpb.KeyValue) {
	greatest := 0
	for _, kv := range places {
		p := preferenceOf(kv, heir)
		if best == nil || p > greatest || p == greatest && kv.CreateRevision < best.CreateRevision {
			best, greatest = kv, p
		}
	}
	return best
}

// preferenceOf returns the preference of a place in line.
func preferenceOf(kv *mvccpb.KeyValue, heir string) int {
	h, err := DecodeHolder(kv.Value)
	if err != nil {
		return 0
	}
	if heir != "" && h.Instance == heir {
		return math.MaxInt
	}
	return h.Preference
}
