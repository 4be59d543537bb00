package etcdclaims

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
)

// valueVersion is the "v" of every value. A reader refuses a greater one.
const valueVersion = core.ValueVersion

// holder is the value of own/<key>: for people and for reading back a claim
// whose reply was lost. It is never matched by owner.
type holder struct {
	Version  int       `json:"v"`
	Claim    string    `json:"claim"` // new for each attempt to claim
	Owner    string    `json:"owner"`
	Instance string    `json:"instance,omitempty"` // new for each client
	Since    time.Time `json:"since"`
	Attempt  int       `json:"attempt,omitempty"` // of work
	Kind     string    `json:"kind,omitempty"`
	TTL      int64     `json:"ttl,omitempty"`   // seconds, of its lease; of a lock as asked for
	Epoch    int64     `json:"epoch,omitempty"` // under which its fence is
	Slots    int       `json:"slots,omitempty"` // how many the key has, in the record of that

	Suspectable bool `json:"suspectable,omitempty"` // its client answers questions, see inquiry
	Preference  int  `json:"preference,omitempty"`  // of Prefer
}

// Kinds of holders other than a claim.
const (
	kindZombie  = "zombie"  // re-homed: its handler did not return in time
	kindResting = "resting" // re-homed: released before its MinHold was over
)

func (h holder) encode() string {
	h.Version = valueVersion
	return encode(h)
}

func decodeHolder(b []byte) (holder, error) {
	var h holder
	if err := json.Unmarshal(b, &h); err != nil {
		return h, err
	}
	if h.Version > valueVersion {
		return h, fmt.Errorf("version %d is newer than version %d of this package", h.Version, valueVersion)
	}
	return h, nil
}

// fence is that of a holder put at the revision.
func (h holder) fence(rev int64) int64 { return h.Epoch<<epochShift + rev }

// claimValue is holder.encode for the value that is made most often, with what
// does not change put together once.
func (c *Client) claimValue(a *attempt) string {
	if c.valueEnd == "" || a.number() > 0 || a.epoch.Value > 0 || a.opts.suspectable || a.opts.preference > 0 {
		return holder{
			Claim: a.id, Owner: c.cfg.Owner, Instance: c.store.layout.instance,
			Since: a.since.UTC(), Attempt: a.number(), TTL: a.ttl, Epoch: a.epoch.Value,
			Suspectable: a.opts.suspectable, Preference: a.opts.preference,
		}.encode()
	}
	b := make([]byte, 0, 160+len(c.valueEnd))
	b = append(b, `{"v":1,"claim":"`...)
	b = append(b, a.id...)
	b = append(b, `","ttl":`...)
	b = strconv.AppendInt(b, a.ttl, 10)
	b = append(b, `,"since":"`...)
	b = a.since.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, c.valueEnd...)
	return string(b)
}

// valueEnd is the rest of a claim's value.
func valueEnd(owner, instance string) string {
	return `",` + strings.TrimPrefix(encode(struct {
		Owner    string `json:"owner"`
		Instance string `json:"instance"`
	}{owner, instance}), "{")
}

// emptyValue is for keys without content.
const emptyValue = txn.VoidValue

// note is the value of note/<key>. The number distinguishes a late request from the
// present one.
type note struct {
	Version int    `json:"v"`
	Seq     int64  `json:"seq"`
	Text    string `json:"text,omitempty"` // a note that is UTF-8, so that an operator can read it
	Data    []byte `json:"data,omitempty"` // any other
}

func newNote(seq int64, b []byte) string {
	n := note{Version: valueVersion, Seq: seq}
	if utf8.Valid(b) {
		n.Text = string(b)
	} else {
		n.Data = b
	}
	return encode(n)
}

func (n note) bytes() []byte {
	if n.Data != nil {
		return n.Data
	}
	return []byte(n.Text)
}

func encode(v any) string { return keyspace.Encode(v) }

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || !printable(host) {
		host = "unknown"
	}
	return host + "-" + strconv.Itoa(os.Getpid())
}
