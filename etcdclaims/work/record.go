package work

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retention"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// valueVersion is the "v" of every record. A reader refuses a greater one.
const valueVersion = 1

// State is the state of work.
type State string

// The states of work.
const (
	StateFree     State = "free"     // given back without an outcome, or after Runner.Retry
	StateClaimed  State = "claimed"  // held by an owner
	StateOrphaned State = "orphaned" // claimed, but its key is free: the owner is gone; never stored
	StateFailed   State = "failed"   // failed; the next attempt may begin at NotBefore
	StateDone     State = "done"     // completed; kept for Config.Retention
	StateDead     State = "dead"     // failed for good; kept for Config.DeadRetention

	// StateUnreadable is the state of a record that this version of the
	// package cannot read: a newer version or another program wrote it. It is
	// never stored. Only Key and Error of such a record are set.
	StateUnreadable State = "unreadable"
)

// stored reports whether a record can have the state. Any other is of a later
// version: work in such a state is not begun on a guess.
func (s State) stored() bool {
	switch s {
	case StateFree, StateClaimed, StateFailed, StateDone, StateDead:
		return true
	}
	return false
}

// Limits of what a record stores, as the comments of Record and Work state them.
const (
	maxResultBytes = 64 << 10
	maxErrorBytes  = 4 << 10
	maxStackBytes  = 8 << 10
)

// Record is what etcd stores about work. It outlives its owners, and is kept
// for Config.Retention or Config.DeadRetention.
type Record struct {
	Key     string
	State   State
	Attempt int // 1 for the first attempt; one that is given back is subtracted again
	// Earlier is the number of attempts before the work was last begun anew,
	// with Again or after Retry. Config.MaxAttempts does not count them.
	Earlier    int
	Fence      int64  // fence of the attempt
	Claim      string // ID of the attempt's claim
	Owner      string // label of the attempt's owner
	Instance   string // client of the attempt's owner
	Begun      time.Time
	Ended      time.Time // zero while claimed
	NotBefore  time.Time // earliest begin of the next attempt, in StateFailed
	Error      string    // error of the last failed attempt, up to 4 KiB; a longer one ends in an ellipsis
	Stack      string    // stack of that attempt's panic, up to 8 KiB; empty if it did not panic
	Result     string    // result of done work, up to 64 KiB; see Work.CompleteWith
	Note       string    // note of the last attempt that was begun with Note
	AtMostOnce bool
}

// fields are those of Record as they are stored: the compiler checks that none is forgotten.
type fields struct {
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

// record is the value of work/<key>.
type record struct {
	Version int `json:"v"`
	fields
	Epoch    int64  `json:"epoch,omitempty"`
	Data     []byte `json:"result,omitempty"`
	NoteData []byte `json:"noteData,omitempty"` // a note that is not UTF-8
	Retry    string `json:"retry,omitempty"`    // new for each Retry, which finds itself by it
}

func (r record) encode() string {
	r.Version = valueVersion
	return keyspace.Encode(r)
}

// decodeRecord returns a record that was read. One that cannot be read is in StateUnreadable.
func decodeRecord(key string, kv *mvccpb.KeyValue) (Record, error) {
	var r record
	err := json.Unmarshal(kv.Value, &r)
	switch {
	case err != nil:
	case r.Version > protocol.Version:
		err = fmt.Errorf("version %d is newer than version %d of this package", r.Version, protocol.Version)
	case !r.State.stored():
		err = fmt.Errorf("state %q is unknown", r.State)
	}
	if err != nil {
		return Record{Key: key, State: StateUnreadable, Error: err.Error()}, fmt.Errorf("the record of work %q cannot be read: %w", key, err)
	}
	out := Record(r.fields)
	out.Key, out.Result = key, string(r.Data)
	if r.NoteData != nil {
		out.Note = string(r.NoteData)
	}
	if r.State == StateClaimed && r.Fence == 0 {
		// It was written by the transaction that claimed the key.
		out.Fence = keyspace.Fence(r.Epoch, kv.ModRevision)
	}
	return out, nil
}

func (r Record) stored() record {
	out := record{fields: fields(r), Data: []byte(r.Result)}
	if !utf8.ValidString(r.Note) {
		out.Note, out.NoteData = "", []byte(r.Note)
	}
	return out
}

// claimIn returns the claim that a record as it is stored is of.
func claimIn(value string) string {
	var r record
	_ = json.Unmarshal([]byte(value), &r)
	return r.Claim
}

// tries is how many attempts Config.MaxAttempts counts.
func (r Record) tries() int { return r.Attempt - r.Earlier }

// put stores the record on the lease.
func (r record) put(key string, l *retention.Lease) clientv3.Op {
	return clientv3.OpPut(key, r.encode(), clientv3.WithLease(l.ID()))
}

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
