package protocol

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// Version is the "v" of every value. A reader refuses a greater one.
const Version = 1

// Holder is the value of a claim: for people and for reading back a claim whose reply was
// lost. It is never matched by owner.
type Holder struct {
	Version  int    `json:"v"`
	Claim    string `json:"claim"` // new for each attempt to claim
	Owner    string `json:"owner"`
	Instance string `json:"instance,omitempty"` // new for each client
	Since    string `json:"since,omitempty"`    // RFC 3339, by the holder's wall clock
	Attempt  int    `json:"attempt,omitempty"`  // of work
	Kind     string `json:"kind,omitempty"`
	TTL      int64  `json:"ttl,omitempty"`   // seconds, of its lease; of a lock as asked for
	Epoch    int64  `json:"epoch,omitempty"` // under which its fence is
	Slots    int    `json:"slots,omitempty"` // how many the key has, in the record of that

	Suspectable bool   `json:"suspectable,omitempty"` // its client answers questions
	Preference  int    `json:"preference,omitempty"`
	Place       string `json:"place,omitempty"` // the name of its place in line, if that is not the claim

	Labels []string `json:"labels,omitzero"` // of its process, for readers; nil: not known. See option.Labels
}

// Kinds of holders other than a claim.
const (
	KindLock    = "lock"    // of the owner-string facade
	KindZombie  = "zombie"  // moved: its handler did not return in time
	KindResting = "resting" // moved: released before its MinHold was over
	KindSlots   = "slots"   // the record of a key with slots
	KindShared  = "shared"  // the record of a key that callers share
	KindSelf    = "self"    // the place of a waiter that serves itself
)

// Encode returns the value of a key.
func (h Holder) Encode() string {
	h.Version = Version
	return keyspace.Encode(h)
}

// DecodeHolder reads the value of a claim, of a place in line, or of a record. It returns the
// version also with an error.
func DecodeHolder(value []byte) (Holder, error) {
	var h Holder
	err := json.Unmarshal(value, &h)
	if newer := keyspace.Newer(h.Version, Version); newer != nil { // its fields may have other types
		return h, newer
	}
	return h, err
}

// Fence returns the fence of a holder that was put at the revision.
func (h Holder) Fence(rev int64) int64 { return keyspace.Fence(h.Epoch, rev) }

// Note is the value of a holder's note. The number distinguishes a late request from the
// present one.
type Note struct {
	Version int    `json:"v"`
	Seq     int64  `json:"seq"`
	Text    string `json:"text,omitempty"` // a note that is UTF-8, so that an operator can read it
	Data    []byte `json:"data,omitempty"` // any other
}

// NewNote returns the value of a note.
func NewNote(seq int64, b []byte) string {
	n := Note{Version: Version, Seq: seq}
	if utf8.Valid(b) {
		n.Text = string(b)
	} else {
		n.Data = b
	}
	return keyspace.Encode(n)
}

// Bytes returns what the holder has noted.
func (n Note) Bytes() []byte {
	if n.Data != nil {
		return n.Data
	}
	return []byte(n.Text)
}

// Notice is the value by which a releaser tells a waiter that it has the key.
type Notice struct {
	Version int     `json:"v"`
	Epoch   int64   `json:"epoch,omitempty"`    // under which the fence is
	Rev     int64   `json:"epochRev,omitempty"` // ModRevision of the epoch's key
	Next    []Place `json:"next,omitempty"`     // the next places in line, as far as the releaser knew
	More    bool    `json:"more,omitempty"`     // there are further places behind those
	Trace   string  `json:"trace,omitempty"`    // of the releaser's claim, for the one that follows
	Slot    int     `json:"slot,omitempty"`     // that is handed over, of a key with slots
}

// DecodeNotice reads the value of a notice.
func DecodeNotice(value []byte) (Notice, error) {
	var n Notice
	if err := json.Unmarshal(value, &n); err != nil {
		return n, err
	}
	return n, keyspace.Newer(n.Version, Version)
}

// Eviction is the value by which a holder learns that its claim was taken away.
type Eviction struct {
	Version int    `json:"v"`
	Key     string `json:"key"`
	Claim   string `json:"claim"`
	By      string `json:"by"`
	Reason  string `json:"reason"`

	Suspected bool `json:"suspected,omitempty"` // not forced: its client did not answer
}

// Sentinel is the value of the sentinel of a lease: who has it.
type Sentinel struct {
	Version int    `json:"v"`
	Owner   string `json:"owner"`
	Since   string `json:"since"` // RFC 3339, by the client's wall clock
}
