package sched

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// refresh reads the jobs whose state is in doubt: all of them, or some at a time.
func (l *leadership) refresh(ctx context.Context) error {
	if l.stale {
		return l.load(ctx)
	}
	l.adopt()
	if l.doubtful.Len() > 4*mostReads {
		first, _ := l.doubtful.First()
		if time.Until(first.readAt) <= 0 {
			return l.load(ctx)
		}
	}
	some := l.doubtful.TakeWhile(mostReads, func(c *jobState) bool { return time.Until(c.readAt) <= 0 })
	if len(some) == 0 {
		return nil
	}
	k := l.keys
	type reads struct {
		spec, high, fail txn.Op
		live             []txn.Op
	}
	var ops txn.Ops
	var of []reads
	for _, c := range some {
		name := c.job.Name
		of = append(of, reads{
			spec: ops.Add(clientv3.OpGet(k.Spec(name))), high: ops.Add(clientv3.OpGet(k.High(name))), fail: ops.Add(clientv3.OpGet(k.Fail(name))),
			live: []txn.Op{
				ops.Add(clientv3.OpGet(k.Paused(name))), ops.Add(clientv3.OpGet(k.Reset(name))),
				ops.Add(clientv3.OpGet(k.ReadyOf(name), clientv3.WithPrefix())), ops.Add(clientv3.OpGet(k.AsksOf(name), clientv3.WithPrefix())),
			},
		})
	}
	since := l.view.Latest()
	resp, err := retry.Read(ctx, core.Of(l.claims).KV(), readTime, ops...)
	if err != nil {
		for _, c := range some {
			l.place(c)
		}
		return txn.Denied(err)
	}
	reply := txn.ReplyIn(resp)
	for i, c := range some {
		var live []*mvccpb.KeyValue
		for _, op := range of[i].live {
			live = append(live, reply.Kvs(op)...)
		}
		if !l.view.Correct(live, l.known(c), since, reply.Rev) {
			return l.load(ctx)
		}
		c.failures = l.readFailures(c.job.Name, reply.First(of[i].fail))
		l.know(c, reply.First(of[i].spec), reply.First(of[i].high))
	}
	l.absorb()
	return nil
}

// adopt takes over jobs that were added, changed or removed since, to be read.
func (l *leadership) adopt() {
	for _, name := range l.catalog.take(l.changed) {
		if j, ok := l.catalog.lookUp(name); !ok {
			l.remove(keyspace.Digest(name))
		} else if c, changed := l.put(j); changed {
			l.doubt(c)
		}
	}
}

// put takes over a job, and reports whether it is new or has changed.
func (l *leadership) put(j Job) (c *jobState, changed bool) {
	id := keyspace.Digest(j.Name)
	if c = l.jobs[id]; c != nil && c.job.same(j) {
		return c, false
	}
	l.remove(id)
	c = &jobState{job: j, id: id}
	l.jobs[id] = c
	return c, true
}

// remove drops a job that this process does not have any more.
func (l *leadership) remove(id string) {
	c := l.jobs[id]
	if c == nil {
		return
	}
	delete(l.jobs, id)
	l.place(c)
	for _, r := range l.requestsOf[id] {
		l.asked.Drop(r)
		l.unserved[id] = true
	}
	if all := l.waiting[id]; all != nil {
		for _, w := range all.keys {
			l.late.Drop(w)
		}
	}
}

// known returns the live keys of a job that the owner knows.
func (l *leadership) known(c *jobState) (keys []string) {
	if all := l.waiting[c.id]; all != nil {
		for _, w := range all.line.Ticks {
			keys = append(keys, w.Key)
		}
	}
	for key := range l.requestsOf[c.id] {
		keys = append(keys, key)
	}
	return append(keys, l.keys.Paused(c.job.Name), l.keys.Reset(c.job.Name))
}

// load reads the state of all jobs.
func (l *leadership) load(ctx context.Context) error {
	k := l.keys
	var ops txn.Ops
	readSpecs := ops.Add(clientv3.OpGet(k.Specs(), clientv3.WithPrefix()))
	readHighs := ops.Add(clientv3.OpGet(k.Highs(), clientv3.WithPrefix()))
	readFails := ops.Add(clientv3.OpGet(k.Fails(), clientv3.WithPrefix()))
	resp, err := retry.Read(ctx, core.Of(l.claims).KV(), readTime, ops...)
	if err != nil {
		return txn.Denied(err)
	}
	reply := txn.ReplyIn(resp)
	// The view may have been out of date when a decision failed.
	if _, err := l.view.List(ctx); err != nil {
		return err
	}
	l.absorb()
	if _, err := l.hearHalts(ctx); err != nil { // know builds registrations, which need the pauses
		return err
	}
	specs := byDigest(k.Specs(), reply.Kvs(readSpecs))
	highs := byDigest(k.Highs(), reply.Kvs(readHighs))
	fails := byDigest(k.Fails(), reply.Kvs(readFails))
	_ = l.catalog.take(l.changed)
	jobs := l.catalog.all()
	l.stale, l.changes = false, nil
	broken, are := 0, make(map[string]bool, len(jobs))
	for _, j := range jobs {
		c, _ := l.put(j)
		are[c.id] = true
		c.failures = l.readFailures(j.Name, fails[c.id])
		if !l.know(c, specs[c.id], highs[c.id]) {
			broken++
		}
		if is := l.view.Get(k.Reset(j.Name)); !is.Gone && is.Rev > resp.Header.Revision {
			l.doubt(c) // the mark was put back after it was read here
		}
	}
	for id := range l.jobs {
		if !are[id] {
			l.remove(id)
		}
	}
	if broken > 0 && broken == len(jobs) {
		return errUnreadable
	}
	return nil
}

// errUnreadable makes an owner give up: another version of the program may be able to
// read the jobs.
var errUnreadable = errors.New("no job of this process can be taken over")

// know takes over the state of a job that was read, and queues its registration if it
// is new or has changed. It returns false if the state cannot be decoded; the job is
// then skipped and read again later.
func (l *leadership) know(c *jobState, sp, high *mvccpb.KeyValue) bool {
	c.plan, c.readAt, c.at = nil, time.Time{}, time.Time{}
	err := c.read(sp, high)
	c.broken = err != nil
	l.unserved[c.id] = l.unserved[c.id] || len(l.requestsOf[c.id]) > 0 && l.piles(c.id)
	if err != nil {
		l.log.Error("job not taken over: its state cannot be read", zap.String("job", c.job.Name),
			zap.String("etcd_key", l.keys.Spec(c.job.Name)), zap.Error(err))
		c.highRev = 0
		c.readAt = clock.Mono().Add(nap)
		l.place(c)
		return false
	}
	if by := jobstate.Ahead(c.job.Schedule, c.high, l.now()); c.highRev != 0 && by > 0 {
		l.log.Error("high-water mark ahead of the clock; no tick is due before it; reset the mark",
			zap.String("job", c.job.Name), zap.Duration("ahead", by), zap.String("etcd_key", l.keys.High(c.job.Name)))
	}
	paused := l.keys.Paused(c.job.Name)
	c.setPause(paused, l.view.Get(paused))
	l.readReset(c)
	c.takeHalts(l.allHalts(), l.now())
	if all := l.waiting[c.id]; all != nil {
		for _, w := range all.keys {
			if !tick.IsBackfill(w.ID) {
				l.watchDeadline(c, w)
			}
		}
	}
	d, changes := l.registration(c)
	if c.changing = changes; changes {
		l.changes = append(l.changes, d)
	}
	l.serve(c)
	l.schedule(c)
	return true
}

// read decodes the stored state of a job.
func (c *jobState) read(sp, high *mvccpb.KeyValue) (err error) {
	c.spec, c.specRev, c.high, c.highRev = spec{}, 0, time.Time{}, 0
	if high != nil {
		if c.high, err = tick.Instant(high.Value); err != nil {
			return fmt.Errorf("the high-water mark %s is invalid: %w; correct the value", high.Key, err)
		}
		c.highRev = high.ModRevision
	}
	if sp != nil {
		if c.spec, err = decode[spec](string(sp.Key), sp.Value); err != nil {
			return err
		}
		c.specRev = sp.ModRevision
	}
	return nil
}

// register carries out some of the registrations.
func (l *leadership) register(ctx context.Context) (more bool, err error) {
	n := min(len(l.changes), mostSteps)
	some := l.changes[:n]
	l.changes = l.changes[n:]
	if err := l.take(ctx, some); err != nil {
		l.stale = true // all registrations are computed again
		return false, err
	}
	return len(l.changes) > 0, nil
}

// registration returns the decision that stores the owner's version of a job, if the
// stored one differs. The ticks of a new job, and of one whose schedule has changed, begin
// now, or when the job was defined if its schedule has ended: the mark is moved forward, never back.
func (l *leadership) registration(c *jobState) (decision, bool) {
	if c.job.problem != "" {
		return l.complaint(c)
	}
	k, j, now := l.keys, c.job, l.now()
	is := describe(l.cfg.Group, j)
	begins := c.specRev == 0 || c.highRev == 0 || c.spec.Hash != is.Hash
	is.Since, is.Born, is.Started = c.spec.Since, c.spec.Born, c.spec.Started
	since := now
	if j.defined != 0 && j.definedAt.Before(now) && j.rules.DueAfter(now).IsZero() {
		since = j.definedAt // the schedule may have ended since, so CatchUp decides about its last ticks
	}
	if begins {
		is.Since = since
	}
	if c.specRev == 0 {
		is.Born = since
	}
	starts := c.toStart(is.Hash) && !c.isPaused()
	if starts {
		const most = 32 // revisions that are remembered to have started
		is.Started = append(slices.Clone(is.Started[max(0, len(is.Started)-most+1):]), is.Hash)
	}
	value := tick.Encode(is)
	if !begins && !starts && value == tick.Encode(c.spec) {
		return decision{}, false
	}
	st := &tick.Register{Keys: k, Job: j.rules, SpecRev: c.specRev, MarkRev: c.highRev, Spec: value}
	high := c.high
	if begins {
		high = tick.Later(c.high, since)
		st.To = high
	}
	if starts {
		st.Halted = l.halted()
		st.First = &ready{
			Version: valueVersion, Job: j.Name, Nominal: now, Actual: now, Attempt: 1, Parallel: j.rules.Parallel(), Epoch: l.epoch.Load(),
			// The id is new for each registration: after Forget the same revision starts again.
			ID: tick.StartID + is.Hash + "-" + uuid.NewString(),
		}
	}
	return decision{st.Build(), func(r txn.Reply) {
		d, ok := st.Judge(r)
		if !ok {
			l.doubt(c)                  // another request of our own came before
			l.stale = l.stale || starts // or there is a pause that this owner does not know
			return
		}
		if c.specRev == 0 {
			l.log.Info("job registered", l.aboutJob(j.Name, zap.String("schedule", is.Schedule))...)
		} else if begins {
			l.log.Info("job changed; ticks of its old schedule are not caught up with",
				l.aboutJob(j.Name, zap.String("old", c.spec.Schedule), zap.String("new", is.Schedule))...)
		}
		c.spec, c.specRev, c.high, c.changing, c.doubts = is, r.Rev, high, false, 0
		if begins {
			c.highRev = r.Rev
		}
		l.decided(c, d, r.Rev)
		l.serve(c)
		l.schedule(c)
		l.unpaused(c) // a pause may have ended since the decision was built
	}}, true
}

// toStart reports whether RunOnStart of a version of the job has not been due so far.
func (c *jobState) toStart(hash string) bool {
	return c.job.RunOnStart && !slices.Contains(c.spec.Started, hash)
}

// unpaused queues a job to be read and registered again if a pause has delayed its RunOnStart and no pause is left.
func (l *leadership) unpaused(c *jobState) {
	if c.specRev != 0 && c.job.problem == "" && !c.isPaused() && c.toStart(c.spec.Hash) {
		c.doubts = 0
		l.doubt(c)
	}
}

// complaint returns the decision that stores why this process cannot run a definition. The
// registration remains, so that an owner that can run the job continues.
func (l *leadership) complaint(c *jobState) (decision, bool) {
	k, j := l.keys, c.job
	is := c.spec
	is.Version, is.Group, is.Job, is.Kind, is.Defined, is.Problem = valueVersion, l.cfg.Group, j.Name, j.kind, j.defined, j.problem
	value := tick.Encode(is)
	if value == tick.Encode(c.spec) {
		return decision{}, false
	}
	st := tick.Complain{Keys: k, Job: j.rules, SpecRev: c.specRev, Spec: value}
	return decision{st.Build(), func(r txn.Reply) {
		if !r.Succeeded {
			l.doubt(c)
			return
		}
		l.log.Error("definition cannot be run", zap.String("job", j.Name),
			zap.String("etcd_key", k.Definition(j.Name)), zap.String("problem", j.problem))
		c.spec, c.specRev, c.changing, c.doubts = is, r.Rev, false, 0
		l.place(c)
	}}, true
}

func byDigest(prefix string, kvs []*mvccpb.KeyValue) map[string]*mvccpb.KeyValue {
	out := make(map[string]*mvccpb.KeyValue, len(kvs))
	for _, kv := range kvs {
		out[strings.TrimPrefix(string(kv.Key), prefix)] = kv
	}
	return out
}
