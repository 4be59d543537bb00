package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// pastTerm is a term of History, and what the events say about its ending.
type pastTerm struct {
	Term
	lease int64
	next  *pastTerm // that took its place in the same transaction

	// Of a shared key: the claim that ended last before the key was free. If there were
	// claims left when the key lost its record, it is the first of them that ended.
	last *pastTerm
	left bool
}

// termLog makes terms of the events of a claim's key and of those that share it. It keeps
// the newest ones.
type termLog struct {
	c       client
	key     string
	keep    int
	terms   []*pastTerm
	dropped int
}

// newest returns the terms to keep.
func (l *termLog) newest() []*pastTerm { return l.terms[max(0, len(l.terms)-l.keep):] }

func (l *termLog) add(ev *clientv3.Event) {
	layout := l.c.Layout()
	switch name := string(ev.Kv.Key); {
	case name == layout.Own(l.key):
		var last *pastTerm
		if n := len(l.terms); n > 0 && l.terms[n-1].EndRevision == 0 {
			last = l.terms[n-1]
			last.EndRevision, last.Ending = ev.Kv.ModRevision, endingReleased
		}
		if ev.Type == mvccpb.DELETE {
			return
		}
		next := l.begin(ev.Kv)
		if last != nil {
			last.next, last.Ending = next, endingReplaced
		}
	case ev.Type == mvccpb.DELETE && ev.PrevKv != nil && strings.HasPrefix(name, layout.Sharers(l.key)):
		l.leave(ev)
	}
}

func (l *termLog) begin(kv *mvccpb.KeyValue) *pastTerm {
	if len(l.terms) >= 2*l.keep {
		l.dropped += len(l.terms) - l.keep
		l.terms = append(l.terms[:0], l.newest()...)
		clear(l.terms[l.keep : 2*l.keep])
	}
	t := l.termOf(l.key, kv)
	l.terms = append(l.terms, t)
	return t
}

func (l *termLog) termOf(key string, kv *mvccpb.KeyValue) *pastTerm {
	h, err := protocol.DecodeHolder(kv.Value)
	t := &pastTerm{lease: kv.Lease, Term: Term{Key: key, Fence: h.Fence(kv.ModRevision), Owner: "unknown"}}
	if err == nil {
		t.Claim, t.Owner, t.Instance, t.Since, t.Attempt, t.Kind = h.Claim, h.Owner, h.Instance, keyspace.Time(h.Since), h.Attempt, h.Kind
	}
	return t
}

// leave notes the end of a claim that shared the key.
func (l *termLog) leave(ev *clientv3.Event) {
	began := ev.PrevKv.ModRevision
	i := sort.Search(len(l.terms), func(i int) bool { return l.terms[i].Revision() > began }) - 1
	if i < 0 || l.terms[i].Kind != protocol.KindShared {
		return
	}
	shared := l.terms[i]
	over := shared.EndRevision != 0 && shared.EndRevision < ev.Kv.ModRevision
	if over && shared.left {
		return
	}
	shared.last, shared.left = l.termOf(strings.TrimPrefix(string(ev.Kv.Key), l.c.Layout().Own("")), ev.PrevKv), over
	shared.last.EndRevision, shared.last.Ending = ev.Kv.ModRevision, endingReleased
}

// endingFacts are what else changed at the revision at which a term ended.
type endingFacts struct {
	c  client
	t  *pastTerm // whose ending is to be explained
	of *pastTerm // whose claim explains it

	facts                   []fact
	evicted, record, notice *mvccpb.KeyValue
	was, is                 []*mvccpb.KeyValue // sentinels of the holder before and then
	sharers                 int64              // left when a shared key lost its record
}

// fact is one read, and what takes in its result.
type fact struct {
	op    clientv3.Op
	learn func(*pb.RangeResponse)
	in    txn.Op // of the request
}

func one(to **mvccpb.KeyValue) func(*pb.RangeResponse) {
	return func(r *pb.RangeResponse) {
		if len(r.Kvs) > 0 {
			*to = r.Kvs[0]
		}
	}
}

// inquire returns what to read about the ending of a term, or nil if the events say
// all, or etcd does not have the revision any more.
func (c client) inquire(t *pastTerm, from int64) *endingFacts {
	q := &endingFacts{c: c, t: t, of: t}
	if t.Kind == protocol.KindShared && t.EndRevision > 0 && t.next == nil {
		if q.of = t.last; q.of == nil {
			t.Ending = endingUnknown
			return nil
		}
	}
	of, l := q.of, c.Layout()
	if of.EndRevision == 0 || of.EndRevision < from || of.Claim == "" {
		return nil
	}
	at := clientv3.WithRev(of.EndRevision)
	read := func(op clientv3.Op, learn func(*pb.RangeResponse)) {
		q.facts = append(q.facts, fact{op: op, learn: learn})
	}
	read(clientv3.OpGet(l.Eviction(of.Instance, of.Claim), at), one(&q.evicted))
	if of.Attempt > 0 {
		read(clientv3.OpGet(keyspace.Work(l.Prefix, of.Key), at), one(&q.record))
	}
	if n := of.next; n != nil && n.Kind != protocol.KindZombie && n.Kind != protocol.KindResting && n.Claim != of.Claim && n.Instance != "" {
		read(clientv3.OpGet(l.Notice(n.Instance, n.Claim), at), one(&q.notice))
	}
	if of.next == nil {
		sentinels := func(to *[]*mvccpb.KeyValue, at clientv3.OpOption) {
			read(clientv3.OpGet(l.Sentinels(of.Instance), clientv3.WithPrefix(), at), func(r *pb.RangeResponse) { *to = r.Kvs })
		}
		sentinels(&q.is, at)
		if of.EndRevision > from {
			sentinels(&q.was, clientv3.WithRev(of.EndRevision-1))
		}
	}
	if of != t && !t.left {
		left := clientv3.OpGet(l.Sharers(t.Key), clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(t.EndRevision))
		read(left, func(r *pb.RangeResponse) { q.sharers = r.Count })
	}
	return q
}

// judge explains the ending by the facts.
func (q *endingFacts) judge() {
	q.judgeClaim()
	if q.of == q.t {
		return
	}
	q.t.Ending, q.t.Cause = q.of.Ending, q.of.Cause
	forced := q.of.Ending == endingForced || q.of.Ending == endingSuspected
	if q.sharers > 0 || q.t.left && !forced {
		q.t.Ending, q.t.Cause = endingUnknown, "" // it lost its record while others shared it
	}
}

func (q *endingFacts) judgeClaim() {
	t := q.of
	if kv := q.evicted; kv != nil && kv.ModRevision == t.EndRevision {
		if e, err := keyspace.Decode[protocol.Eviction]("a notice of eviction", kv.Value, protocol.Version); err == nil {
			if t.Ending, t.Cause = endingForced, strings.TrimSuffix(e.By+": "+e.Reason, ": "); e.Suspected {
				t.Ending = endingSuspected
			}
			return
		}
	}
	if kv := q.record; kv != nil && kv.ModRevision == t.EndRevision {
		if ending := endingOfWork(kv); ending != "" {
			t.Ending = ending
			return
		}
	}
	onLease := func(kv *mvccpb.KeyValue) bool { return t.lease != 0 && kv.Lease == t.lease }
	switch {
	case t.next != nil:
		if q.notice != nil && q.notice.ModRevision == t.EndRevision {
			t.Ending = endingHandedOver
		}
	case t.Kind == protocol.KindZombie || t.Kind == protocol.KindResting:
		t.Ending = endingLease // only the end of its lease ends such a term
	case slices.ContainsFunc(q.is, onLease):
		t.Ending = endingReleased
	case slices.ContainsFunc(q.was, onLease):
		t.Ending = endingLease
	default:
		t.Ending = endingUnknown
	}
}

// endingOfWork returns how a record shows that an attempt at work has ended, or "".
func endingOfWork(record *mvccpb.KeyValue) Ending {
	r, err := keyspace.Decode[struct{ State Ending }](string(record.Key), record.Value, protocol.Version)
	switch r.State {
	case endingDone, endingFailed, endingDead, endingFree:
		if err == nil {
			return r.State
		}
	}
	return ""
}

// explainEndings reads how the terms ended, for many in a request.
func (c client) explainEndings(ctx context.Context, terms []*pastTerm, from int64) error {
	var batches [][]*endingFacts
	var batch []*endingFacts
	ops := 0
	for _, t := range terms {
		q := c.inquire(t, from)
		if q == nil {
			continue
		}
		if ops += len(q.facts); ops > c.Store().MaxOps() {
			batches, batch, ops = append(batches, batch), nil, len(q.facts)
		}
		batch = append(batch, q)
	}
	if len(batch) > 0 {
		batches = append(batches, batch)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	core.EachOf(batches, func(batch []*endingFacts) {
		if err := c.explain(ctx, batch); err != nil {
			cancel(err)
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// explain explains several endings by one request. It halves them if they are too many, or if
// etcd has compacted what one of them is about.
func (c client) explain(ctx context.Context, all []*endingFacts) error {
	if ctx.Err() != nil {
		return nil // another has failed
	}
	var ops txn.Ops
	for _, q := range all {
		for i := range q.facts {
			q.facts[i].in = ops.Add(q.facts[i].op)
		}
	}
	resp, err := c.Read(ctx, ops...)
	compacted, large := errors.Is(err, rpctypes.ErrCompacted), txn.IsTooManyOps(err)
	switch half := len(all) / 2; {
	case half > 0 && (compacted || large):
		if large && len(ops) > txn.LeastOps {
			c.Store().FewerOps(len(ops))
		}
		return errors.Join(c.explain(ctx, all[:half]), c.explain(ctx, all[half:]))
	case compacted:
		all[0].t.Ending = endingUnknown
		return nil
	case err != nil:
		return fmt.Errorf("reading how the term with fence %d ended: %w", all[0].t.Fence, err)
	}
	for _, q := range all {
		for _, f := range q.facts {
			f.learn(txn.ReplyIn(resp).Range(f.in))
		}
		q.judge()
	}
	return nil
}
