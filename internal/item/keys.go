package item

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// Keys is the layout of a queue in etcd. Below the client's prefix and
// queue/<digest of the name>/:
//
//	spec                              what all processes must agree on
//	content/<id>                      what never changes of an item; once it is completed, that it was
//	index/ready/<rank>/<vesting>/<seq>  items that have vested
//	index/later/<vesting>/<rank>/<seq>  items that have not
//	index/behind/<digest of key>/<rank>/<vesting>/<seq>  items that have vested, while others have the lanes of their key
//	index/lane/<digest of key>/<n>    one per item of a partition key whose turn has come
//	index/bell                        written when the queue is resumed, or paused until another time
//	index/idle/<session>              processes that wait for items
//	index/cancelled/<session>/<id>    who cancelled an item that a worker had, for a minute
//	taken/<session>/<id>              items that a worker has: put once per lease, so its ModRevision is the fence
//	place/<id>                        where an item is that is not where it was enqueued
//	dead/<time>/<seq>                 dead letters
//	dead/<time>/bare/<id>             dead letters whose state this program cannot read
//	worker/<session>                  sessions that have, or had, items; its ModRevision is the session's generation
//	slot/<n>                          one per taken item, in queues with MaxTaken
//	bound                             written by each enqueue into a queue with MaxWaiting
//	paused                            who paused the queue, why, and until when
//	trimmed                           by which time dead letters were last trimmed
//
// The keys below index/ have one prefix, for one watch. All keys but bound and the contents
// are one range, for Watch. A session is a claim of the key SessionKey.
// queue/active/<digest> has the specs of queues with work.
type Keys struct {
	prefix, root string
	spec         Spec
	at           *prefixes
}

// prefixes are those of the kinds of keys, made once: each event of a watch is compared with most of them.
type prefixes struct {
	content, ready, later, behind, lane, bell, idle, cancelled, taken, place, slot string
}

// NewKeys returns the layout of a queue of a client with the prefix.
func NewKeys(prefix string, spec Spec) Keys {
	spec.Version = Version
	k := KeysBelow(prefix + "queue/" + keyspace.Digest(spec.Name) + "/")
	k.prefix, k.spec = prefix, spec
	return k
}

// KeysBelow returns the keys of the queue whose keys have the root, without those of the client's prefix.
func KeysBelow(root string) Keys {
	k := Keys{root: root}
	k.at = &prefixes{
		content:   root + "content/",
		ready:     k.Index() + "ready/",
		later:     k.Index() + "later/",
		behind:    k.Index() + "behind/",
		lane:      k.Index() + "lane/",
		bell:      k.Index() + "bell",
		idle:      k.Index() + "idle/",
		cancelled: k.Index() + "cancelled/",
		taken:     root + "taken/",
		place:     root + "place/",
		slot:      root + "slot/",
	}
	return k
}

// SpecBelow returns the key spec of the queue whose keys have the root.
func SpecBelow(root string) string { return root + "spec" }

// Actives is the prefix of the names of queues with work.
func Actives(prefix string) string { return prefix + "queue/active/" }

// Spec is the key of what all processes must agree on.
func (k Keys) Spec() string { return SpecBelow(k.root) }

// Content is the key of what never changes of an item.
func (k Keys) Content(id string) string { return k.at.content + id }

func (k Keys) mark(id string) string { return k.Content(id) + "\x00" } // no id has that

// Index is the prefix of what waiting claimers follow.
func (k Keys) Index() string { return k.root + "index/" }

// Bell is the key that is written when the queue is resumed, or paused until another time.
func (k Keys) Bell() string { return k.at.bell }

// Ready is the prefix of items that have vested.
func (k Keys) Ready() string { return k.at.ready }

// Later is the prefix of items that have not vested.
func (k Keys) Later() string { return k.at.later }

// Idles is the prefix of the processes that wait for items.
func (k Keys) Idles() string { return k.at.idle }

// Idle is the key of one of them.
func (k Keys) Idle(session string) string { return k.Idles() + session }

// Cancelled is the prefix of the notices that taken items were cancelled.
func (k Keys) Cancelled() string { return k.at.cancelled }

// notice is the key of the notice that the item of a taken key was cancelled.
func (k Keys) notice(taken string) string {
	return k.Cancelled() + strings.TrimPrefix(taken, k.Taken())
}

// Taken is the prefix of items that workers have.
func (k Keys) Taken() string { return k.at.taken }

// TakenBy is the prefix of those of one session.
func (k Keys) TakenBy(session string) string { return k.at.taken + session + "/" }

// Place is the key of where an item is that is not where it was enqueued.
func (k Keys) Place(id string) string { return k.at.place + id }

// Dead is the prefix of dead letters.
func (k Keys) Dead() string { return k.root + "dead/" }

// Trimmed is the key of the time by which dead letters were last trimmed.
func (k Keys) Trimmed() string { return k.root + "trimmed" }

// Workers is the prefix of the entries of sessions.
func (k Keys) Workers() string { return k.root + "worker/" }

// Worker is the key of one of them.
func (k Keys) Worker(session string) string { return k.Workers() + session }

// Slots is the prefix of the slots of a queue with MaxTaken.
func (k Keys) Slots() string { return k.at.slot }

func (k Keys) slot(n int) string { return fmt.Sprintf("%s%05d", k.Slots(), n) }

func (k Keys) bound() string { return k.root + "bound" }

// Paused is the key of who paused the queue, and why.
func (k Keys) Paused() string { return k.root + "paused" }

// Active is the key of the note that the queue has work.
func (k Keys) Active() string { return Actives(k.prefix) + keyspace.Digest(k.spec.Name) }

// Events is the range of the keys that Watch follows.
func (k Keys) Events() (from, end string) { return k.Dead(), k.root[:len(k.root)-1] + "0" }

// SlotOf returns the number of a slot's key; 0 if it is not one of this package.
func (k Keys) SlotOf(key string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(key, k.Slots()))
	return n
}

// ReadyAt is the key of an item that has vested.
func (k Keys) ReadyAt(rank string, vesting time.Time, seq string) string {
	return k.Ready() + order(rank, vesting, seq)
}

// order is the place of an item in the order of its queue, as text.
func order(rank string, vesting time.Time, seq string) string {
	return rank + "/" + keyspace.Instant(vesting) + "/" + seq
}

// LaterAt is the key of an item that has not vested.
func (k Keys) LaterAt(rank string, vesting time.Time, seq string) string {
	return k.Later() + keyspace.Instant(vesting) + "/" + rank + "/" + seq
}

// LaterBy is behind the items among the later ones that have vested by t.
func (k Keys) LaterBy(t time.Time) string { return k.Later() + keyspace.Instant(t) + "0" } // the byte behind the slash

// Vested returns where an item goes from a key among the later ones.
func (k Keys) Vested(key string) (ready string, ok bool) {
	late, ok := strings.CutPrefix(key, k.Later())
	parts := strings.Split(late, "/")
	if !ok || len(parts) != 3 {
		return "", false
	}
	return k.Ready() + parts[1] + "/" + parts[0] + "/" + parts[2], true
}

func (k Keys) deadAt(t time.Time, seq string) string {
	return k.Dead() + keyspace.Instant(t) + "/" + seq
}

func (k Keys) bareAt(t time.Time, id string) string { return k.deadAt(t, "bare/"+id) }

// BareID returns the id of a dead letter whose state cannot be read, or "".
func (k Keys) BareID(key string) string {
	if rest := strings.TrimPrefix(key, k.Dead()); len(rest) > 20 {
		if id, ok := strings.CutPrefix(rest[20:], "/bare/"); ok {
			return id
		}
	}
	return ""
}

// Placed returns the key that a place names.
func (k Keys) Placed(p Place) string { return k.root + p.Key }

// The keys of claims. No queue's name has a slash, so no such key belongs to another
// queue.

// SessionKey is the key whose claim is a session.
func (k Keys) SessionKey(session string) string {
	return "queue/" + k.spec.Name + "/session/" + session
}

// Own is the key of the claim of a session in etcd.
func (k Keys) Own(session string) string { return keyspace.Own(k.prefix, k.SessionKey(session)) }

// KeeperKey is the key whose claim the keeper of the queue has.
func (k Keys) KeeperKey() string { return "queue/" + k.spec.Name + "/keeper" }

// KeeperClaim is the key of that claim in etcd.
func (k Keys) KeeperClaim() string { return keyspace.Own(k.prefix, k.KeeperKey()) }

// TokenKey is the key of the token of an item.
func (k Keys) TokenKey(id string) string { return "queue/" + k.spec.Name + "/item/" + id }
