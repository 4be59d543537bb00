package etcdclaims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Record returns the record of the work that the key names. ok is false if
// there is none: the work was never begun, or the record has expired or was
// deleted. A record that this version of the package cannot read is an error.
func (c *Client) Record(ctx context.Context, key string) (r Record, ok bool, err error) {
	if err := c.checkKey(key); err != nil {
		return Record{}, false, err
	}
	if c.Passthrough() {
		return Record{}, false, nil
	}
	r, kv, err := c.readRecord(ctx, key)
	if err != nil {
		return Record{}, false, callError("read the record of", key, err)
	}
	if r.State == StateUnreadable {
		return Record{}, false, callError("read the record of", key, errors.New(r.Error))
	}
	return r, kv != nil, nil
}

// readRecord returns the record, also as it is stored: nil if there is none. An
// unreadable one is no error.
func (c *Client) readRecord(ctx context.Context, key string) (r Record, kv *mvccpb.KeyValue, err error) {
	l := c.store.layout
	resp, err := c.read(ctx, clientv3.OpGet(l.Work(key)), clientv3.OpGet(l.Own(key), clientv3.WithCountOnly()))
	if err != nil {
		return Record{}, nil, err
	}
	if kv = firstKV(resp, 0); kv == nil {
		return Record{}, nil, nil
	}
	r, _ = decodeRecord(key, kv) // in StateUnreadable if it cannot be read
	if r.State == StateClaimed && resp.Responses[1].GetResponseRange().Count == 0 {
		r.State = StateOrphaned
	}
	return r, kv, nil
}

// Orphans yields the records of orphaned work, as Client.Records with
// StateOrphaned does.
// Such work is claimed, but its owner is gone. Orphans changes nothing.
// TryBegin takes such work over, and the Note of a record may describe it.
//
// Records that cannot be read are skipped, with a warning in the log.
func (c *Client) Orphans(ctx context.Context, prefix string) iter.Seq2[Record, error] {
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
func (c *Client) Records(ctx context.Context, prefix string, states ...State) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := c.refusal(); err != nil {
			yield(Record{}, err)
			return
		}
		if c.Passthrough() {
			return
		}
		wanted := func(s State) bool { return len(states) == 0 || slices.Contains(states, s) }
		skipped, first := 0, ""
		defer func() {
			if skipped > 0 {
				c.log.Warn("work records skipped: they cannot be read", zap.Int("records", skipped), zap.String("key", first))
			}
		}()
		root := c.store.layout.Work("")
		for p, err := range c.pages(ctx, root, prefix) {
			var records []Record
			if err == nil {
				for _, kv := range p.Kvs {
					r, _ := decodeRecord(strings.TrimPrefix(string(kv.Key), root), kv) // in StateUnreadable if it cannot be read
					records = append(records, r)
				}
				err = c.judgeClaimed(ctx, records, wanted(StateClaimed) || wanted(StateOrphaned))
			}
			if err != nil {
				yield(Record{}, callError("list the work under", prefix, err))
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
func (c *Client) judgeClaimed(ctx context.Context, records []Record, matters bool) error {
	var claimed []*Record
	for i := range records {
		if records[i].State == StateClaimed && matters {
			claimed = append(claimed, &records[i])
		}
	}
	for len(claimed) > 0 {
		n := min(len(claimed), c.store.MaxOps()/2)
		ops := make([]clientv3.Op, 0, 2*n)
		for _, r := range claimed[:n] {
			// The record once more, at one revision with the claim: the work may
			// have ended since.
			ops = append(ops, clientv3.OpGet(c.store.layout.Own(r.Key), clientv3.WithCountOnly()),
				clientv3.OpGet(c.store.layout.Work(r.Key)))
		}
		resp, err := c.read(ctx, ops...)
		if wire.IsTooManyOps(err) && n > txn.LeastOps {
			c.store.FewerOps(len(ops))
			continue
		}
		if err != nil {
			return err
		}
		for i, r := range claimed[:n] {
			held, kv := resp.Responses[2*i].GetResponseRange().Count > 0, firstKV(resp, 2*i+1)
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

// Retry lets work that failed, is dead or is orphaned be begun again
// immediately. It returns the record, which is then in StateFree.
// Config.MaxAttempts counts from here. Work that may already be begun is left
// unchanged. Retry is for operators and begins nothing itself.
//
// Retry never changes work that is held. The error matches:
//
//   - ErrHeld if the work is held; it is a *HeldError.
//   - ErrDone if the work is done; it is a *WorkError. Use Again to repeat
//     such work.
//   - ErrNoRecord if the work has no record.
//   - ErrUnknown if the record may have been changed.
func (c *Client) Retry(ctx context.Context, key string) (Record, error) {
	var out Record
	id := uuid.NewString()
	err := c.intervene(ctx, key, "retry", func(r Record) (clientv3.Op, *shelf, error) {
		switch r.State {
		case StateDone:
			return clientv3.Op{}, nil, &WorkError{Record: r}
		case StateUnreadable:
			return clientv3.Op{}, nil, errors.New(r.Error)
		case StateFree:
			out = r
			return clientv3.Op{}, nil, errNothingToDo
		}
		s, err := c.records.get(ctx, 0)
		if err != nil {
			return clientv3.Op{}, nil, err
		}
		if r.State == StateOrphaned {
			r.Ended = c.clock.Time().UTC()
			if r.Error == "" {
				r.Error = "its owner is gone"
			}
		}
		r.State, r.Earlier, r.NotBefore = StateFree, r.Attempt, time.Time{}
		out = r
		stored := r.stored()
		stored.Retry = id
		return stored.put(c.store.layout.Work(key), s), s, nil
	}, func(kv *mvccpb.KeyValue) bool {
		var stored record
		return kv != nil && json.Unmarshal(kv.Value, &stored) == nil && stored.Retry == id
	})
	if err != nil {
		return Record{}, err
	}
	return out, nil
}

// Forget deletes the record of work. If states are given, it does so only in
// one of these states, and returns ErrRefused otherwise. It also deletes
// records that cannot be read. Work without a record is not an error.
//
// The work then counts as never begun. It may be begun again, as attempt 1,
// even if it was done or was AtMostOnce. Forget is for operators.
//
// Forget never changes work that is held. The error matches ErrHeld in that
// case and is a *HeldError. It matches ErrUnknown if the record may have been
// deleted.
func (c *Client) Forget(ctx context.Context, key string, states ...State) error {
	err := c.intervene(ctx, key, "forget", func(r Record) (clientv3.Op, *shelf, error) {
		if len(states) > 0 && !slices.Contains(states, r.State) {
			return clientv3.Op{}, nil, fmt.Errorf("%w: the work is %s", ErrRefused, r.State)
		}
		return clientv3.OpDelete(c.store.layout.Work(key)), nil, nil
	}, func(kv *mvccpb.KeyValue) bool { return kv == nil })
	if errors.Is(err, ErrNoRecord) {
		return nil
	}
	return err
}

// errNothingToDo ends an intervention well.
var errNothingToDo = errors.New("nothing to do")

// intervene changes the record of work that is not held, by what change returns for the
// present record. The change is carried out only if the record is still the one
// that change has seen, and the key is still free: so it never meets a live owner,
// however late it arrives, and is carried out once. If the reply is lost, the record is
// read again, and done returns whether the change was carried out.
func (c *Client) intervene(ctx context.Context, key, call string,
	change func(Record) (clientv3.Op, *shelf, error), done func(*mvccpb.KeyValue) bool,
) error {
	if err := c.checkKey(key); err != nil {
		return err
	}
	if c.Passthrough() {
		return fmt.Errorf("%w: %s %q", ErrPassthrough, call, key)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	own, work := c.store.layout.Own(key), c.store.layout.Work(key)
	sent := int64(0) // revision of the record in a request of unknown outcome
	fail := func(err error) error {
		if sent > 0 { // which may yet be carried out
			err = txn.Unknown(err)
		}
		return callError(call, key, err)
	}
	for try := 0; ; try++ {
		r, kv, err := c.readRecord(ctx, key)
		switch {
		case err != nil:
			return fail(err)
		case sent > 0 && done(kv):
			return nil
		case sent > 0 && (kv == nil || kv.ModRevision != sent):
			return fail(errors.New("the record has changed meanwhile"))
		case kv == nil:
			return callError(call, key, ErrNoRecord)
		}
		op, shelf, err := change(r)
		if errors.Is(err, errNothingToDo) {
			return nil
		}
		if err != nil {
			return fail(err)
		}
		resp, err := c.store.Do(ctx, txn.Request{
			Key: key,
			In: txn.Of(
				[]clientv3.Cmp{
					clientv3.Compare(clientv3.CreateRevision(own), "=", 0),
					clientv3.Compare(clientv3.ModRevision(work), "=", kv.ModRevision),
				},
				[]clientv3.Op{op},
				[]clientv3.Op{clientv3.OpGet(own)},
			),
		})
		shelf.leave(err == nil && resp.Succeeded)
		switch {
		case err == nil && resp.Succeeded:
			return nil
		case err == nil:
			err = errors.New("the record keeps changing")
			if holder := firstKV(resp, 0); holder != nil {
				held := notAcquiring(c.heldBy(ctx, holder, c.info(key, holder, nil, 0)))
				switch {
				case held == nil:
				case sent == 0:
					return callError(call, key, held)
				default:
					return fail(held) // the request that was sent may arrive when the key is free
				}
			}
		case errors.Is(err, ErrUnknown):
			sent = kv.ModRevision
			shelf.doubt()
		case c.records.gone(err, shelf):
		case !isPassing(err):
			return fail(err)
		}
		if !retry.PauseUnless(ctx, c.closing, try) {
			return fail(c.ended(txn.WithCause(ctx, err)))
		}
	}
}
