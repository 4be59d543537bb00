package etcdclaims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/wire"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Info is what is known of a key at one moment; it may be over when it is read.
type Info struct {
	Key      string
	Held     bool
	Fence    int64
	Claim    string // id of the term
	Owner    string // label, for people
	Instance string // client that holds it
	Since    time.Time
	Attempt  int    // of work; 0 for a claim without a record
	Note     []byte // nil if there is none
	// Kind is empty for a claim, "lock" for one of Locks, "zombie" for one
	// whose handler did not stop in time, "resting" for one that was released
	// before its MinHold.
	Kind string
	// Waiting is how many wait in line, but for those who wait within the
	// client that holds the key. List and Watch do not fill it in.
	Waiting int64
	// TTL is how long the lease lasts by etcd's account unless it is renewed;
	// only Lookup asks for it.
	TTL time.Duration
	// Lease is the claim's lease, 0 if it has none: then it was not put by
	// this package, and nothing will ever end it.
	Lease clientv3.LeaseID
}

// Revision returns the revision at which the holder got the key: the fence
// without the epoch.
func (i Info) Revision() int64 { return revision(i.Fence) }

// info puts together what stands under a key. A value that is not ours is
// reported with what etcd itself knows.
func (c *Client) info(key string, own, noted *mvccpb.KeyValue, waiting int64) Info {
	i := Info{Key: key, Waiting: waiting}
	if own == nil {
		return i
	}
	i.Held, i.Lease = true, clientv3.LeaseID(own.Lease)
	h, err := decodeHolder(own.Value)
	i.Fence = h.fence(own.ModRevision)
	if err == nil {
		i.Claim, i.Owner, i.Instance, i.Since, i.Attempt, i.Kind = h.Claim, h.Owner, h.Instance, h.Since, h.Attempt, h.Kind
	} else {
		i.Owner = "unknown"
	}
	if noted != nil {
		var n note
		if err := json.Unmarshal(noted.Value, &n); err == nil {
			i.Note = n.bytes()
		}
	}
	return i
}

// Lookup says who holds the key. A free key is no error.
func (c *Client) Lookup(ctx context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	if c.Passthrough() {
		return Info{Key: key}, nil
	}
	l := c.store.layout
	resp, err := c.read(ctx,
		clientv3.OpGet(l.own(key)), clientv3.OpGet(l.note(key)), clientv3.OpGet(l.epoch()),
		c.store.countWaiting(key))
	if err != nil {
		return Info{}, fmt.Errorf("etcdclaims: looking up %q: %w", key, err)
	}
	if err := c.store.learnEpoch(resp.Responses[2].GetResponseRange().Kvs, resp.Header.Revision); err != nil {
		return Info{}, err
	}
	own := firstKV(resp, 0)
	i := c.info(key, own, firstKV(resp, 1), resp.Responses[3].GetResponseRange().Count)
	if i.Lease == clientv3.NoLease {
		return i, nil
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), c.store.timeout)
	defer cancel()
	c.store.requests.Add(1)
	ttl, err := c.lease.TimeToLive(ctx, i.Lease)
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return Info{}, fmt.Errorf("etcdclaims: looking up %q: asking for its lease: %w", key, err)
	}
	if err == nil {
		i.TTL = max(time.Duration(ttl.TTL)*time.Second, 0)
	}
	return i, nil
}

// listPage is how many keys are read by one request.
const listPage = 512

// List yields every held key with the prefix, in the order of keys, "" for all:
// read page by page, all at one revision where etcd still has it. An error ends
// it.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if c.Passthrough() {
			return
		}
		for page, err := range c.pages(ctx, c.store.layout.own(""), prefix) {
			if err != nil {
				yield(Info{}, fmt.Errorf("etcdclaims: listing %q: %w", prefix, err))
				return
			}
			notes, err := c.notes(ctx, page)
			if err != nil {
				yield(Info{}, fmt.Errorf("etcdclaims: listing %q: %w", prefix, err))
				return
			}
			for _, kv := range page.kvs {
				key := strings.TrimPrefix(string(kv.Key), c.store.layout.own(""))
				if !yield(c.info(key, kv, notes[key], 0), nil) {
					return
				}
			}
		}
	}
}

type page struct {
	kvs []*mvccpb.KeyValue
	rev int64
}

// pages reads everything under root+prefix, at one revision, or at several if
// that is compacted meanwhile. The first page may be empty.
func (c *Client) pages(ctx context.Context, root, prefix string) iter.Seq2[page, error] {
	return func(yield func(page, error) bool) {
		from, end := root+prefix, rangeEnd(root+prefix)
		var rev int64
		for {
			resp, err := c.read(ctx, clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(listPage), clientv3.WithRev(rev)))
			if errors.Is(err, rpctypes.ErrCompacted) {
				rev = 0
				continue
			}
			if err != nil {
				yield(page{}, err)
				return
			}
			got := resp.Responses[0].GetResponseRange()
			if rev == 0 {
				rev = resp.Header.Revision
			}
			if !yield(page{kvs: got.Kvs, rev: rev}, nil) {
				return
			}
			if !got.More {
				return
			}
			from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
		}
	}
}

// notes reads the notes of a page of claims.
func (c *Client) notes(ctx context.Context, p page) (map[string]*mvccpb.KeyValue, error) {
	if len(p.kvs) == 0 {
		return nil, nil
	}
	root := c.store.layout.note("")
	key := func(kv *mvccpb.KeyValue) string {
		return root + strings.TrimPrefix(string(kv.Key), c.store.layout.own(""))
	}
	op := func(rev int64) clientv3.Op {
		return clientv3.OpGet(key(p.kvs[0]), clientv3.WithRange(key(p.kvs[len(p.kvs)-1])+"\x00"), clientv3.WithRev(rev))
	}
	resp, err := c.read(ctx, op(p.rev))
	if errors.Is(err, rpctypes.ErrCompacted) {
		resp, err = c.read(ctx, op(0))
	}
	if err != nil {
		return nil, err
	}
	notes := make(map[string]*mvccpb.KeyValue)
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		notes[strings.TrimPrefix(string(kv.Key), root)] = kv
	}
	return notes, nil
}

// Orphans returns work that is claimed though its owner is gone, in the order
// of keys, up to limit of it (0: all). It changes nothing: TryBegin takes such
// work over.
func (c *Client) Orphans(ctx context.Context, limit int) ([]Record, error) {
	if limit < 0 {
		return nil, fmt.Errorf("etcdclaims: listing orphans: limit %d is negative", limit)
	}
	if c.Passthrough() {
		return nil, nil
	}
	var out []Record
	root := c.store.layout.work("")
	for p, err := range c.pages(ctx, root, "") {
		if err != nil {
			return nil, fmt.Errorf("etcdclaims: listing orphans: %w", err)
		}
		var claimed []Record
		for _, kv := range p.kvs {
			r, err := decodeRecord(strings.TrimPrefix(string(kv.Key), root), kv)
			if err != nil {
				return nil, err
			}
			if r.State == StateClaimed {
				claimed = append(claimed, r)
			}
		}
		for len(claimed) > 0 {
			n := min(len(claimed), int(c.store.opLimit.Load())/2)
			ops := make([]clientv3.Op, 0, 2*n)
			for _, r := range claimed[:n] {
				// The record once more, at one revision with the claim: the work
				// may have ended since.
				ops = append(ops, clientv3.OpGet(c.store.layout.own(r.Key), clientv3.WithCountOnly()),
					clientv3.OpGet(c.store.layout.work(r.Key), clientv3.WithKeysOnly()))
			}
			resp, err := c.read(ctx, ops...)
			if wire.IsTooManyOps(err) && n > leastOps {
				c.store.fewerOps(len(ops))
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("etcdclaims: listing orphans: %w", err)
			}
			for i, r := range claimed[:n] {
				own, work := resp.Responses[2*i].GetResponseRange(), resp.Responses[2*i+1].GetResponseRange().Kvs
				if own.Count == 0 && len(work) > 0 && work[0].ModRevision == revision(r.Fence) {
					r.State = StateOrphaned
					if out = append(out, r); len(out) == limit {
						return out, nil
					}
				}
			}
			claimed = claimed[n:]
		}
	}
	return out, nil
}

// Record returns what is recorded of work. ok is false if nothing is: it was
// never begun, or is done and forgotten since.
func (c *Client) Record(ctx context.Context, key string) (r Record, ok bool, err error) {
	if err := checkKey(key); err != nil {
		return Record{}, false, err
	}
	if c.Passthrough() {
		return Record{}, false, nil
	}
	l := c.store.layout
	resp, err := c.read(ctx, clientv3.OpGet(l.work(key)), clientv3.OpGet(l.own(key), clientv3.WithCountOnly()))
	if err != nil {
		return Record{}, false, fmt.Errorf("etcdclaims: reading the record of %q: %w", key, err)
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return Record{}, false, nil
	}
	if r, err = decodeRecord(key, kvs[0]); err != nil {
		return Record{}, false, err
	}
	if r.State == StateClaimed && resp.Responses[1].GetResponseRange().Count == 0 {
		r.State = StateOrphaned
	}
	return r, true, nil
}
