package etcdclaims

import (
	"errors"
	"fmt"
	"math"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// preferring has a claim's options about preferences.
type preferring struct {
	prefers    bool // it has Prefer
	preference int
}

// Prefer sets the caller's preference for the key, from 0 up. Without Prefer it is 0.
// Use it for the process that should hold the key when there is a choice: in the near
// zone, or of the newest version.
//
// The release of a claim with Prefer hands the key to the most preferred caller in line,
// whatever the claim's own preference. Callers with equal preferences have the key in the
// order in which they came. In all other cases the order of the line does not depend on
// preferences. A claim without Prefer goes to the first in line. So does a key that is
// free because its holder has died or was closed, because its MinHold is over, or by
// [Client.ForceRelease].
//
// No holder gives way to a more preferred caller: each keeps the key for as long as it likes.
// A program that wants the key to move releases the claim itself, for example when
// [Client.Line] shows a caller with a greater preference. An operator stops the holder.
// [MaxHold] bounds each term.
//
// A caller with Prefer waits in line in etcd, even behind a claim of its own
// client. Earlier versions of this package ignore preferences. Prefer excludes Slots,
// Shared, If, Then and Note. A passthrough client ignores the option.
func Prefer(preference int) AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.preferring = preferring{true, preference} }}
}

// checkPreferring refuses options with which a caller cannot be handed the key, and
// those of keys that have several holders.
func (o *acquireOptions) checkPreferring() error {
	switch {
	case o.preference < 0:
		return fmt.Errorf("etcdclaims: Prefer %d must not be negative", o.preference)
	case o.prefers && (o.slots != nil || o.shared != nil || o.note != nil || len(o.cmps)+len(o.ops) > 0):
		return errors.New("etcdclaims: Prefer excludes Slots, Shared, If, Then and Note")
	}
	return nil
}

// mostPreferred returns the caller that is preferred to all others in line, and the first of
// several with equal preferences. The line is in the order in which they came. The other
// places are not passed on with the claim: the next owner may want another order.
func mostPreferred(places []*mvccpb.KeyValue) (best []*mvccpb.KeyValue) {
	greatest := math.MinInt
	for i, kv := range places {
		h, _ := decodeHolder(kv.Value) // without a preference, if it cannot be read
		if len(best) == 0 || h.Preference > greatest {
			best, greatest = places[i:i+1], h.Preference
		}
	}
	return best
}
