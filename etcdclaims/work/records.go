package work

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Record returns the record of the work that the key names. ok is false if
// there is none: the work was never begun, or the record has expired or was
// deleted. A record that this version of the package cannot read is an error.
func (c *Runner) Record(ctx context.Context, key string) (r Record, ok bool, err error) {
	if err := c.checkKey(key); err != nil {
		return Record{}, false, err
	}
	if c.claims.Passthrough() {
		return Record{}, false, nil
	}
	r, kv, err := c.readRecord(ctx, key)
	if err != nil {
		return Record{}, false, c.host.Fail("read the record of", key, err)
	}
	if r.State == StateUnreadable {
		return Record{}, false, c.host.Fail("read the record of", key, errors.New(r.Error))
	}
	return r, kv != nil, nil
}

// readRecord returns the record, also as it is stored: nil if there is none. An
// unreadable one is no error.
func (c *Runner) readRecord(ctx context.Context, key string) (r Record, kv *mvccpb.KeyValue, err error) {
	resp, err := c.host.Read(ctx, clientv3.OpGet(c.recordKey(key)), clientv3.OpGet(c.claims.OwnKey(key), clientv3.WithCountOnly()))
	if err != nil {
		return Record{}, nil, err
	}
	if kv = txn.First(resp, 0); kv == nil {
		return Record{}, nil, nil
	}
	r, _ = decodeRecord(key, kv) // in StateUnreadable if it cannot be read
	if r.State == StateClaimed && txn.Count(resp, 1) == 0 {
		r.State = StateOrphaned
	}
	return r, kv, nil
}

// change carries out operations if the key is free and the record has the revision: so it never
// meets a live owner, however late it arrives, and is carried out once. Otherwise the reply has the
// claim and the record.
func (c *Runner) change(ctx context.Context, key string, rev int64, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	own, at := c.claims.OwnKey(key), c.recordKey(key)
	cmps := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(own), "=", 0),
		clientv3.Compare(clientv3.ModRevision(at), "=", rev),
	}
	reads := []clientv3.Op{clientv3.OpGet(own), clientv3.OpGet(at)}
	return c.host.Store().Do(ctx, txn.Request{Key: key, In: txn.Of(cmps, ops, reads)})
}

// Orphans yields the records of orphaned work, as Runner.Records with
// StateOrphaned does.
// Such work is claimed, but its owner is gone. Orphans changes nothing.
// TryBegin takes such work over, and the Note of a record may describe it.
//
// Records that cannot be read are skipped, with a warning in the log.
func (c *Runner) Orphans(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return c.Records(ctx, prefix, StateOrphaned)
}

// Records yields the records of work whose keys begin with prefix, in the
// order of keys. An empty prefix means all keys. Only records in one of the
// states are yielded. No states means all states.
//
// The records are read page by page. Each is as it was when its page was read,
// and may have changed since. An error ends the iteration.
//
// A record that cannot be read, for example one of a newer version of this
// package, does not end the iteration. It is yielded in StateUnreadable if
// that state is wanted. Otherwise it is skipped, and the log has one warning
// with the number of skipped records.
func (c *Runner) Records(ctx context.Context, prefix string, states ...State) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := c.refusal(); err != nil {
			yield(Record{}, err)
			return
		}
		if c.claims.Passthrough() {
			return
		}
		wanted := func(s State) bool { return len(states) == 0 || slices.Contains(states, s) }
		skipped, first := 0, ""
		defer func() {
			if skipped > 0 {
				c.log.Warn("work records skipped: they cannot be read", zap.Int("records", skipped), zap.String("key", first))
			}
		}()
		root := c.recordKey("")
		for p, err := range c.host.Pages(ctx, root+prefix, 128) { // a record can be a thousand times as large as a claim
			var records []Record
			if err == nil {
				for _, kv := range p.Kvs {
					r, _ := decodeRecord(strings.TrimPrefix(string(kv.Key), root), kv) // in StateUnreadable if it cannot be read
					records = append(records, r)
				}
				err = c.judgeClaimed(ctx, records, wanted(StateClaimed) || wanted(StateOrphaned))
			}
			if err != nil {
				yield(Record{}, c.host.Fail("list the work under", prefix, err))
				return
			}
			for _, r := range records {
				switch {
				case r.State == stateGone:
				case wanted(r.State):
					if !yield(r, nil) {
						return
					}
				case r.State == StateUnreadable:
					if skipped++; skipped == 1 {
						first = r.Key
					}
				}
			}
		}
	}
}

// stateGone is of a record that is not there any more.
const stateGone State = "gone"

// judgeClaimed marks the records of orphans among those of claimed work, if that matters.
func (c *Runner) judgeClaimed(ctx context.Context, records []Record, matters bool) error {
	var claimed []*Record
	for i := range records {
		if records[i].State == StateClaimed && matters {
			claimed = append(claimed, &records[i])
		}
	}
	for len(claimed) > 0 {
		n := min(len(claimed), c.host.Store().MaxOps()/2)
		ops := make([]clientv3.Op, 0, 2*n)
		for _, r := range claimed[:n] {
			// The record once more, at one revision with the claim: the work may
			// have ended since.
			ops = append(ops, clientv3.OpGet(c.claims.OwnKey(r.Key), clientv3.WithCountOnly()),
				clientv3.OpGet(c.recordKey(r.Key)))
		}
		resp, err := c.host.Read(ctx, ops...)
		if txn.IsTooManyOps(err) && n > txn.LeastOps {
			c.host.Store().FewerOps(len(ops))
			continue
		}
		if err != nil {
			return err
		}
		for i, r := range claimed[:n] {
			held, kv := txn.Count(resp, 2*i) > 0, txn.First(resp, 2*i+1)
			if kv == nil {
				r.State = stateGone
				continue
			}
			if *r, _ = decodeRecord(r.Key, kv); r.State == StateClaimed && !held {
				r.State = StateOrphaned
			}
		}
		claimed = claimed[n:]
	}
	return nil
}
