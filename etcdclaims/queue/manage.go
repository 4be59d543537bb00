package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/pausing"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Where is the place of an item.
type Where string

// Where items are.
const (
	Ready     Where = "ready"     // visible
	Later     Where = "later"     // not vested yet
	Behind    Where = "behind"    // vested, and others of its partition key are under way
	Taken     Where = "taken"     // a worker has it
	Dead      Where = "dead"      // among the dead letters
	Completed Where = "completed" // and still remembered, see Config.Retention
)

// Info describes an item.
type Info struct {
	ID       string
	Where    Where
	Topic    string
	Payload  []byte
	Priority int
	Vesting  time.Time // when it becomes, or became, visible
	Enqueued time.Time
	Attempts int       // begun so far
	Max      int       // attempts that the item has
	History  []Attempt // attempts that did not complete the item
	Owner    string    // label of the process that has the item, or completed it
	Fence    int64     // of the lease of a taken item, or of the one that completed it
	Since    time.Time // when the item was taken, died or was completed
	Why      string    // why the item is dead
	Result   []byte    // that the worker set before it completed the item, see Delivery.SetResult
	// Until is when the lease of a taken item ends in etcd unless it is renewed, by the
	// wall clock of the reader. If the worker is dead, the item is visible
	// again at most a second later. Zero means that the end is not known. Only Look sets
	// it.
	Until time.Time
	// PartitionKey is the key of the option PartitionKey, or "".
	PartitionKey string
}

// found is an item and the key that its state is under.
type found struct {
	Info
	entry   *item.Entry
	content item.Content
	empty   bool // it has lost its content
}

// Look returns an item with its payload: an item of the queue, a dead letter, or one that
// was completed and is remembered, whose payload is gone. It changes nothing.
//
// Errors: ErrNotFound if the item is neither in the queue nor remembered, and those of
// reading from etcd.
func (q *Queue) Look(ctx context.Context, id string) (Info, error) {
	f, err := q.find(ctx, id)
	if err == nil && f.Where == Taken {
		sid, _, _ := strings.Cut(strings.TrimPrefix(f.entry.Key(), q.keys.Taken()), "/")
		if session, serr := q.claims.Lookup(ctx, q.keys.SessionKey(sid)); serr == nil { // else it is not known
			f.Until = session.Expires
		}
	}
	return f.Info, q.fail(fmt.Sprintf("look at %q", id), err)
}

// find looks an item up where it was enqueued, and then at its place. An
// item that is at neither is taken, or has just been moved.
func (q *Queue) find(ctx context.Context, id string) (f found, err error) {
	const tries = 5
	for try := range tries {
		latest := errors.Is(err, rpctypes.ErrCompacted)
		if f, err = q.findOnce(ctx, id, latest); !errors.Is(err, errMoving) && !errors.Is(err, rpctypes.ErrCompacted) {
			return f, err
		}
		if try+1 < tries && !retry.Pause(ctx, try) {
			return f, context.Cause(ctx)
		}
	}
	return f, err
}

var errMoving = errors.New("item is being moved")

// findOnce looks an item up at one revision, or at the latest one of each read, which can miss a change.
func (q *Queue) findOnce(ctx context.Context, id string, latest bool) (f found, err error) {
	resp, err := q.read(ctx, clientv3.OpGet(q.keys.Content(id)), clientv3.OpGet(q.keys.Place(id)))
	if err != nil {
		return f, err
	}
	then := clientv3.WithRev(0)
	if !latest {
		then = clientv3.WithRev(resp.Header.Revision)
	}
	items, places := txn.Kvs(resp, 0), txn.Kvs(resp, 1)
	if len(items) == 0 {
		return f, ErrNotFound
	}
	c, err := item.Decode[item.Content](items[0].Key, items[0].Value)
	if err != nil {
		return f, err
	}
	f.content, f.empty, f.Info = c, c.Missing, infoOf(id, c)
	if f.Where == Completed {
		return f, nil
	}
	keys := []string{q.keys.ReadyAt(c.Rank, c.Vesting, c.Seq), q.keys.LaterAt(c.Rank, c.Vesting, c.Seq)}
	if c.Key != "" {
		keys = append(keys, q.keys.BehindAt(c.Key, c.Rank, c.Vesting, c.Seq))
	}
	if len(places) > 0 {
		p, err := item.Decode[item.Place](places[0].Key, places[0].Value)
		if err != nil {
			return f, err
		}
		keys = append(keys, q.keys.Placed(p))
		if vested, ok := q.keys.Vested(q.keys.Placed(p)); ok { // meanwhile, by another request
			keys = append(keys, vested)
		}
	}
	lives, err := get(ctx, q.claims, q.keys.Workers(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), then)
	if err != nil {
		return f, err
	}
	for _, kv := range lives.Kvs {
		keys = append(keys, q.keys.TakenBy(strings.TrimPrefix(string(kv.Key), q.keys.Workers()))+id)
	}
	return q.findAmong(ctx, f, items[0].ModRevision, keys, then)
}

// findAmong reads the keys that an item may be under, with the content, which must be as it was read at rev. Keys
// of another item with the id, enqueued earlier or later, do not count.
func (q *Queue) findAmong(ctx context.Context, f found, rev int64, keys []string, then clientv3.OpOption) (found, error) {
	for some := range slices.Chunk(keys, itemsPerRequest-1) {
		var ops txn.Ops
		content := ops.Add(clientv3.OpGet(q.keys.Content(f.ID), clientv3.WithKeysOnly(), then))
		for _, key := range some {
			ops.Add(clientv3.OpGet(key, then))
		}
		answers, err := q.readAll(ctx, ops)
		if err != nil {
			return f, err
		}
		if kv := answers.First(content); kv == nil || kv.ModRevision != rev {
			return f, errMoving
		}
		for r := range answers.Reads() {
			if len(r.Kvs) == 0 || string(r.Kvs[0].Key) == q.keys.Content(f.ID) {
				continue
			}
			if is, err := q.describe(f, r.Kvs[0]); err != nil || is.entry.State.Seq == f.content.Seq {
				return is, err
			}
		}
	}
	return f, errMoving
}

// describe fills in the item's state.
func (q *Queue) describe(f found, kv *mvccpb.KeyValue) (found, error) {
	var err error
	if f.entry, err = q.keys.Entry(kv); err != nil {
		return f, err
	}
	st, key := f.entry.State, f.entry.Key()
	f.ID, f.PartitionKey, f.Priority, f.Vesting = st.ID, st.Key, st.Priority, st.Vesting
	f.Attempts, f.Max, f.History = st.Attempts, st.Max, attempts(st.History)
	switch {
	case strings.HasPrefix(key, q.keys.Later()) && st.Vesting.After(q.now()):
		f.Where = Later
	case strings.HasPrefix(key, q.keys.Behind()), strings.HasPrefix(key, q.keys.Later()) && st.Lacks():
		f.Where = Behind
	case strings.HasPrefix(key, q.keys.Ready()), strings.HasPrefix(key, q.keys.Later()): // not moved yet by the keeper
		f.Where = Ready
	case strings.HasPrefix(key, q.keys.Dead()):
		f.Where, f.Since, f.Why = Dead, st.Died, st.Why
	default:
		f.Where, f.Owner, f.Since = Taken, st.Owner, st.Since
		f.Fence = item.FenceOf(st, kv)
	}
	return f, nil
}

// change carries out an operation of an operator on an item, under the condition
// that the item is where it was found. The action is recorded with it. Its unknown outcomes are resolved: the request
// carries the session's generation, so after void it cannot come late.
// A lost reply is resolved by the history: verb is the result of endOf for an item on
// which the operation was carried out.
func (q *Queue) change(ctx context.Context, act *audit.Act, operation, verb, id string, make func(f found) (*pb.TxnRequest, error)) error {
	if err := q.closed(); err != nil {
		return q.fail(operation, err)
	}
	fail := func(err error) error { return q.fail(fmt.Sprintf("%s %q", operation, id), act.End(ctx, err)) }
	for try := 0; ; try++ {
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return fail(err)
		}
		f, err := q.find(ctx, id)
		if err != nil {
			return fail(err)
		}
		in, err := make(f)
		if err != nil {
			return fail(err)
		}
		if in == nil {
			return nil // it is so already
		}
		resp, again, err := s.commitAct(ctx, act, in)
		switch {
		case err == nil && !again && resp.Succeeded:
			q.lanes.noteKey(f.PartitionKey)
			return act.End(ctx, nil)
		case err == nil: // the item moved
		case errors.Is(err, etcdclaims.ErrUnknown):
			done, verr := q.changed(ctx, s, f, verb)
			if verr != nil {
				return fail(fmt.Errorf("%w (looking it up: %w)", err, verr))
			}
			if done {
				q.lanes.noteKey(f.PartitionKey)
				return act.End(ctx, nil)
			}
		case errors.Is(err, etcdclaims.ErrLost), passing(err):
		default:
			return fail(err)
		}
		if !retry.Pause(ctx, try) {
			return fail(context.Cause(ctx))
		}
	}
}

// changed reports whether a request of unknown outcome was carried out on an item as it
// was found. If not, it never will be. A taken item can only have been cancelled.
func (q *Queue) changed(ctx context.Context, s *session, f found, verb string) (bool, error) {
	there, err := s.void(ctx, f.entry.Reads()...)
	if err != nil || f.entry.Stands(there) {
		return false, err
	}
	end, err := q.endOf(ctx, f.entry.Key(), f.ID, f.entry.KV.ModRevision)
	if f.Where == Taken {
		verb = item.VerbCancel
	}
	return end.Verb == verb, err
}

// act is an operator's call about the queue, or about one of its items.
func (q *Queue) act(ctx context.Context, verb audit.Verb, id, why string) *audit.Act {
	return audit.Begin(ctx, q.claims, verb, audit.Target{Queue: q.cfg.Name, Item: id}, why)
}

// SetPriority changes the priority of an item that waits, vested or not. It changes
// nothing if the item has that priority already.
//
// Errors: ErrNotFound if no such item waits, ErrTaken if a worker has it, and
// etcdclaims.ErrUnknown if a lost reply could not be resolved.
func (q *Queue) SetPriority(ctx context.Context, id string, priority int) error {
	act := q.act(ctx, audit.SetPriority, id, "")
	act.Detail("to %d", priority)
	return q.change(ctx, act, "set priority of", "priority", id, func(f found) (*pb.TxnRequest, error) {
		switch {
		case f.Where == Taken:
			return nil, fmt.Errorf("%w: %s has it", ErrTaken, f.Owner)
		case f.Where == Completed || f.Where == Dead:
			return nil, ErrNotFound
		case f.Priority == priority:
			return nil, nil
		}
		return item.Reprioritize{Keys: q.keys, Entry: f.entry, Priority: priority, Now: q.now()}.Build(), nil
	})
}

// PauseOption changes what Pause does.
type PauseOption interface{ apply(*pausing.Length) }

// For makes a pause end by itself after d: more than zero, and at most 366 days. Without For it lasts
// until Resume. The first process that claims and by whose clock the pause is over ends it for all.
// The record of the call, see admin.Actions, has d. No call ends the pause, so its end has no such record.
func For(d time.Duration) PauseOption {
	return setting[pausing.Length](func(l *pausing.Length) { *l = pausing.For(d) })
}

// Pause stops all claiming from the queue, in all processes, until Resume, or for some time: see For.
// Stats returns who paused the queue and why, with the first 1,024 bytes of why. Workers keep the
// items that they have.
//
// Pause replaces a pause that ends by itself, so that it lasts longer, or not as long. It does not
// replace one that lasts until Resume.
//
// Errors: ErrUnchanged if the queue is paused until Resume already. The error of a duration that For does
// not allow is returned before any request.
func (q *Queue) Pause(ctx context.Context, why string, opts ...PauseOption) error {
	length := chosen(pausing.Length{}, opts)
	now := q.now().UTC()
	until, err := length.End(now)
	if err != nil {
		return q.fail("pause", err)
	}
	act := q.act(ctx, audit.PauseQueue, "", why)
	act.Detail("%s", length)
	p := item.Pausing{By: q.claims.Owner(), Why: why, At: now, Until: until}
	return q.fail("pause", act.End(ctx, q.pause(ctx, act, p)))
}

// pause pauses the queue. Each request replaces the pause that refused the one before, if that ends by itself.
func (q *Queue) pause(ctx context.Context, act *audit.Act, p item.Pausing) error {
	replaces := int64(0)
	for try := 0; ; try++ {
		refused, unsure, err := q.toggle(ctx, act, q.keys.Pause(p, replaces))
		if refused == nil {
			return err
		}
		is, rev, same, err := q.keys.JudgePause(p, refused)
		switch lasts := rev != 0 && is.Until.IsZero(); {
		case same, unsure && lasts:
			return nil // an earlier try did it, or another process in between
		case lasts && err != nil:
			return fmt.Errorf("%w: the queue is paused already: %w", ErrUnchanged, err)
		case lasts:
			return fmt.Errorf("%w: the queue is paused already", ErrUnchanged)
		}
		if replaces = rev; try > 0 && !retry.Pause(ctx, try-1) {
			return context.Cause(ctx)
		}
	}
}

// Resume ends a pause, and wakes all claimers that wait.
//
// Errors: ErrUnchanged if the queue is not paused.
func (q *Queue) Resume(ctx context.Context) error {
	act := q.act(ctx, audit.ResumeQueue, "", "")
	refused, unsure, err := q.toggle(ctx, act, q.keys.Resume())
	if refused != nil && !unsure { // else an earlier try did it, or another process in between
		err = fmt.Errorf("%w: the queue is not paused", ErrUnchanged)
	}
	return q.fail("resume", act.End(ctx, err))
}

// toggle sends a request once, and returns the reply if its conditions do not hold. It is then not known
// whether an earlier try was carried out, if unknown is set.
func (q *Queue) toggle(ctx context.Context, act *audit.Act, in *pb.TxnRequest) (refused *pb.TxnResponse, unknown bool, err error) {
	var unsure error // the error of a try that may have been carried out
	fail := func(err error) (*pb.TxnResponse, bool, error) { return nil, false, err }
	begun := clock.Mono()
	for try := 0; ; try++ {
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return fail(unsureOr(unsure, err))
		}
		resp, again, err := s.commitAct(ctx, act, in)
		switch {
		case err == nil && again:
		case err == nil && resp.Succeeded:
			return nil, false, nil
		case err == nil:
			return resp, unsure != nil, nil
		case errors.Is(err, etcdclaims.ErrUnknown):
			if _, verr := s.void(ctx); verr != nil {
				return fail(fmt.Errorf("%w (%w)", err, verr))
			}
			unsure = err
		case (errors.Is(err, etcdclaims.ErrLost) || passing(err)) && time.Since(begun) < patience:
		default:
			return fail(unsureOr(unsure, err))
		}
		if !retry.Pause(ctx, try) {
			return fail(unsureOr(unsure, context.Cause(ctx)))
		}
	}
}
