package queue

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// valueVersion is the version of all stored values. Values of a newer version are
// skipped and counted, never guessed at.
const valueVersion = 1

// content is the value of content/<id>: put once, by the enqueuing transaction. When
// the item is completed it is deleted, or replaced by a tombstone that keeps the id
// from being enqueued again.
type content struct {
	Version  int       `json:"v"`
	Topic    string    `json:"topic,omitempty"`
	Payload  []byte    `json:"payload,omitempty"`
	Given    bool      `json:"given,omitempty"`
	Seq      string    `json:"seq"`
	Rank     string    `json:"rank"`
	Vesting  time.Time `json:"vesting"`
	Enqueued time.Time `json:"enqueued"`

	Done *tombstone `json:"done,omitempty"`
	// Missing is set if there was no content when a worker took the item: it was put with
	// the item's dead letter, by which people find the item.
	Missing bool `json:"missing,omitempty"`
}

type tombstone struct {
	Fence   int64     `json:"fence,string"`
	Owner   string    `json:"owner"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	By      string    `json:"by,omitempty"` // the adopted lease that completed it
}

// state is what changes of an item. It is the value of its key under index/, taken/
// or dead/, and moves with the item.
type state struct {
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
	attemptFailed    = "failed"
	attemptLost      = "lost"
	attemptDiscarded = "discarded"
)

// Attempt is one attempt of an item that did not complete it.
type Attempt struct {
	Number int    `json:"attempt"`
	Owner  string `json:"owner"` // label of the process
	Fence  int64  `json:"fence,string"`
	// Ending is how the attempt ended. "failed": the worker reported it. "lost": the worker's
	// process died, or did not answer. "discarded": the worker gave the item up for good.
	Ending string    `json:"ending"`
	Error  string    `json:"error,omitempty"` // up to 1,024 bytes
	At     time.Time `json:"at"`
}

// slotOwner is the value of slot/<n>: whose item it is for.
func slotOwner(session, id string) string { return session + "/" + id }

// place is the value of place/<id>.
type place struct {
	Version int    `json:"v"`
	Key     string `json:"key"`             // below the queue's root; "" once the item is completed
	Verb    string `json:"verb,omitempty"`  // what moved it
	Fence   int64  `json:"fence,omitempty"` // of the lease that did
	By      string `json:"by,omitempty"`    // and which one, if it was adopted: see Delivery.by
}

func encode(v any) string { return keyspace.Encode(v) }

// decode reads a value, and refuses one of a newer version.
func decode[T any](key, value []byte) (T, error) {
	var head struct {
		Version int `json:"v"`
	}
	var v T
	if err := json.Unmarshal(value, &head); err != nil {
		return v, fmt.Errorf("value of %q cannot be read: %w", key, err)
	}
	switch {
	case head.Version > valueVersion:
		return v, fmt.Errorf("value of %q cannot be read: version %d is newer than version %d of this package", key, head.Version, valueVersion)
	case head.Version < valueVersion:
		return v, fmt.Errorf("value of %q cannot be read: version %d is unknown", key, head.Version)
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return v, fmt.Errorf("value of %q cannot be read: %w", key, err)
	}
	return v, nil
}

// decodeState reads the state of an item.
func decodeState(kv *mvccpb.KeyValue) (state, error) {
	st, err := decode[state](kv.Key, kv.Value)
	if err == nil && (st.ID == "" || st.Seq == "") {
		err = fmt.Errorf("value of %q is not of an item", kv.Key)
	}
	return st, err
}

// ended adds an attempt to the history, and drops the oldest if there are too many.
func (st *state) ended(a Attempt) {
	a.Error = cut(a.Error)
	st.History = append(st.History[:len(st.History):len(st.History)], a)
	if over := len(st.History) - maxHistory; over > 0 {
		st.History = st.History[over:]
	}
}

// cut shortens a text to maxErrorBytes, at the end of a rune.
func cut(s string) string {
	if len(s) <= maxErrorBytes {
		return s
	}
	const mark = "…"
	n := maxErrorBytes - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// waiting returns the item without what only a taken or dead one has.
func (st state) waiting() state {
	st.Owner, st.Since, st.Epoch, st.Slot, st.Nonce, st.Why, st.Died = "", time.Time{}, 0, 0, "", "", time.Time{}
	return st
}

// orderOf returns the place of an item in the order of the queue, as text.
func (q *Queue) orderOf(st state) string {
	return order(rank(st.Priority, q.cfg.HigherFirst), st.Vesting, st.Seq)
}

// indexKey is where the item waits: among those that have vested by now, or not.
func (q *Queue) indexKey(st state, now time.Time) string {
	r := rank(st.Priority, q.cfg.HigherFirst)
	if st.Vesting.After(now) {
		return q.keys.laterAt(r, st.Vesting, st.Seq)
	}
	return q.keys.readyAt(r, st.Vesting, st.Seq)
}

// move is the operations that put the item elsewhere, with its place: all keys but
// the first one of an item are noted, so that it is found by its id. The caller sets
// what p has beside version and key.
func (q *Queue) move(st state, key string, p place) []clientv3.Op {
	st.Moved = true
	p.Version, p.Key = valueVersion, key[len(q.keys.root):]
	return []clientv3.Op{clientv3.OpPut(key, encode(st)), clientv3.OpPut(q.keys.place(st.ID), encode(p))}
}
