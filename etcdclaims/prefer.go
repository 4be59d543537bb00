package etcdclaims

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// ErrYield is the cause with which the context of a claim with [YieldAfter] ends when
// a more preferred caller waits for the key. The claim is still held then, until it is
// released.
var ErrYield = errtext.Namesake("etcdclaims: a more preferred caller waits", fencing.ErrYield)

// preferring has a claim's options about preferences.
type preferring struct {
	prefers    bool // it has Prefer or YieldAfter
	preference int
	yieldAfter *time.Duration // of YieldAfter, or nil
}

// Prefer sets the caller's preference for the key, from 0 up. Without Prefer it is 0.
// Use it for the process that should hold the key when there is a choice: in the near
// zone, or of the newest version.
//
// [Claim.Yield] hands the key to the most preferred caller in line. So does the release
// of a claim with Prefer or YieldAfter, whatever its own preference. Callers with equal
// preferences have the key in the order in which they came. In all other cases the
// order of the line does not depend on preferences. A claim without these options goes to the
// first in line. So does a key that is free because its holder has died or was closed, or
// because its MinHold is over.
//
// Prefer alone takes the key from no holder: only a holder with [YieldAfter] gives way.
// Other holders keep the key for as long as they like.
//
// A caller with Prefer or YieldAfter waits in line in etcd, even behind a claim of its own
// client. Earlier versions of this package ignore preferences. Prefer excludes Slots,
// Shared, Barge, If, Then and Note. A passthrough client ignores the option.
func Prefer(preference int) AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.prefers, o.preference = true, preference }}
}

// checkPreferring refuses options with which a caller cannot be handed the key, and
// those of keys that have several holders.
func (o *acquireOptions) checkPreferring() error {
	switch {
	case o.preference < 0:
		return fmt.Errorf("etcdclaims: Prefer %d must not be negative", o.preference)
	case o.yieldAfter != nil && *o.yieldAfter < 0:
		return fmt.Errorf("etcdclaims: YieldAfter %v must not be negative", *o.yieldAfter)
	case o.prefers && (o.slots != nil || o.shared != nil || o.barge || o.note != nil || len(o.cmps)+len(o.ops) > 0):
		return errors.New("etcdclaims: Prefer and YieldAfter exclude Slots, Shared, Barge, If, Then and Note")
	}
	return nil
}

// preferenceOf returns the preference of a place in line, or of a claim.
func preferenceOf(kv *mvccpb.KeyValue) int {
	h, err := decodeHolder(kv.Value)
	if err != nil {
		return 0
	}
	return h.Preference
}

// mostPreferred returns the place whose caller is preferred to all others, the first
// of several with equal preferences, or nil.
func mostPreferred(places []*mvccpb.KeyValue) (best *mvccpb.KeyValue) {
	greatest := 0
	for _, kv := range places {
		p := preferenceOf(kv)
		if best == nil || p > greatest || p == greatest && kv.CreateRevision < best.CreateRevision {
			best, greatest = kv, p
		}
	}
	return best
}

// preferredIn is the line for a claim that goes to the most preferred caller in it. The
// others are not passed on with the claim: the next owner may want another order.
func preferredIn(places []*mvccpb.KeyValue, waiting string) line {
	l := line{known: true, more: len(places) > 1}
	if best := mostPreferred(places); best != nil {
		l.next = []place{placeOf(best, waiting)}
	}
	return l
}

// readWholeLine is readLineOps for all places.
func (t *term) readWholeLine() []*pb.RequestOp {
	l := t.s.c.store.layout
	return []*pb.RequestOp{txn.Get([]byte(l.own(t.key))), txn.Get(t.s.c.store.epochKey), txn.Range(l.waiting(t.key))}
}
