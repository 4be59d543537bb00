package etcdclaims

import (
	"context"
	"strings"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Shared claims the key together with all other callers that use Shared. A call without
// Shared is exclusive: it waits until no shared holder is left. So the key is a lock for
// many readers or one writer.
//
// Both kinds of callers wait in one line, first come first served. A caller with Shared
// waits behind the exclusive callers that are before it in line. So a stream of callers of
// one kind does not keep the other kind out.
// Callers with Shared that are next to each other in line get the key at the same time.
//
// All that share the key at the same time have the same fence. It is greater than the fence
// of each exclusive claim before, and less than that of each one after. So a gate refuses a
// shared holder once it has admitted a later exclusive holder. The fence does not
// distinguish a shared holder that has lost its claim from those that remain. Until an
// exclusive holder has come, only [Claim.Txn], [Claim.Guard] and [Claim.Owns] refuse it.
//
// [Claim.Key] and [Claim.Token] name the key. In List each shared claim has a key of its
// own; see SharedPrefix. The key must not be longer than 980 bytes.
//
// Shared excludes Reentrant, Supersede and Slots. A release does not hand the key over to a
// caller with Shared: it frees the key, and the first in line claims it by another request.
//
// If the last shared holders die, or end with MinHold, a small record of the key remains.
// The next caller for the key deletes it when no holder is left. Until then List shows the
// record, with the Kind "shared". So do not use Shared together with MinHold for ever new
// keys. Programs built with an earlier version find a shared key held, and do not delete
// such a record.
func Shared() AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.setKind(sharing{}) }}
}

// sharing is the kind of a call with Shared.
type sharing struct{}

func (sharing) of(l protocol.Layout, key string) (protocol.Mode, error) {
	return protocol.NewShared(l, key), validKey(protocol.SharedKey(key, strings.Repeat("0", 36))) // the length of a UUID
}

func (sharing) check() error { return nil }

func (sharing) with() optionSet {
	return optionTTL | optionManual | optionMaxHold | optionMinHold | optionIf | optionThen | optionNote
}

func (sharing) String() string { return "Shared" }

// SharedPrefix returns the prefix of the keys under which List shows the claims that
// share key.
func SharedPrefix(key string) string { return protocol.SharedKey(key, "") }

// knowing makes the record of a shared key the one that claims of this client share, if there are
// any. So the first request for the key need not be refused.
func (c *Client) knowing(m protocol.Mode) protocol.Mode {
	s, ok := m.(protocol.Shared)
	if !ok {
		return m
	}
	epoch := c.store.Epoch().Value
	return s.Knowing(c.keys.RecordRev(s.Keys().User, epoch), epoch)
}

// knowRecord learns the record of a shared key from other callers of the client. Callers
// that would all put the record do so one after the other, until one is known to have put
// it. The others then share round trips. The caller calls known when it has its answer.
func (c *Client) knowRecord(ctx context.Context, s *session, m *protocol.Mode) (known func()) {
	if _, ok := (*m).(protocol.Shared); !ok {
		return func() {}
	}
	if *m = c.knowing(*m); (*m).Keys().Joins {
		return func() {}
	}
	known = c.local.AskInTurn(ctx, s.dead, SharedPrefix((*m).Keys().User))
	if *m = c.knowing(*m); (*m).Keys().Joins {
		known()
	}
	return known
}

// advanceInTurn sends an advance.
func (a *attempt) advanceInTurn(ctx context.Context) (resp *clientv3.TxnResponse, rev int64, err error) {
	a.turnOver = a.s.c.knowRecord(ctx, a.s, &a.Mode)
	resp, rev, err = a.send(ctx, protocol.Advance{Try: &a.Try}.Build())
	if rev == 0 && (err != nil || resp == nil || !resp.Succeeded) {
		a.turnOver()
	}
	return resp, rev, err
}

// clearLeft deletes the record of a shared key in the background if a release, with so many
// operations of the holder, did not do that, and its reply shows that no holder is left.
func (t *term) clearLeft(resp *clientv3.TxnResponse, ops int) {
	none, remains := t.leaving().Emptied((*pb.TxnResponse)(resp), ops)
	if !none {
		return
	}
	c, key, guard := t.s.c, t.Mode.Keys().User, t.Mode.Guard(t.Fence)
	c.keys.ForgetRecord(key, guard.Rev)
	if !remains {
		return
	}
	record := &mvccpb.KeyValue{Key: guard.Name, ModRevision: guard.Rev}
	c.cleanUp(t.s, "deleting the record of a shared key", func(ctx context.Context) error {
		_, err := c.clearShared(ctx, key, record)
		return err
	})
}

// heldBy returns the error of a call that own excludes, which i describes.
// Nil means that own was the record of a key without shared holders, and may be gone: to
// try again makes sense.
func (c *Client) heldBy(ctx context.Context, own *mvccpb.KeyValue, i Info) error {
	if !protocol.IsShared(own) {
		return c.held(i)
	}
	n, err := c.clearShared(ctx, i.Key, own)
	switch {
	case err != nil && !isPassing(err):
		return txn.Failed(err)
	case err != nil || n == 0:
		return nil
	}
	i.Shared = n
	return c.held(i)
}

// withoutShared returns the position of the first in line once the record of a key without
// shared holders is gone, or else the position as it is.
func (a *attempt) withoutShared(ctx context.Context, p protocol.Position) (protocol.Position, error) {
	n, err := a.s.c.clearShared(ctx, a.user, p.Own)
	switch {
	case err != nil && !isPassing(err):
		return p, txn.Failed(err)
	case err == nil && n == 0:
		return protocol.Position{Next: true}, nil
	}
	return p, nil
}

// clearShared deletes the record of a shared key whose holders are all gone. It returns
// how many are not. Without an error and with 0, the record is not as it was: it makes
// sense to look again.
func (c *Client) clearShared(ctx context.Context, key string, record *mvccpb.KeyValue) (holders int64, err error) {
	step := protocol.Clear{Layout: c.store.Layout, Key: key, Record: record}
	resp, err := c.store.Send(ctx, step.Build())
	if err != nil {
		return 0, err
	}
	return step.Judge((*pb.TxnResponse)(resp)), nil
}
