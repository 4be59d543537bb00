package etcdclaims

import (
	"fmt"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// grantable reports whether a releaser can hand the key to a waiter of the call: it wants nothing
// but a claim.
func (o *acquireOptions) grantable() bool {
	return o.beside == nil && o.mode.Keys().Mark == "" && o.note == nil && len(o.cmps)+len(o.ops) == 0
}

// selfServing is the value of a place that shows a releaser that it must not hand over.
func (c *Client) selfServing(a *attempt) string {
	return protocol.Holder{
		Claim: a.ID, Owner: c.cfg.Owner, Instance: c.store.Layout.Instance, Since: keyspace.TimeText(a.since), Kind: protocol.KindSelf,
	}.Encode()
}

// see reads from the reply to an advance the attempt's position in line. lost is true
// if its place was removed.
func (a *attempt) see(resp *clientv3.TxnResponse) (p protocol.Position, lost bool, err error) {
	st, r := a.s.c.store, protocol.Advance{Try: &a.Try}.Judge((*pb.TxnResponse)(resp))
	if err := st.LearnEpoch(r.EpochKey, r.Rev); err != nil {
		return p, false, err
	}
	p, rev, at, err := a.Stand(r, st.Epoch())
	a.learnt()
	switch {
	case err != nil:
		return p, false, err
	case at == protocol.Given:
		a.granted = rev
		a.handed()
	case at == protocol.Out:
		return p, true, nil
	case at == protocol.Moved:
		a.describe()
	case p.Own == nil && p.Pred == nil && a.put != nil && a.opts.beside.Changed(r.Beside):
		a.describe()
	case at == protocol.Denied:
		return p, false, fmt.Errorf("%w: acquiring %q", ErrRefused, a.user)
	}
	return p, false, nil
}

// heard reports whether an event of the watch may let the attempt continue, or has given
// it the key.
func (a *attempt) heard(ev *clientv3.Event) bool {
	rev, again := a.Heard(ev.Kv, ev.Type == clientv3.EventTypeDelete)
	a.learnt()
	if rev > 0 {
		a.granted = rev
		a.handed() // its notice has not arrived yet
	}
	return again || rev > 0
}
