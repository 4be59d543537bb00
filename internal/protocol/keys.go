package protocol

import (
	"path"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// Layout knows where things are. A user's key is the end of an etcd key, or a digest of
// fixed length where other keys are below it. So no user key is ever read as part of
// another's subtree.
type Layout struct {
	Prefix   string // ends in a slash
	Instance string // the client's own
}

// Own is the key of a claim.
func (l Layout) Own(key string) string { return keyspace.Own(l.Prefix, key) }

// Note is the key of the holder's note.
func (l Layout) Note(key string) string { return l.Prefix + "note/" + key }

// Reserved reports whether an operation on [key, end) would touch keys of the protocol.
func (l Layout) Reserved(key, end string) bool { return keyspace.Reserved(l.Prefix, key, end) }

// Epoch is the key of the epoch.
func (l Layout) Epoch() string { return keyspace.EpochKey(l.Prefix) }

// Lines is the prefix of all places in line.
func (l Layout) Lines() string { return l.Prefix + "wait/" }

// Waiting is the prefix of the places in one line.
func (l Layout) Waiting(line string) string {
	digest := keyspace.DigestText(line)
	return l.Prefix + "wait/" + string(digest[:]) + "/"
}

// Place is the key of a place in line.
func (l Layout) Place(line, name string) string { return l.Waiting(line) + name }

// Sessions is the prefix of what clients keep about themselves.
func (l Layout) Sessions() string { return l.Prefix + "session/" }

// Session is the prefix of what one client keeps about itself. That client watches it.
func (l Layout) Session(instance string) string { return l.Sessions() + instance + "/" }

// Sentinels is the prefix of the sentinels of a client's leases.
func (l Layout) Sentinels(instance string) string { return l.Session(instance) + "live/" }

// Sentinel is the sentinel of the client's n-th lease.
func (l Layout) Sentinel(n int64) string {
	return l.Sentinels(l.Instance) + strconv.FormatInt(n, 10)
}

// Eviction is the key by which a holder learns that its claim was taken away.
func (l Layout) Eviction(instance, claim string) string {
	return l.Session(instance) + "evict/" + claim
}

// Question is the key by which one client asks another whether it lives.
func (l Layout) Question(of, by string) string { return l.Session(of) + "ask/" + by }

// Notice is the key by which a waiter learns that it was handed the key.
func (l Layout) Notice(instance, claim string) string { return l.Session(instance) + "won/" + claim }

// Notices is the prefix of all notices to waiters of this client.
func (l Layout) Notices() string { return l.Session(l.Instance) + "won/" }

// Noticed returns the id of the waiter whose notice an etcd key is, if it is one to this client.
func (l Layout) Noticed(name string) (id string, ok bool) {
	return strings.CutPrefix(name, l.Notices())
}

// Void is the key that keeps requests under a ticket from being carried out.
func (l Layout) Void(ticket string) string { return l.Prefix + "void/" + ticket }

// Sharers is what the keys of all shared claims of a key begin with.
func (l Layout) Sharers(key string) string { return l.Own(key + keyspace.SharedSuffix) }

// SharersEnd is the first etcd key after those of all shared claims of a key. Between the
// key itself and them there may be keys of others.
func (l Layout) SharersEnd(key string) string { return keyspace.RangeEnd(l.Sharers(key)) }

// PlacedID returns the id of the attempt that a notice is of, or a place in line that has a name of its own.
func PlacedID(name []byte) string { return strings.TrimPrefix(path.Base(string(name)), sharedMark) }
