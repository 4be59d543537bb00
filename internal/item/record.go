package item

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Version is the version of all stored values. Values of a newer version are
// skipped and counted, never guessed at.
const Version = 1

const (
	// MaxHistory is how many attempts an item remembers.
	MaxHistory = 20
	// MaxErrorBytes bounds each stored error.
	MaxErrorBytes = 1024
)

// Spec is what all processes that use a queue must agree on.
type Spec struct {
	Version     int    `json:"v"`
	Name        string `json:"name"`
	HigherFirst bool   `json:"higherFirst,omitempty"` // the items with the greatest priority are claimed first
	MaxTaken    int    `json:"maxTaken,omitempty"`
	MaxWaiting  int    `json:"maxWaiting,omitempty"`
	KeyLimit    int    `json:"keyLimit,omitempty"` // lanes of each partition key; 0 is 1
	// Aging is how long an item waits to rise by one priority; 0: it never does.
	Aging time.Duration `json:"aging,omitempty"`
}

// Content is the value of content/<id>: put once, by the enqueuing transaction. When
// the item is completed it is deleted, or replaced by a tombstone that keeps the id
// from being enqueued again.
type Content struct {
	Version  int       `json:"v"`
	Topic    string    `json:"topic,omitempty"`
	Key      string    `json:"key,omitempty"` // the partition key
	Payload  []byte    `json:"payload,omitempty"`
	Given    bool      `json:"given,omitempty"`
	Seq      string    `json:"seq"`
	Rank     string    `json:"rank"`
	Vesting  time.Time `json:"vesting"`
	Enqueued time.Time `json:"enqueued"`

	Done *Tombstone `json:"done,omitempty"`
	// Missing is set if there was no content when a worker took the item: it was put with
	// the item's dead letter, by which people find the item.
	Missing bool `json:"missing,omitempty"`
}

// Tombstone is what remains of an item that was completed.
type Tombstone struct {
	Fence   int64     `json:"fence,string"`
	Owner   string    `json:"owner"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	By      string    `json:"by,omitempty"` // the adopted lease that completed it
	Result  []byte    `json:"result,omitempty"`
}

// State is what changes of an item. It is the value of its key under index/, taken/
// or dead/, and moves with the item.
type State struct {
	Version  int       `json:"v"`
	ID       string    `json:"id"`
	Given    bool      `json:"given,omitempty"`
	Seq      string    `json:"seq"`
	Priority int       `json:"priority"`
	Vesting  time.Time `json:"vesting"`
	Max      int       `json:"max"`
	Attempts int       `json:"attempts"` // begun so far
	History  []Attempt `json:"history,omitempty"`
	Moved    bool      `json:"moved,omitempty"` // place/<id> says where it is
	Key      string    `json:"key,omitempty"`   // the partition key
	Lane     int       `json:"lane,omitempty"`  // of that key, from 1; 0: its turn has not come

	// Of a taken item.
	Owner string    `json:"owner,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Epoch int64     `json:"epoch,omitempty"` // of the lease: its fence is this and the ModRevision
	Slot  int       `json:"slot,omitempty"`  // from 1; 0: none
	Nonce string    `json:"nonce,omitempty"`

	// Of a dead letter.
	Why  string    `json:"why,omitempty"`
	Died time.Time `json:"died,omitzero"`
}

// How attempts end.
const (
	AttemptFailed    = "failed"
	AttemptLost      = "lost"
	AttemptDiscarded = "discarded"
)

// Attempt is one attempt of an item that did not complete it.
type Attempt struct {
	Number int       `json:"attempt"`
	Owner  string    `json:"owner"`
	Fence  int64     `json:"fence,string"`
	Ending string    `json:"ending"`
	Error  string    `json:"error,omitempty"` // up to MaxErrorBytes
	At     time.Time `json:"at"`
}

// slotOwner is the value of slot/<n>: whose item it is for.
func slotOwner(session, id string) string { return session + "/" + id }

// Place is the value of place/<id>.
type Place struct {
	Version int    `json:"v"`
	Key     string `json:"key"`             // below the queue's root; "" once the item is completed
	Verb    string `json:"verb,omitempty"`  // what moved it
	Fence   int64  `json:"fence,omitempty"` // of the lease that did
	By      string `json:"by,omitempty"`    // and which one, if it was adopted: see Held.By
}

// Encode returns a value as it is stored.
func Encode(v any) string { return keyspace.Encode(v) }

// bare is a value that says nothing.
func bare() string { return Encode(map[string]any{"v": Version}) }

// Decode reads a value, and refuses one of a newer version.
func Decode[T any](key, value []byte) (v T, err error) {
	if !bytes.HasPrefix(value, asEncoded) {
		err = checkVersion(value)
	}
	if err == nil {
		err = json.Unmarshal(value, &v)
	}
	if err != nil {
		return v, fmt.Errorf("value of %q cannot be read: %w", key, err)
	}
	return v, nil
}

// asEncoded begins what Encode returns, for values that have more than a version.
var asEncoded = fmt.Appendf(nil, `{"v":%d,`, Version)

func checkVersion(value []byte) error {
	var head struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return err
	}
	if head.Version < Version {
		return fmt.Errorf("version %d is unknown", head.Version)
	}
	return keyspace.Newer(head.Version, Version)
}

// DecodeState reads the state of an item.
func DecodeState(kv *mvccpb.KeyValue) (State, error) {
	st, err := Decode[State](kv.Key, kv.Value)
	if err == nil && (st.ID == "" || st.Seq == "") {
		err = fmt.Errorf("value of %q is not of an item", kv.Key)
	}
	return st, err
}

// ended adds an attempt to the history, and drops the oldest if there are too many.
func (st *State) ended(a Attempt) {
	a.Error = Cut(a.Error)
	st.History = append(st.History[:len(st.History):len(st.History)], a)
	if over := len(st.History) - MaxHistory; over > 0 {
		st.History = st.History[over:]
	}
}

// Cut shortens a text to MaxErrorBytes, at the end of a rune.
func Cut(s string) string {
	if len(s) <= MaxErrorBytes {
		return s
	}
	const mark = "…"
	n := MaxErrorBytes - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// waiting returns the item without what only a taken or dead one has.
func (st State) waiting() State {
	st.Owner, st.Since, st.Epoch, st.Slot, st.Nonce, st.Why, st.Died = "", time.Time{}, 0, 0, "", "", time.Time{}
	return st
}

// Entry is an item as it was read, and the key that its state is under.
type Entry struct {
	KV    *mvccpb.KeyValue
	State State
	At    string // its place in the order of the queue
}

// Entry reads an item.
func (k Keys) Entry(kv *mvccpb.KeyValue) (*Entry, error) {
	st, err := DecodeState(kv)
	if err != nil {
		return nil, err
	}
	return &Entry{kv, st, k.OrderOf(st)}, nil
}

// Key returns the key that the item's state is under.
func (e *Entry) Key() string { return string(e.KV.Key) }

// ByOrder compares the places of two items in the order of their queue.
func ByOrder(a, b *Entry) int { return strings.Compare(a.At, b.At) }
