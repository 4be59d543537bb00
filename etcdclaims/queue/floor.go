package queue

import (
	"strings"
	"time"
)

// floor is the key before which a range has no keys, as the last read and the watch tell. A read
// that begins there does not visit the deleted keys before it, which are those of completed items.
// Now and then a read begins at the start all the same, in case that the watch is deaf.
type floor struct {
	prefix  string // of the range
	watched bool
	at      string    // there was no key before it when the last read was made; "": not known
	before  fewKeys   // what was put before it since then and not deleted
	whole   time.Time // when a read begins at the start again

	// The read that was begun last.
	begun time.Time
	from  string
	good  bool    // the watch has been followed since
	since fewKeys // what was put since

	seen string // where the last read that came to an end had begun
}

// reset forgets where keys are: the watch begins, or ends.
func (f *floor) reset(watched bool) { f.watched, f.at, f.good = watched, "", false }

// begin returns from which key on to read.
func (f *floor) begin(now time.Time, whole bool) string {
	f.begun, f.from, f.good, f.since = now, f.prefix, f.watched, fewKeys{}
	if !whole && f.watched && f.at != "" && now.Before(f.whole) {
		f.from = f.before.least(f.at)
	}
	return f.from
}

// end notes before which key the read has found none, "" if it has found none in the range. rest
// is how long it is from the begin of one read at the start to the next, if that one took so long.
func (f *floor) end(first string, now time.Time, rest func(took time.Duration) time.Duration) {
	f.seen = f.from
	if f.from == f.prefix {
		f.whole = f.begun.Add(rest(now.Sub(f.begun)))
	}
	if !f.good {
		return
	}
	if f.at = first; first == "" {
		f.at = f.prefix + "\xff" // behind all keys, and before the end of the range
	}
	f.before, f.good = f.since.below(f.at), false
}

// see takes in what the watch reports.
func (f *floor) see(key string, put bool) {
	switch {
	case !strings.HasPrefix(key, f.prefix):
	case !put:
		f.before.remove(key)
		f.since.remove(key)
	default:
		if key < f.at {
			f.before.add(key)
		}
		if f.good {
			f.since.add(key)
		}
	}
}

// unseen reports whether the last read began behind the key, which is of the range.
func (f *floor) unseen(key string) bool { return strings.HasPrefix(key, f.prefix) && key < f.seen }

// fewKeys are some keys, and a bound of more that were too many to keep.
type fewKeys struct {
	keys  map[string]bool
	bound string // "": there were no more
}

const mostKeys = 64

func (k *fewKeys) add(key string) {
	if len(k.keys) >= mostKeys {
		*k = fewKeys{bound: k.least(key)}
		return
	}
	if k.keys == nil {
		k.keys = map[string]bool{}
	}
	k.keys[key] = true
}

func (k *fewKeys) remove(key string) { delete(k.keys, key) }

// least returns the least of the keys and another one.
func (k *fewKeys) least(key string) string {
	if k.bound != "" {
		key = min(key, k.bound)
	}
	for other := range k.keys {
		key = min(key, other)
	}
	return key
}

// below returns those before a key.
func (k *fewKeys) below(key string) (some fewKeys) {
	for other := range k.keys {
		if other < key {
			some.add(other)
		}
	}
	if k.bound < key {
		some.bound = k.bound
	}
	return some
}

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

	longestTrust = 10 * time.Second // how long what is known counts if the watch reports nothing
)

// trust is how long is trusted what the watch reports, if a read takes no time.
func (q *store) trust() time.Duration { return min(q.cfg.TTL/3, longestTrust) }

// rest returns how long it is at least from the begin of one walk to the next, if the one took so
// long: walks take a hundredth of the time.
func rest(took, least, most time.Duration) time.Duration { return min(max(100*took, least), most) }
