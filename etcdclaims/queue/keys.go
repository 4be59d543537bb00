package queue

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// keys is the layout of a queue in etcd. Below the client's prefix and
// queue/<digest of the name>/:
//
//	spec                              what all processes must agree on
//	content/<id>                      what never changes of an item; once it is completed, that it was
//	index/ready/<rank>/<vesting>/<seq>  items that have vested
//	index/later/<vesting>/<rank>/<seq>  items that have not
//	index/bell                        written when the queue is resumed
//	index/idle/<session>              processes that wait for items
//	taken/<session>/<id>              items that a worker has: put once per lease, so its ModRevision is the fence
//	place/<id>                        where an item is that is not where it was enqueued
//	note/<id>                         the note of the worker that has the item, on the lease of its session
//	dead/<time>/<seq>                 dead letters
//	dead/<time>/bare/<id>             dead letters whose state this program cannot read
//	worker/<session>                  sessions that have, or had, items; its ModRevision is the session's generation
//	slot/<n>                          one per taken item, in queues with MaxTaken
//	bound                             written by each enqueue into a queue with MaxWaiting
//	paused                            who paused the queue, and why
//	trimmed                           by which time dead letters were last trimmed
//
// The keys below index/ have one prefix, for one watch. All keys but bound and the contents
// are one range, for Watch. A session is a claim of the key sessionKey.
// queue/active/<digest> names queues with work.
type keys struct{ top, root, name string }

func newKeys(prefix, name string) keys {
	return keys{top: prefix + "queue/", root: prefix + "queue/" + keyspace.Digest(name) + "/", name: name}
}

func (k keys) spec() string                  { return k.root + "spec" }
func (k keys) item(id string) string         { return k.root + "content/" + id }
func (k keys) mark(id string) string         { return k.item(id) + "\x00" } // no id has that
func (k keys) index() string                 { return k.root + "index/" }
func (k keys) bell() string                  { return k.index() + "bell" }
func (k keys) ready() string                 { return k.index() + "ready/" }
func (k keys) later() string                 { return k.index() + "later/" }
func (k keys) idles() string                 { return k.index() + "idle/" }
func (k keys) idle(session string) string    { return k.idles() + session }
func (k keys) taken() string                 { return k.root + "taken/" }
func (k keys) takenBy(session string) string { return k.taken() + session + "/" }
func (k keys) place(id string) string        { return k.root + "place/" + id }
func (k keys) note(id string) string         { return k.root + "note/" + id }
func (k keys) dead() string                  { return k.root + "dead/" }
func (k keys) trimmed() string               { return k.root + "trimmed" }
func (k keys) workers() string               { return k.root + "worker/" }
func (k keys) events() (from, end string)    { return k.dead(), k.root[:len(k.root)-1] + "0" }
func (k keys) worker(session string) string  { return k.workers() + session }
func (k keys) slots() string                 { return k.root + "slot/" }
func (k keys) slot(n int) string             { return fmt.Sprintf("%s%05d", k.slots(), n) }
func (k keys) bound() string                 { return k.root + "bound" }
func (k keys) paused() string                { return k.root + "paused" }
func (k keys) actives() string               { return k.top + "active/" }
func (k keys) active() string                { return k.actives() + keyspace.Digest(k.name) }

// slotOf returns the number of a slot's key; 0 if it is not one of this package.
func (k keys) slotOf(key string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(key, k.slots()))
	return n
}

func (k keys) readyAt(rank string, vesting time.Time, seq string) string {
	return k.ready() + order(rank, vesting, seq)
}

// order is the place of an item in the order of its queue, as text.
func order(rank string, vesting time.Time, seq string) string {
	return rank + "/" + keyspace.Instant(vesting) + "/" + seq
}

func (k keys) laterAt(rank string, vesting time.Time, seq string) string {
	return k.later() + keyspace.Instant(vesting) + "/" + rank + "/" + seq
}

// vested returns where an item goes from a key among the later ones.
func (k keys) vested(key string) (ready string, ok bool) {
	late, ok := strings.CutPrefix(key, k.later())
	parts := strings.Split(late, "/")
	if !ok || len(parts) != 3 {
		return "", false
	}
	return k.ready() + parts[1] + "/" + parts[0] + "/" + parts[2], true
}

func (k keys) deadAt(t time.Time, seq string) string {
	return k.dead() + keyspace.Instant(t) + "/" + seq
}
func (k keys) bareAt(t time.Time, id string) string { return k.deadAt(t, "bare/"+id) }

// bareID returns the id of a dead letter whose state cannot be read, or "".
func (k keys) bareID(key string) string {
	if rest := strings.TrimPrefix(key, k.dead()); len(rest) > 20 {
		if id, ok := strings.CutPrefix(rest[20:], "/bare/"); ok {
			return id
		}
	}
	return ""
}

// The keys of claims. No queue's name has a slash, so no such key belongs to another
// queue.

func (k keys) sessionKey(session string) string { return "queue/" + k.name + "/session/" + session }
func (k keys) keeperKey() string                { return "queue/" + k.name + "/keeper" }

// tokenKey is the key of the token of an item.
func (k keys) tokenKey(id string) string { return "queue/" + k.name + "/item/" + id }
