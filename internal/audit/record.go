// Package audit records what operators do: who did what to which object, and why.
//
// A record is a key below P audit/, and the transaction that carries out the action puts it. So neither
// is there without the other, and a lost reply leaves none or one. An action of several transactions puts
// the same key with each. The revision of the action is the CreateRevision of the key, whose name begins with the
// time of the action, so that etcd's order is that of time.
//
// A key costs a put, and each action one more read, by which the oldest records are removed: see trim.
package audit

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// valueVersion is that of the values that this package writes.
const valueVersion = 1

// mostText is the longest text in a record, in bytes.
const mostText = 1024

// Target is what an action is about. Fields that do not concern it are empty.
type Target struct {
	Key    string `json:"key,omitempty"`
	Group  string `json:"group,omitempty"`
	Job    string `json:"job,omitempty"`
	Member string `json:"member,omitempty"`
	Queue  string `json:"queue,omitempty"`
	Item   string `json:"item,omitempty"`
	Detail string `json:"detail,omitempty"` // such as the fence of the term that was ended
}

// Record is what is stored of an action.
type Record struct {
	Version int       `json:"v"`
	At      time.Time `json:"at"` // by the clock of the process that sent it
	Who     string    `json:"who"`
	Verb    string    `json:"verb"`
	Target
	Why string `json:"why,omitempty"`

	// Revision is that of etcd at which the action took effect. It is stored only if the record was put back
	// from a backup: otherwise it is the CreateRevision of the key.
	Revision int64 `json:"revision,omitempty"`
	Err      error `json:"-"` // why the record cannot be read
}

// Under is the prefix of the records of a client with the prefix.
func Under(prefix string) string { return prefix + "audit/" }

// read decodes a record. Of one that cannot be read, the time and the revision are known.
func read(prefix string, kv *mvccpb.KeyValue) Record {
	r, err := keyspace.Decode[Record](string(kv.Key), kv.Value, valueVersion)
	if err != nil {
		text, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), Under(prefix)), "-")
		nanos, _ := strconv.ParseInt(text, 10, 64)
		r = Record{At: time.Unix(0, nanos).UTC(), Err: err}
	}
	r.Revision = cmp.Or(r.Revision, kv.CreateRevision)
	return r
}

// Portable returns the value of a record as a backup has it: with the revision of the action. One that cannot be
// read stays as it is.
func Portable(prefix string, kv *mvccpb.KeyValue) string {
	r := read(prefix, kv)
	if r.Err != nil {
		return string(kv.Value)
	}
	return keyspace.Encode(r)
}

// limit returns the beginning of a text that is longer than a record has room for.
func limit(s string) string {
	if len(s) <= mostText {
		return s
	}
	return strings.ToValidUTF8(s[:mostText-len("…")], "") + "…"
}
