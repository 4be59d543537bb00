package etcdclaims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Info describes a key at one moment. It may be outdated when it is read.
type Info struct {
	Key string
	// Held is true if the key has a holder. A key with slots is Held as long as their
	// number is stored: see Taken.
	Held     bool
	Fence    int64
	Claim    string    // ID of the term; see Claim.ID
	Owner    string    // label of the holder, for people
	Instance string    // client of the holder; see Client.Instance
	Since    time.Time // when the holder asked for the key, by its wall clock: a time in line counts
	Attempt  int       // number of the attempt, of a claim of package work; else 0
	Note     []byte    // nil if there is none
	// Kind is empty for a claim, and "lock" for a lock of package locks. It is
	// "zombie" if the handler did not return within its drain, and "resting"
	// if the claim was released before its MinHold. It is "slots" for a key that
	// has slots, and "shared" for a key that callers share; the claims of both are
	// listed under keys of their own, see SlotKey and Shared.
	Kind string
	// Newer is true if a newer version of this package wrote the value. Of the holder only the
	// Fence and the Lease are known then.
	Newer bool
	// Preference is that of the claim, by [Prefer].
	Preference int
	// Slots is the number of slots of a key that has any. In the error of a call
	// with Slots the rest of Info describes the holder of the first slot that is held.
	Slots int
	// Taken is how many of the slots are held. Only Lookup sets it.
	Taken int
	// Shared is the number of callers that share the key, which then has the Kind
	// "shared". Only Lookup and the error of a call that was refused set it. List shows the
	// claims of these callers under keys of their own, see [Shared].
	Shared int64
	// Waiting is the number of callers in line, as admin.Line returns them.
	// Callers within the client that holds the key have no place in etcd and
	// are not counted. Of the callers of one client that wait for the same work
	// one has a place (see package work). List and Watch do not set Waiting.
	Waiting int64
	// TTL is how long the lease lasts unless it is renewed, in full seconds,
	// as counted by etcd. Only Lookup sets it.
	TTL time.Duration
	// Expires is when the lease lapses unless it is renewed, by the wall clock
	// of the reader. If the holder is dead, the key is free within about 2 s of then:
	// etcd reports whole seconds, and ends a lease somewhat later than it lapses.
	//
	// Lookup reads the time from etcd. Other calls give the latest possible
	// time, one full lease after the reply; the lease may lapse sooner. Zero
	// means that the key has no lease, or that its time is not known: an older
	// version of this package, or another program, wrote the key.
	Expires time.Time
	// Lease is the lease of the claim. Zero means that the key has no lease and does
	// not expire: its Kind is "slots" or "shared", or another program wrote it.
	Lease clientv3.LeaseID
}

// Revision returns the etcd revision at which the holder acquired the key: the
// fence without the epoch.
func (i Info) Revision() int64 { return keyspace.Revision(i.Fence) }

// info makes the Info of a key from the values that were read. A value that is not ours
// is reported with what etcd itself knows.
func (c *Client) info(key string, own, noted *mvccpb.KeyValue, waiting int64) Info {
	i := Info{Key: key, Waiting: waiting}
	if own == nil {
		return i
	}
	i.Held, i.Lease = true, clientv3.LeaseID(own.Lease)
	h, err := protocol.DecodeHolder(own.Value)
	i.Fence = h.Fence(own.ModRevision)
	if err == nil {
		i.Claim, i.Owner, i.Instance, i.Since, i.Attempt, i.Kind = h.Claim, h.Owner, h.Instance, keyspace.Time(h.Since), h.Attempt, h.Kind
		i.Slots, i.Preference = h.Slots, h.Preference
		if h.TTL > 0 {
			i.Expires = c.clock.Time().Add(time.Duration(h.TTL) * time.Second)
		}
	} else {
		i.Owner, i.Newer = "unknown", h.Version > protocol.Version
	}
	if noted != nil {
		var n protocol.Note
		if err := json.Unmarshal(noted.Value, &n); err == nil && n.Version <= protocol.Version {
			i.Note = n.Bytes()
		}
	}
	return i
}

// infoOf is what Lookup returns for a term of this client's own.
func (c *Client) infoOf(t *term.Term) Info {
	return Info{
		Key: t.Key, Held: true, Fence: t.Fence, Claim: t.ID, Owner: c.cfg.Owner, Instance: c.store.Layout.Instance,
		Since: t.AskedAt(), Attempt: t.Number(), Preference: t.Preference, Lease: t.Session().ID(),
		Expires: c.clock.Time().Add(t.Session().Grant().TTL),
	}
}

// Lookup returns the holder of the key, its note, and the number of callers in
// line, all at one revision. If the key is free, Info.Held is false and the error
// is nil. For a key with slots see Info.Taken. It takes two round trips for a held key, one
// for a free key. It reads the TTL of the lease after the rest.
func (c *Client) Lookup(ctx context.Context, key string) (Info, error) {
	if err := c.checkKey(key); err != nil {
		return Info{}, err
	}
	if c.Passthrough() {
		return Info{Key: key}, nil
	}
	i, err := c.lookUp(ctx, key, false)
	if err == nil && (i.Kind == protocol.KindSlots || i.Kind == protocol.KindShared) {
		i, err = c.lookUp(ctx, key, true) // all anew, at one revision with what only such keys have
	}
	if err != nil {
		return Info{}, err
	}
	if i.Lease == clientv3.NoLease {
		return i, nil
	}
	ttl, err := c.store.TimeToLive(ctx, i.Lease)
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return Info{}, callError("look up", key, fmt.Errorf("asking for its lease: %w", err))
	}
	if err == nil {
		i.TTL = max(time.Duration(ttl.TTL)*time.Second, 0)
		i.Expires = c.clock.Time().Add(i.TTL)
	}
	return i, nil
}

// lookUp reads what Lookup returns, except the TTL. parts is for a key with slots, or one that is
// shared.
func (c *Client) lookUp(ctx context.Context, key string, parts bool) (Info, error) {
	step := protocol.Lookup{Layout: c.store.Layout, Key: key, Parts: parts}
	resp, err := c.read(ctx, txn.OpsOf(step.Reads())...)
	if err != nil {
		return Info{}, callError("look up", key, err)
	}
	looked := step.Judge((*pb.TxnResponse)(resp))
	if err := c.store.LearnEpoch(looked.EpochKey, resp.Header.Revision); err != nil {
		return Info{}, err
	}
	i := c.info(key, looked.Own, looked.Note, looked.Waiting)
	switch {
	case !parts:
	case i.Kind == protocol.KindSlots:
		i.Waiting, i.Taken = looked.ForSlots, looked.Taken
	case i.Kind == protocol.KindShared && looked.Sharers == 0:
		return Info{Key: key, Waiting: i.Waiting}, nil // the last holders have died
	case i.Kind == protocol.KindShared:
		i.Shared = looked.Sharers
	}
	return i, nil
}

// listPage is how many keys are read by one request.
const listPage = 512

// List yields every held key that begins with prefix, in the order of keys. An
// empty prefix means all keys. The keys are read page by page, at one revision
// unless etcd compacts it meanwhile. An error ends the iteration.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := c.refusal(); err != nil {
			yield(Info{}, err)
			return
		}
		if c.Passthrough() {
			return
		}
		for page, err := range c.pages(ctx, c.store.Layout.Own("")+prefix, listPage) {
			if err != nil {
				yield(Info{}, callError("list", prefix, err))
				return
			}
			notes, err := c.notes(ctx, page)
			if err != nil {
				yield(Info{}, callError("list", prefix, err))
				return
			}
			for _, kv := range page.Kvs {
				key := strings.TrimPrefix(string(kv.Key), c.store.Layout.Own(""))
				if !yield(c.info(key, kv, notes[key], 0), nil) {
					return
				}
			}
		}
	}
}

// pages reads everything under the prefix, at one revision, or at several if
// that is compacted meanwhile. The first page may be empty.
func (c *Client) pages(ctx context.Context, prefix string, first int64) iter.Seq2[retry.Page, error] {
	return c.pagesOf(ctx, clientv3.OpGet(prefix, clientv3.WithRange(keyspace.RangeEnd(prefix))), first)
}

func (c *Client) pagesOf(ctx context.Context, op clientv3.Op, first int64) iter.Seq2[retry.Page, error] {
	return retry.Pages(op, first, listPage, func(op clientv3.Op) (*clientv3.GetResponse, error) {
		resp, err := c.readWhole(ctx, op)
		if err != nil {
			return nil, err
		}
		return txn.Read(resp, 0), nil
	})
}

// notes reads the notes of a page of claims. A note can be a thousand times as large as a claim.
func (c *Client) notes(ctx context.Context, p retry.Page) (map[string]*mvccpb.KeyValue, error) {
	if len(p.Kvs) == 0 {
		return nil, nil
	}
	root := c.store.Layout.Note("")
	key := func(kv *mvccpb.KeyValue) string {
		return root + strings.TrimPrefix(string(kv.Key), c.store.Layout.Own(""))
	}
	notes := make(map[string]*mvccpb.KeyValue)
	op := clientv3.OpGet(key(p.Kvs[0]), clientv3.WithRange(key(p.Kvs[len(p.Kvs)-1])+"\x00"), clientv3.WithRev(p.Rev))
	for some, err := range c.pagesOf(ctx, op, listPage/4) {
		if errors.Is(err, rpctypes.ErrCompacted) && p.Rev != 0 {
			p.Rev = 0
			return c.notes(ctx, p)
		}
		if err != nil {
			return nil, err
		}
		for _, kv := range some.Kvs {
			notes[strings.TrimPrefix(string(kv.Key), root)] = kv
		}
	}
	return notes, nil
}
