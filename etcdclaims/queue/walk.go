package queue

import "time"

// etcd keeps a deleted key until it compacts, and a read visits all keys of its range, deleted or
// not, whatever its limit. Each item leaves deleted keys below ready/, later/, taken/ and content/.
// So a read of one of these as a whole, a walk, takes the longer the more items were completed since
// the compaction.
//
// Reads that each item causes begin at a floor. Walks in the background rest in between.

// mostHidden bounds the rest of walks that find what a deaf watch hides, and mostRest that of others.
const (
	mostHidden = time.Minute
	mostRest   = time.Hour
)

// trust is how long is trusted what the watch reports, if a read takes no time.
func (q *store) trust() time.Duration { return min(q.cfg.TTL/3, longestTrust) }

// rest returns how long it is at least from the begin of one walk to the next, if the one took so
// long: walks take a hundredth of the time.
func rest(took, least, most time.Duration) time.Duration { return min(max(100*took, least), most) }
