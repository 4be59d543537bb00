// Package record decides about the records of work: what an attempt puts beside its claim, what the next
// one may do, what an end records, and how an attempt that no caller got is put back. It does no I/O and
// reads no clock.
package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// valueVersion is the "v" of every record. A reader refuses a greater one.
const valueVersion = 1

// State is the state of work, as package work describes it.
type State string

// The states of work.
const (
	Free       State = "free"
	Claimed    State = "claimed"
	Orphaned   State = "orphaned" // never stored
	Failed     State = "failed"
	Done       State = "done"
	Dead       State = "dead"
	Unreadable State = "unreadable" // never stored
)

// stored reports whether a record can have the state. Any other is of a later
// version: work in such a state is not begun on a guess.
func (s State) stored() bool {
	switch s {
	case Free, Claimed, Failed, Done, Dead:
		return true
	}
	return false
}

// Limits of what a record stores, as the comments of work.Record and work.Work state them.
const (
	MaxResultBytes = 64 << 10
	maxErrorBytes  = 4 << 10
	maxStackBytes  = 8 << 10
)

// Record is a work.Record, as it is stored. The compiler checks that the fields are the same.
type Record struct {
	Key        string    `json:"-"`
	State      State     `json:"state"`
	Attempt    int       `json:"attempt"`
	Earlier    int       `json:"earlier,omitempty"`
	Fence      int64     `json:"fence,string,omitempty"` // 0 in claimed: its own revision, unless it was put back
	Claim      string    `json:"claim"`
	Owner      string    `json:"owner"`
	Instance   string    `json:"instance"`
	Begun      time.Time `json:"begun"`
	Ended      time.Time `json:"ended,omitzero"`
	NotBefore  time.Time `json:"notBefore,omitzero"`
	Error      string    `json:"error,omitempty"`
	Stack      string    `json:"stack,omitempty"`
	Result     string    `json:"-"`              // as Data
	Note       string    `json:"note,omitempty"` // one that is UTF-8
	AtMostOnce bool      `json:"atMostOnce,omitempty"`
}

// Value is the value of work/<key>.
type Value struct {
	Version int `json:"v"`
	Record
	Epoch    int64  `json:"epoch,omitempty"`
	Data     []byte `json:"result,omitempty"`
	NoteData []byte `json:"noteData,omitempty"` // a note that is not UTF-8
	Retry    string `json:"retry,omitempty"`    // new for each Runner.Retry, which finds itself by it
}

// Encode returns the value as etcd has it.
func (v Value) Encode() string {
	v.Version = valueVersion
	return keyspace.Encode(v)
}

// Read returns a value as etcd has it, zero if it is none.
func Read(value []byte) (v Value) {
	if json.Unmarshal(value, &v) != nil {
		return Value{}
	}
	return v
}

// Decode returns a record that was read. One that cannot be read is in Unreadable.
func Decode(key string, kv *mvccpb.KeyValue) (Record, error) {
	var v Value
	err := json.Unmarshal(kv.Value, &v)
	switch newer := keyspace.Newer(v.Version, protocol.Version); {
	case newer != nil: // its fields may have other types
		err = newer
	case err != nil:
	case !v.State.stored():
		err = fmt.Errorf("state %q is unknown", v.State)
	}
	if err != nil {
		return Record{Key: key, State: Unreadable, Error: err.Error()}, fmt.Errorf("the record of work %q cannot be read: %w", key, err)
	}
	out := v.Record
	out.Key, out.Result = key, string(v.Data)
	if v.NoteData != nil {
		out.Note = string(v.NoteData)
	}
	if v.State == Claimed && v.Fence == 0 {
		// It was written by the transaction that claimed the key.
		out.Fence = keyspace.Fence(v.Epoch, kv.ModRevision)
	}
	return out, nil
}

// Value returns the record as it is stored.
func (r Record) Value() Value {
	out := Value{Record: r, Data: []byte(r.Result)}
	if !utf8.ValidString(r.Note) {
		out.Note, out.NoteData = "", []byte(r.Note)
	}
	return out
}

// tries is how many attempts the limit of a runner counts.
func (r Record) tries() int { return r.Attempt - r.Earlier }

// limitText keeps a text within what a record should carry: whole runes, up to the
// limit.
func limitText(s string, limit int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= limit {
		return s
	}
	const more = "…"
	cut := limit - len(more)
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}
