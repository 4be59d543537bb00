package sched

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/sched/calendar"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// SkippedTick describes a tick that SkipTick leaves out, with the caller and the note of
// SkipTick.
type SkippedTick struct {
	Nominal time.Time
	By      string // the Config.Owner of the client
	Note    string
	At      time.Time
}

// skip is a SkipTick in etcd.
type skip struct {
	skipping
	id  string // digest of the job
	key string
	rev int64
	at  time.Time // when the owner looks at it again
}

// skipsFrom decodes the skips of a job, and sorts them by nominal time. The error is of
// one that cannot be read.
func skipsFrom(kvs []*mvccpb.KeyValue) (skips []skip, unreadable error) {
	for _, kv := range kvs {
		value, err := decode[skipping](string(kv.Key), kv.Value)
		if err != nil {
			unreadable = err
			continue
		}
		skips = append(skips, skip{skipping: value, key: string(kv.Key), rev: kv.ModRevision})
	}
	slices.SortFunc(skips, func(a, b skip) int { return a.Nominal.Compare(b.Nominal) })
	return skips, unreadable
}

// mostSkips is how many ticks of a job can be skipped at a time.
const mostSkips = 100

// SkipTick leaves out the tick of the job with that nominal time, which is the time
// without jitter. UnskipTick can take that back until the tick is due. A tick that was
// admitted and waits, also for another attempt, is taken back at once. The tick is
// recorded as skipped when it is due, with the Config.Owner of the client and the note
// why. CatchUp treats it as if the schedule did not have it. Backfill and RunNow are not
// affected.
//
// At most 100 ticks of a job can be skipped at a time. If this process does not know the
// schedule (see [JobInfo]), SkipTick accepts any instant of the years 1 to 9999. It returns
// an error for any other.
//
// Errors: [ErrUnknownJob], [ErrNotDue], [ErrDecided], [ErrSkipped], and those of
// etcdclaims.Client.TryAcquire. If the error matches etcdclaims.ErrUnknown, SkipTick may
// have taken effect; after any other error it has not.
func (s *Scheduler) SkipTick(ctx context.Context, job string, nominal time.Time, why string) error {
	if year := nominal.UTC().Year(); year < 1 || year > mostYear {
		return fmt.Errorf("sched: skip a tick of job %.80q: %v is out of range; want the years 1 to %d", job, nominal, mostYear)
	}
	value := skipping{Version: valueVersion, Job: job, Nominal: nominal.UTC().Round(0), By: s.claims.Owner(), Note: limitText(why), At: s.now()}
	return s.operate(ctx, "skip a tick of", job, func(st *jobSnapshot) ([]clientv3.Cmp, []clientv3.Op, error) {
		if st.removed() || st.highRev == 0 {
			return nil, nil, s.unknownJob(job)
		}
		is := s.definedAs(job, st.definitionRev)
		id := nominalID(nominal)
		for _, w := range st.waiting {
			if w.ID == id {
				p := w.leftOut(OutcomeSkipped, value.At)
				p.Version, p.Job, p.Error = valueVersion, job, value.text()
				return []clientv3.Cmp{is, clientv3.Compare(clientv3.ModRevision(w.key), "=", w.rev)},
					[]clientv3.Op{clientv3.OpDelete(w.key), clientv3.OpPut(s.keys.entry(job, p), encode(p))}, nil
			}
		}
		schedule := s.scheduleOf(job, st)
		switch is, skipped := st.skipOf(nominal); {
		case st.skipsErr != nil:
			return nil, nil, st.skipsErr
		case skipped:
			return nil, nil, fmt.Errorf("%w: by %s since %s: %s", ErrSkipped, is.By, stamp(is.At), is.Note)
		case !nominal.After(st.high):
			return nil, nil, fmt.Errorf("%w: all ticks until %s are", ErrDecided, stamp(st.high))
		case schedule != nil && !has(schedule, nominal):
			return nil, nil, fmt.Errorf("%w: %s; the next is %s", ErrNotDue, stamp(nominal), stamp(schedule.Next(nominal)))
		case len(st.skips) >= mostSkips:
			return nil, nil, fmt.Errorf("%d ticks are to be skipped already, which is the limit", mostSkips)
		}
		key := s.keys.skipsOf(job) + id
		return append(s.marked(st), is, absent(key)), []clientv3.Op{s.markAgain(st), clientv3.OpPut(key, encode(value))}, nil
	})
}

// UnskipTick takes a SkipTick back. If the tick has become due in the meantime, CatchUp
// decides about it.
//
// Errors: [ErrUnknownJob], [ErrNotSkipped], [ErrDecided], and those of
// etcdclaims.Client.TryAcquire. If the error matches etcdclaims.ErrUnknown, UnskipTick may
// have taken effect; after any other error it has not.
func (s *Scheduler) UnskipTick(ctx context.Context, job string, nominal time.Time) error {
	return s.operate(ctx, "unskip a tick of", job, func(st *jobSnapshot) ([]clientv3.Cmp, []clientv3.Op, error) {
		is, skipped := st.skipOf(nominal)
		switch {
		case st.specRev == 0:
			return nil, nil, s.unknownJob(job)
		case !nominal.After(st.high):
			return nil, nil, fmt.Errorf("%w: all ticks until %s are", ErrDecided, stamp(st.high))
		case !skipped && st.skipsErr != nil:
			return nil, nil, st.skipsErr
		case !skipped:
			return nil, nil, ErrNotSkipped
		}
		return append(s.marked(st), clientv3.Compare(clientv3.ModRevision(is.key), "=", is.rev)),
			[]clientv3.Op{s.markAgain(st), clientv3.OpDelete(is.key)}, nil
	})
}

// marked requires that the mark was not put since it was read, and markAgain puts it with
// the same value. So a decision of an owner that has not read the skips since is refused.
func (s *Scheduler) marked(st *jobSnapshot) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.keys.high(st.spec.Job)), "=", st.highRev)}
}

func (s *Scheduler) markAgain(st *jobSnapshot) clientv3.Op {
	return clientv3.OpPut(s.keys.high(st.spec.Job), keyspace.Instant(st.high))
}

// skipOf returns the SkipTick of a tick.
func (st *jobSnapshot) skipOf(nominal time.Time) (skip, bool) {
	for _, k := range st.skips {
		if k.Nominal.Equal(nominal) {
			return k, true
		}
	}
	return skip{}, false
}

// text is the reason in the record of the tick.
func (k skipping) text() string { return limitText("skipped by " + k.By + ": " + k.Note) }

// has reports whether the schedule has the instant.
func has(s calendar.Schedule, at time.Time) bool { return s.Next(at.Add(-1)).Equal(at) }

// instants are the nominal times of skipped ticks, as a calendar.
type instants map[time.Time]bool

func (i instants) Covers(t time.Time) (bool, time.Time) { return i[t.UTC().Round(0)], t.Add(1) }

// without returns the schedule without the skipped ticks.
func without(s calendar.Schedule, skipped iter.Seq[time.Time]) calendar.Schedule {
	var out instants
	for nominal := range skipped {
		if out == nil {
			out = make(instants)
		}
		out[nominal] = true
	}
	if out == nil {
		return s
	}
	return calendar.Except(s, out)
}

// skipped yields the nominal times of the skipped ticks.
func (st *jobSnapshot) skipped(yield func(time.Time) bool) {
	for _, k := range st.skips {
		if !yield(k.Nominal) {
			return
		}
	}
}

// planned returns the job with the schedule by which ticks are admitted.
func (l *leadership) planned(c *jobState) Job {
	j := c.job
	j.Schedule = without(j.Schedule, maps.Keys(l.skips[c.id]))
	return j
}

// hearSkip takes over a SkipTick that is new or was taken back. Either has put the mark
// again, so the job is read again. A SkipTick that cannot be read may be of any tick, so
// it holds all ticks of the job, as a pause does.
func (l *leadership) hearSkip(job, key string, is kv) {
	var next *skip
	var unreadable error
	if !is.gone {
		value, err := decode[skipping](key, []byte(is.value))
		if unreadable = err; err == nil {
			next = &skip{skipping: value, id: job, key: key, rev: is.rev, at: value.Nominal}
		}
	}
	known := l.hold(job, key, unreadable)
	for nominal, old := range l.skips[job] {
		if old.key == key {
			if known = true; next != nil && next.rev == old.rev {
				return
			}
			l.unskip(job, nominal)
		}
	}
	if next == nil && !known {
		return // this owner has recorded it
	}
	if next != nil {
		if l.skips[job] == nil {
			l.skips[job] = make(map[time.Time]*skip)
		}
		l.skips[job][next.Nominal] = next
		l.skipped.set(next)
	}
	if c := l.jobs[job]; c != nil {
		c.doubts = 0
		l.doubt(c)
	}
}

// hold notes whether a SkipTick cannot be read, and reports whether that has changed.
func (l *leadership) hold(job, key string, unreadable error) (changed bool) {
	if l.unreadable[job][key] == (unreadable != nil) {
		return false
	}
	if unreadable == nil {
		if delete(l.unreadable[job], key); len(l.unreadable[job]) == 0 {
			delete(l.unreadable, job)
		}
		return true
	}
	l.s.log.Error("ticks held: a skip of the job cannot be read", zap.String("etcd_key", key), zap.Error(unreadable))
	if l.unreadable[job] == nil {
		l.unreadable[job] = make(map[string]bool)
	}
	l.unreadable[job][key] = true
	return true
}

func (l *leadership) unskip(job string, nominal time.Time) {
	l.skipped.drop(l.skips[job][nominal])
	if delete(l.skips[job], nominal); len(l.skips[job]) == 0 {
		delete(l.skips, job)
	}
}

// recordSkips records skipped ticks that are due, at most one of each job.
func (l *leadership) recordSkips(ctx context.Context) (more bool, err error) {
	now := l.s.now()
	isDue := func(k *skip) bool { return !k.at.After(now) }
	taken := l.skipped.takeWhile(mostSteps, isDue)
	busy := make(map[string]bool)
	var todo []decision
	for _, k := range taken {
		c := l.jobs[k.id]
		l.skipped.set(k) // until the decision is carried out
		switch {
		case busy[k.id]:
		case c == nil || !c.registered() || !c.readAt.IsZero() || !l.passes(c, k):
			k.at = now.Add(time.Second)
			l.skipped.set(k)
		default:
			busy[k.id] = true
			todo = append(todo, l.skipping(c, k, now))
		}
	}
	if err := l.take(ctx, todo); err != nil {
		return false, err
	}
	first, ok := l.skipped.first()
	return ok && isDue(first), nil
}

// passes reports whether the mark is beyond a skipped tick, or can be moved to it: no tick
// before it is still to be decided.
func (l *leadership) passes(c *jobState, k *skip) bool {
	if !k.Nominal.After(c.high) {
		return true
	}
	next := l.planned(c).Schedule.Next(c.high)
	return !c.paused && (next.IsZero() || next.After(k.Nominal))
}

// skipping returns the decision that records a skipped tick, and moves the mark to it if
// the mark is not beyond it.
func (l *leadership) skipping(c *jobState, k *skip, now time.Time) decision {
	j, high := c.job, l.s.keys.high(c.job.Name)
	p := past{ID: nominalID(k.Nominal), Outcome: OutcomeSkipped, Nominal: k.Nominal, Ended: now, Error: k.text()}
	d := decision{
		cmps: []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(k.key), "=", k.rev),
			clientv3.Compare(clientv3.ModRevision(high), "=", c.highRev),
		},
		ops: append([]clientv3.Op{clientv3.OpDelete(k.key)}, l.s.record(j, p)...),
	}
	moves := k.Nominal.After(c.high)
	if moves {
		d.cmps = append(d.cmps, absent(l.s.keys.paused(j.Name)))
		d.ops = append(d.ops, clientv3.OpPut(high, keyspace.Instant(k.Nominal)))
	}
	d.done = func(ok bool, rev int64, _ []*pb.ResponseOp) {
		if !ok {
			l.doubt(c)
			return
		}
		l.unskip(k.id, k.Nominal)
		l.s.view.remove(k.key, rev)
		if moves {
			c.high, c.highRev = k.Nominal, rev
		}
		c.doubts = 0
		l.schedule(c)
		l.s.left(j, p)
	}
	return d
}
