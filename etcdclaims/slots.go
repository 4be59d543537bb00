package etcdclaims

import (
	"fmt"
	"math/rand/v2"

	"github.com/etcdclaims/claims/internal/protocol"
)

// MaxSlots is the largest number of slots that a key can have.
const MaxSlots = protocol.MaxSlots

// SlotKey returns the key of one slot, as Claim.Key, Info.Key and tokens name it.
// Slots are numbered from 0. Use it to look up or to force the release of one slot.
// The keys of all slots begin with SlotKey(key, 0) without its last character.
func SlotKey(key string, slot int) string { return protocol.SlotKey(key, slot) }

// Slots lets up to n callers hold the key at the same time. Each holds one slot, which
// [Claim.Slot] numbers from 0 to n-1. [Claim.Key] and [Claim.Token] name the slot
// (see [SlotKey]), and its fence rises with each of its holders. So a gate refuses
// the former holder of a slot, and admits the holders of the others.
//
// All slots have one line, first come first served. A release hands its slot to the
// first caller in it. [Client.Lookup] returns how many slots there are and how many are
// taken: Info.Slots and Info.Taken.
//
// The first call stores n in etcd, in a small record that stays until
// admin.Resize with 0 removes it. So callers with ever new keys, such as one per
// request, let etcd grow. A call with another n returns ErrSlots; Resize changes
// the number.
//
// A call without Slots for the same key finds the key held, and the other way
// round. There is no order between callers of the two kinds that wait. While the
// record is there, those without Slots wait, although no slot is held.
//
// If the record is deleted otherwise than by Resize, all claims on slots are lost
// within a third of the TTL and a second. Their slots stay held for a TTL.
//
// n must be between 1 and MaxSlots. The key of a slot must not be longer than
// MaxKeyBytes. Slots excludes Reentrant and Supersede. Each caller of a
// passthrough client has slot 0.
//
// A holder that dies frees its slot as it frees a key: see [Client.Acquire]. When
// several slots become free at once without a release, the callers in line take them
// one after the other, each within about one round trip and one event.
func Slots(n int) AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.setKind(slotted(n)) }}
}

// slotted is the kind of a call with so many slots.
type slotted int

func (n slotted) of(l protocol.Layout, key string) (protocol.Mode, error) {
	return protocol.NewSlots(l, key, int(n), rand.N(int(n))), validKey(SlotKey(key, int(n)-1))
}

func (n slotted) check() error { return checkSlots(int(n), 1) }

func (n slotted) with() optionSet {
	return optionTTL | optionManual | optionMaxHold | optionMinHold | optionProgress | optionIf | optionThen | optionNote
}

func (n slotted) String() string { return "Slots" }

func checkSlots(n, least int) error {
	if n < least || n > MaxSlots {
		return fmt.Errorf("etcdclaims: %d slots: want %d to %d", n, least, MaxSlots)
	}
	return nil
}
