package core

import (
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Keys is where things are in etcd, and how they are written.
type Keys interface {
	// Layout returns where things are.
	Layout() Layout
	// Holder reads the value in the place of a claim. If a newer version has written it, Holder
	// returns an error and what it could read.
	Holder(value []byte) (Holder, error)
	// EncodeHolder returns the value of a holder.
	EncodeHolder(h Holder) string
	// EncodeSlots returns the value of the record of a key with n slots.
	EncodeSlots(n int) string
	// Sentinel reads the label of the client that has a session, and when that began.
	Sentinel(value []byte) (owner string, since time.Time, err error)
	// Eviction reads a notice of eviction, and EncodeEviction writes one.
	Eviction(value []byte) (Eviction, error)
	EncodeEviction(e Eviction) string
	// Held returns a *HeldError for the holder of a key that was read, or for the caller that is
	// first in line. Its text does not say that the call acquires.
	Held(key string, own *mvccpb.KeyValue, waiting int64) error
}

// Layout knows where the keys of claims are. A name that ends in a slash is a prefix.
type Layout interface {
	Own(key string) string                // the claim
	Note(key string) string               // its note
	Work(key string) string               // the record of work
	Epoch() string                        // the epoch
	Lines() string                        // the prefix of all lines
	Waiting(key string) string            // the prefix of those in line for the key
	Placed(place []byte) string           // the claim that a place in line is for
	Sessions() string                     // the prefix of all sessions
	Sentinels(instance string) string     // the prefix of the sentinels of a client
	Evict(instance, claim string) string  // the notice of an eviction
	Notice(instance, claim string) string // the notice of a hand-over
	Void(id string) string                // makes a request void
	Sharers(key string) string            // the prefix of the claims that share a key
	SharedEnd(key string) string          // the end of the claim on a key and of those that share it
}

// Holder is the value in the place of a claim.
type Holder struct {
	Version  int
	Claim    string
	Owner    string
	Instance string
	Since    time.Time
	Attempt  int
	Kind     string
	TTL      int64
	Epoch    int64
	Slots    int

	Preference int
}

// Kinds of holders other than a claim; see etcdclaims.Info.
const (
	KindLock    = "lock"
	KindZombie  = "zombie"
	KindResting = "resting"
	KindSlots   = "slots"
	KindShared  = "shared"
)

// ValueVersion is the greatest version of a value that can be read.
const ValueVersion = 1

// Fence returns the fence of a holder that was put at a revision.
func (h Holder) Fence(rev int64) int64 { return keyspace.Fence(h.Epoch, rev) }

// Eviction is a notice to the holder of a claim that was taken from it.
type Eviction struct {
	Key, Claim string
	By, Reason string
	Suspected  bool // not forced: its client did not answer
}
