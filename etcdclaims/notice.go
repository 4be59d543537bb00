package etcdclaims

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

// A releaser notifies the waiter that it hands the key to. The notice is a key under the
// prefix that the waiter's client watches anyway, and is put in the transaction that puts
// the claim. So the event proves the claim, and its revision is the fence.
//
// No notice is missed. The watch begins with the client's first session, before any
// caller can be in line. After an interruption the notices are read. The verification
// that follows each renewal finds notices that a deaf watch did not deliver.

// notice is the value of session/<instance>/won/<claim>. It stays until the claim
// ends.
type notice struct {
	Version int     `json:"v"`
	Epoch   int64   `json:"epoch,omitempty"`    // under which the fence is
	Rev     int64   `json:"epochRev,omitempty"` // ModRevision of the epoch's key
	Next    []place `json:"next,omitempty"`     // the next places in line, as far as the releaser knew
	More    bool    `json:"more,omitempty"`     // there are further places behind those
	Trace   string  `json:"trace,omitempty"`    // of the releaser's claim, for the one that follows
	Slot    int     `json:"slot,omitempty"`     // that is handed over, of a key with slots
}

// deliver gives a notice to its waiter, if there still is one. It replaces an earlier
// notice that was not read.
func (c *Client) deliver(kv *mvccpb.KeyValue) {
	w := c.waiters.get(path.Base(string(kv.Key)))
	if w == nil {
		return
	}
	w.forgetNotice()
	select {
	case w.notices <- kv:
	default: // delivered by another at this moment: it is the same
	}
}

// withdrawn deals with a notice that was removed.
func (c *Client) withdrawn(id string) {
	if w := c.waiters.get(id); w != nil {
		w.forgetNotice()
		w.doubt()
	}
}

// readNotice reads a releaser's notice: the attempt has the key.
func (a *attempt) readNotice(kv *mvccpb.KeyValue) bool {
	var m notice
	if err := json.Unmarshal(kv.Value, &m); err != nil || m.Version > valueVersion {
		a.s.c.log.Warn("handoff notice cannot be read", zap.ByteString("notice", kv.Key), zap.Error(err))
		return false
	}
	a.granted, a.epoch = kv.ModRevision, &txn.Epoch{Value: m.Epoch, Rev: m.Rev}
	a.noticed, a.line = true, line{next: m.Next, more: m.More, known: true}
	a.trace = m.Trace
	if a.slots != nil {
		a.setSlot(m.Slot)
	}
	return true
}

// handed notes that the attempt was handed the key, for all that is known: then
// there is a notice that was not read.
func (a *attempt) handed() { a.noticed, a.line = true, unread }

// isNotice reports whether an etcd key is a notice to a waiter of this client, and
// returns the waiter's id.
func (l layout) isNotice(name string) (id string, ok bool) {
	return strings.CutPrefix(name, l.notices())
}
