package sched

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
)

// fillAhead is how many ticks of a backfill wait at a time.
const fillAhead = 32

// mostBackfills is how many backfills one transaction moves on.
const mostBackfills = 8

// mostPayloads is how many bytes of payloads one transaction has, about: JSON can make them six times
// as long.
const mostPayloads = 128 << 10

// request is a RunNow or a Backfill that waits for the owner.
type request struct {
	ask
	id  string // digest of the job
	key string
	rev int64
}

// compare orders requests by when they were made.
func (r *request) compare(o *request) int {
	return cmp.Or(r.At.Compare(o.At), cmp.Compare(r.key, o.key))
}

// byRevision orders requests by when they were put.
func (r *request) byRevision(o *request) int { return cmp.Compare(r.rev, o.rev) }

func (r *request) backfill() bool { return !r.To.IsZero() }

// hearRequest takes over a request that is new, has progressed, or is gone.
func (l *leadership) hearRequest(key string, is live.KV) {
	if is.Gone {
		l.setRequest(key, nil)
		return
	}
	if old := l.requests[key]; old != nil && old.rev == is.Rev {
		return // this owner has put it
	}
	a, err := decode[ask](key, []byte(is.Value))
	if err != nil {
		l.setRequest(key, nil)
		l.log.Error("request ignored: its value cannot be read", zap.String("etcd_key", key), zap.Error(err))
		return
	}
	l.setRequest(key, &request{ask: a, id: keyspace.Digest(a.Job), key: key, rev: is.Rev})
}

// setRequest replaces a request. A nil one removes it.
func (l *leadership) setRequest(key string, r *request) {
	if old := l.requests[key]; old != nil {
		l.asked.Drop(old)
		delete(l.requests, key)
		delete(l.requestsOf[old.id], key)
		if len(l.requestsOf[old.id]) == 0 {
			delete(l.requestsOf, old.id)
		}
	}
	if r == nil {
		return
	}
	l.requests[key] = r
	if l.requestsOf[r.id] == nil {
		l.requestsOf[r.id] = make(map[string]*request)
	}
	l.requestsOf[r.id][key] = r
	l.offer(r)
	l.unserved[r.id] = l.unserved[r.id] || r.After != "" && l.piles(r.id)
}

// offer queues a request if it can be served. A request for a job that this process
// does not have waits for another owner. One for a job in doubt is offered again when the
// job has been read.
func (l *leadership) offer(r *request) {
	c := l.jobs[r.id]
	if c != nil && c.registered() && c.readAt.IsZero() && !c.behind(r) && !l.resumes(c, r) && (!r.backfill() || l.room(r) > 0) &&
		l.joined(c, r).complete {
		l.asked.Set(r)
	}
}

// resumes reports whether the request is of a tick after another job, and the pause of its job is over, but
// this owner has not ended it so far. The request is offered again when it has.
func (l *leadership) resumes(c *jobState, r *request) bool {
	return r.After != "" && c.pause.Over(l.now())
}

// behind reports whether the request is of a newer definition than this owner has. It is
// offered again when the owner has that.
func (c *jobState) behind(r *request) bool { return c.job.defined != 0 && r.Defined > c.job.defined }

// dropAsk removes the request of a tick after another job, because the job does not run
// after that one any more.
func (l *leadership) dropAsk(c *jobState, r *request) decision {
	st := tick.Refuse{Keys: l.keys, Job: r.Job, Requests: []string{r.key}, Rev: r.rev}
	return l.refuse(st, func() { l.doubt(c) }, func() {
		l.log.Info("tick dropped: the job was changed and no longer runs after the other",
			zap.String("job", r.Job), zap.String("after", r.By), zap.String("etcd_key", r.key))
	})
}

// notDue drops the ends of other jobs, because the job does not run after them.
func (l *leadership) notDue(c *jobState, j join) decision {
	st := tick.Refuse{Keys: l.keys, Job: c.job.Name, Requests: j.keys(), Rev: j.of[len(j.of)-1].rev}
	return l.refuse(st, func() { l.doubt(c) }, func() {})
}

// afterPause leaves out a tick after other jobs, because the job is paused.
func (l *leadership) afterPause(c *jobState, j join) decision {
	p := past{ID: tick.AfterID + j.ask.After, Outcome: OutcomeSkipped, Nominal: j.ask.At, Ended: l.now(), Error: "the job is paused"}
	st := tick.Refuse{
		Keys: l.keys, Job: c.job.Name, Requests: j.keys(), Rev: j.of[len(j.of)-1].rev,
		Pause: l.pauseOf(c), History: l.history(c.job), Past: &p,
	}
	return l.refuse(st, func() { l.doubt(c) }, func() { l.left(c.job, p) })
}

// refuse returns the decision that removes requests.
func (l *leadership) refuse(st tick.Refuse, otherwise, done func()) decision {
	return decision{st.Build(), func(reply txn.Reply) {
		if !reply.Succeeded {
			otherwise()
			return
		}
		for _, key := range st.Requests {
			l.view.Remove(key, reply.Rev)
		}
		done()
	}}
}

// serve queues the requests of a job.
func (l *leadership) serve(c *jobState) {
	for _, r := range l.requestsOf[c.id] {
		l.offer(r)
	}
}

// roomFor queues a backfill again after one of its ticks has begun.
func (l *leadership) roomFor(job, fill string) {
	if r := l.requests[l.keys.Asks()+job+"/"+fill]; r != nil {
		l.offer(r)
	}
}

// room returns how many more ticks of a backfill may wait.
func (l *leadership) room(r *request) int {
	if all := l.waiting[r.id]; all != nil {
		return fillAhead - all.backfills[r.ID]
	}
	return fillAhead
}

// admitRequests serves some requests, oldest first: it admits manual ticks, and the
// ticks of backfills some at a time. The same transaction removes or advances the
// request, so each request is served once. One transaction has at most one manual tick
// of a job whose runs exclude each other: etcd evaluates the conditions of all steps
// before it carries out any.
func (l *leadership) admitRequests(ctx context.Context) (more bool, err error) {
	taken := l.asked.TakeWhile(2*mostSteps, func(*request) bool { return true })
	served := make(map[string]bool)
	joins := make(map[*request]bool) // those of which another one was taken
	backfills, payloads := 0, 0
	var todo []decision
	for _, r := range taken {
		c := l.jobs[r.id]
		j := l.joined(c, r)
		switch {
		case joins[r]:
		case !c.readAt.IsZero(): // it is offered again when the job has been read
		case l.resumes(c, r): // it is offered again when the pause has been ended
		case r.backfill() && l.room(r) <= 0: // it is offered again when one of its ticks has begun
		case r.backfill() && backfills < mostBackfills:
			backfills++
			todo = append(todo, l.backfill(c, r))
		case r.backfill(), len(todo) >= mostSteps, payloads >= mostPayloads, served[r.id] && !c.job.rules.Parallel():
			more = true
		case c.before().Outdated(r.ask):
			todo = append(todo, l.dropAsk(c, r))
		case !j.complete: // it is offered again when the others have ended
		default:
			served[r.id] = true
			payloads += len(r.Payload)
			for _, o := range j.of {
				joins[o] = true
			}
			todo = append(todo, l.tickOf(c, j))
		}
	}
	err = l.take(ctx, todo)
	l.absorb()
	for _, r := range taken {
		if l.requests[r.key] == r { // the request is neither gone nor advanced
			l.offer(r)
		}
	}
	return (more || l.asked.Len() > 0) && err == nil, err
}

// tickOf decides about the tick of a RunNow, or after other jobs.
func (l *leadership) tickOf(c *jobState, j join) decision {
	switch {
	case !j.runs:
		return l.notDue(c, j)
	case j.ask.After != "" && c.isPaused():
		return l.afterPause(c, j)
	}
	return l.runNow(c, j)
}

// runNow admits a manual tick under the job's Overlap.
func (l *leadership) runNow(c *jobState, j join) decision {
	r := j.ask
	of := ready{
		Version: valueVersion, Job: r.Job, ID: tick.ManualID + r.ID, Nominal: r.At, Actual: r.At, Attempt: 1,
		Parallel: c.job.rules.Parallel(), Note: "requested by " + r.By, Trace: r.Trace, Payload: r.Payload,
	}
	if r.After != "" {
		of.ID, of.Note = tick.AfterID+r.After, "after "+r.By
	}
	st := tick.Serve{Standing: l.overlapping(c, l.now()), Requests: j.asked(), Tick: of, After: r.After != "", Halted: l.halted()}
	return decision{st.Build(), func(reply txn.Reply) {
		d, ok := st.Judge(reply)
		if !ok {
			l.doubt(c)
			return
		}
		c.doubts = 0
		for _, key := range j.keys() {
			l.view.Remove(key, reply.Rev)
		}
		l.decided(c, d, reply.Rev)
	}}
}

// backfill admits the next ticks of a backfill, as many as may wait.
func (l *leadership) backfill(c *jobState, r *request) decision {
	room := max(min(l.room(r), l.ticks), 0)
	if size := len(r.Payload); size > 0 {
		room = min(room, max(1, mostPayloads/mostBackfills/size))
	}
	var some []ready
	next, over := r.ask, true
	for nominal := range calendar.Between(c.job.Schedule, r.From, r.To) {
		if len(some) == room {
			over = false
			break
		}
		next.From = nominal
		some = append(some, ready{
			Version: valueVersion, Job: r.Job, ID: tick.BackfillID + r.ID + "/" + tick.NominalID(nominal),
			Nominal: nominal, Actual: nominal, Attempt: 1,
			Parallel: r.Parallel, Epoch: l.epoch.Load(), Note: "requested by " + r.By, Trace: r.Trace, Payload: r.Payload,
		})
	}
	value := ""
	if !over {
		value = tick.Encode(next)
	}
	st := tick.Fill{Keys: l.keys, Request: r.key, Rev: r.rev, Ticks: some, Next: value}
	return decision{st.Build(), func(reply txn.Reply) {
		d, ok := st.Judge(reply)
		if !ok {
			l.doubt(c)
			return
		}
		c.doubts = 0
		l.decided(c, d, reply.Rev)
		if over {
			l.view.Remove(r.key, reply.Rev)
		} else {
			l.setRequest(r.key, &request{ask: next, id: r.id, key: r.key, rev: reply.Rev})
			l.view.Put(r.key, value, reply.Rev)
		}
	}}
}

// hearHeirs takes the requests for the ownership up. The first one that is granted ends the term; its
// successor removes it, as this owner removes the others.
func (l *leadership) hearHeirs(ctx context.Context) (more bool, err error) {
	if len(l.heirs) == 0 {
		return false, nil
	}
	var todo []decision
	jobs, kinds := l.catalog.served()
	for _, key := range slices.Sorted(maps.Keys(l.heirs)) {
		is := l.heirs[key]
		if is.Gone {
			delete(l.heirs, key)
			continue
		}
		h, err := decode[tick.Heir](key, []byte(is.Value))
		switch {
		case err != nil:
			delete(l.heirs, key)
			l.log.Error("request ignored: its value cannot be read", zap.String("etcd_key", key), zap.Error(err))
		case h.Inherits(l.claim.Revision(), jobs, kinds):
			l.heir = h.Instance
			return false, nil
		case len(todo) < mostSteps:
			forget := func() { delete(l.heirs, key) } // if it has changed, the watch brings it
			todo = append(todo, l.refuse(tick.Refuse{Keys: l.keys, Requests: []string{key}, Rev: is.Rev}, forget, forget))
		default:
			more = true
		}
	}
	return more, l.take(ctx, todo)
}
