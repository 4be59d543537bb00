package etcdclaims

import (
	"strings"

	"github.com/etcdclaims/claims/internal/protocol"
)

// Shared claims the key together with all other callers that use Shared. A call without
// Shared is exclusive: it waits until no shared holder is left. So the key is a lock for
// many readers or one writer.
//
// Both kinds of callers wait in one line, first come first served. A caller with Shared
// waits behind the exclusive callers that are before it in line. So a stream of callers of
// one kind does not keep the other kind out.
// Callers with Shared that are next to each other in line get the key at the same time.
//
// All that share the key at the same time have the same fence. It is greater than the fence
// of each exclusive claim before, and less than that of each one after. So a gate refuses a
// shared holder once it has admitted a later exclusive holder. The fence does not
// distinguish a shared holder that has lost its claim from those that remain. Until an
// exclusive holder has come, only [Claim.Txn], [Claim.Guard] and [Claim.Owns] refuse it.
//
// [Claim.Key] and [Claim.Token] name the key. In List each shared claim has a key of its
// own; see SharedPrefix. The key must not be longer than 980 bytes.
//
// Shared excludes Reentrant, Supersede and Slots. A release does not hand the key over to a
// caller with Shared: it frees the key, and the first in line claims it by another request.
//
// If the last shared holders die, or end with MinHold, a small record of the key remains.
// The next caller for the key deletes it when no holder is left. Until then List shows the
// record, with the Kind "shared". So do not use Shared together with MinHold for ever new
// keys. Programs built with an earlier version find a shared key held, and do not delete
// such a record.
func Shared() AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.setKind(sharing{}) }}
}

// sharing is the kind of a call with Shared.
type sharing struct{}

func (sharing) of(l protocol.Layout, key string) (protocol.Mode, error) {
	return protocol.NewShared(l, key), validKey(protocol.SharedKey(key, strings.Repeat("0", 36))) // the length of a UUID
}

func (sharing) check() error { return nil }

func (sharing) with() optionSet {
	return optionTTL | optionManual | optionMaxHold | optionMinHold | optionProgress | optionIf | optionThen | optionNote
}

func (sharing) String() string { return "Shared" }

// SharedPrefix returns the prefix of the keys under which List shows the claims that
// share key.
func SharedPrefix(key string) string { return protocol.SharedKey(key, "") }
