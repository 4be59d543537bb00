package etcdclaims

import (
	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/line"
)

// Suspectable lets the first caller in line take the key from a holder whose client
// does not answer, in about half a second instead of the TTL. Both must have the option.
// Use it only if each effect of the claim is fenced.
//
// Claim.Check of a suspectable claim can still succeed while the next owner already
// works, until its deadline: only the fence refuses the effects of the old owner.
//
// When a caller with the option has been first in line for 200 ms, its client begins to
// ask the holder's client through etcd, 20 times a second. That client answers. This costs
// etcd 40 writes a second for each such pair of clients, whatever the number of keys. A
// standby for a leader waits for ever, and so costs that for ever. Where many clients wait
// for each other they ask less often: 20 clients cost at most 100 requests a second together,
// and a death is noticed after up to 2.5 s. Without a caller in line it costs nothing.
//
// If 450 ms pass without an answer, although etcd answers every request of the asking client,
// the first in line takes the key. The fence rises, and the old claim is lost with
// ReasonSuperseded and ErrSuspected as soon as its client learns of that. If the round trip
// of either client to etcd is longer than 150 ms, that takes three round trips, up to 3.6 s. Until
// the holder's client has answered once, it takes 1.5 s.
//
// A suspicion is wrong if the holder lives. These live holders can be suspected:
//
//   - a process that stands still for about 450 ms,
//   - a client whose watch delivers nothing, or whose member of etcd hangs while that of the
//     asking client works,
//   - a client whose first answer takes longer than 1.5 s, or a later one longer than 3.6 s,
//   - a client whose way to etcd suddenly becomes three times as long, and longer than 450 ms,
//   - a client that does not find its connection within 3 s after an outage, or of which two
//     answers in a row are lost,
//   - a client that etcd does not permit to delete the question (docs/permissions.md).
//
// Such a process loses one term of each key that a caller waits for. The client that was
// wrong doubles the time that it gives that process, up to 3.6 s, and halves it each minute.
// Stats.SuspectedWrongly counts wrong suspicions.
//
// Suspectable excludes Slots, Shared, Manual, MinHold, If and Then: a claim whose reply was
// lost may have been taken before its client reads it back. A key that stays held
// for a handler that outlived its drain is not suspected. A passthrough client ignores the
// option.
func Suspectable() AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.Suspectable = true; o.give(optionSuspectable, true) }}
}

// shortcut returns the shortcut that the call of an attempt has asked for.
func (c *Client) shortcut(a *acquire.Attempt) line.Shortcut {
	if !a.Call.Suspectable {
		return line.NoShortcut{}
	}
	return c.peers.Accuser(a.S, a.User, a.ID)
}
