package etcdclaims

import (
	"path"

	"github.com/etcdclaims/claims/internal/protocol"
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
	n, err := protocol.DecodeNotice(kv.Value)
	if err != nil {
		a.s.c.log.Warn("handoff notice cannot be read", zap.ByteString("notice", kv.Key), zap.Error(err))
		return false
	}
	a.Notified(n, kv.ModRevision)
	a.granted, a.noticed, a.trace = kv.ModRevision, true, n.Trace
	a.line = protocol.Line{Next: n.Next, More: n.More, Known: true}
	return true
}

// handed notes that the attempt was handed the key, for all that is known: then
// there is a notice that was not read.
func (a *attempt) handed() { a.noticed, a.line = true, protocol.Unread }
