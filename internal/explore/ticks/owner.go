package ticks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/tick"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// owner are the events of the owner's goroutine of a process; see sched/campaign.go and
// sched/leadership.go. Its duties come in any order.
func (w State) owner(i int) (all []event) {
	p := w.procs[i]
	if !p.alive || p.gone || p.lease == 0 || p.busy {
		return nil
	}
	add := func(tell string, do func() (State, error)) {
		all = append(all, event{calm: true, tell: says(i, tell), do: do})
	}
	if p.term == 0 {
		// Until the first was elected, both are alike.
		if w.get(ownerKey) == nil && w.hasLease(i) && (i == 0 || w.told.elected || !w.procs[0].alive) {
			add("became the owner", func() (State, error) { return w.elected(i) })
		}
		return all
	}
	if w.etcd.Get(ownerKey).Modified != p.term { // see term/verify.go
		add("noticed that it is not the owner any more", func() (State, error) { return w.dethroned(i), nil })
	}
	if p.paused != (w.get(pausedKey) != nil) {
		add("heard of a pause, or of its end", func() (State, error) { return w.known(i), nil })
	}
	for _, s := range w.orphans(i) {
		add("saw that a run has no owner, and settles that", func() (State, error) {
			if w.Settles != nil {
				w.Settles(s)
			}
			next := w.waits(i)
			return next.send(i, settle, s, s.Build(), w.guard(i)...), nil
		})
	}
	if p.mark.Rev == 0 {
		add("registers the job", func() (State, error) {
			s := &tick.Register{Keys: keys, Job: w.job(), SpecRev: p.spec, Spec: "{}", To: at(w.minutes)}
			next := w.waits(i)
			return next.send(i, register, s, s.Build(), w.guard(i)...), nil
		})
		return all
	}
	plan := w.job().Plan(p.mark.At, at(w.minutes), time.Hour, 9)
	if p.paused || plan.High.IsZero() {
		return all
	}
	if w.mayBegin(i, plan) {
		add("admits a tick and begins it", func() (State, error) { return w.begins(i, plan), nil })
		return all
	}
	add("admits ticks", func() (State, error) {
		s := &tick.Admission{Standing: w.standing(), Mark: p.mark, Plan: plan}
		next := w.waits(i)
		return next.send(i, admission, s, s.Build(), w.guard(i)...), nil
	})
	return all
}

// says returns a sentence about a process.
func says(i int, what string) func() string {
	return func() string { return fmt.Sprintf("process %c %s", 'A'+i, what) }
}

func (w State) waits(i int) State {
	w.procs[i].busy = true
	return w
}

func (w State) hasLease(i int) bool { return slices.Contains(w.etcd.Leases(), w.procs[i].lease) }

// elected claims the ownership.
func (w State) elected(i int) (State, error) {
	p := &w.procs[i]
	id := w.id(i, "o")
	_, in := w.claim(i, id, tick.OwnerClaim(group), &pb.TxnRequest{})
	next, resp, err := w.etcd.Txn(in)
	if err != nil || !resp.Succeeded {
		return w, fmt.Errorf("the ownership was free and not given: %v, %w", resp, err)
	}
	w.etcd = next
	p.sent++
	w.told.elected = true
	p.term, p.refused = resp.Header.Revision, false
	return w.compact().known(i), nil
}

// id returns the next id that a process gives.
func (w State) id(i int, what string) string {
	return fmt.Sprint(what, w.fresh(i, values.Attempts))
}

// dethroned has the process hear that its ownership is lost.
func (w State) dethroned(i int) State {
	p := &w.procs[i]
	p.term, p.busy = 0, false
	p.mark, p.spec, p.paused, p.refused = tick.Mark{}, 0, false, false
	return w
}

// guard is the condition that the process is the owner, as package term sends it.
func (w State) guard(i int) []*pb.Compare {
	p := w.procs[i]
	h := protocol.Held{
		Layout: layout, Mode: protocol.Exclusive{Layout: layout, Key: tick.OwnerClaim(group)}, Key: tick.OwnerClaim(group),
		Fence: p.term, Lease: p.lease,
	}
	return h.Guard()
}

// known reads the job; see sched/register.go: load. That is done as soon as it may be: what is read
// later is less out of date.
func (w State) known(i int) State {
	p := &w.procs[i]
	p.mark, p.spec = tick.Mark{}, 0
	p.paused = w.get(pausedKey) != nil
	if kv := w.get(specKey); kv != nil {
		p.spec = kv.Modified
	}
	if kv := w.get(highKey); kv != nil {
		to, err := tick.Instant([]byte(kv.Value))
		if err != nil {
			panic(err)
		}
		p.mark = tick.Mark{At: to, Rev: kv.Modified}
	}
	return w
}

// line are the waiting ticks in etcd. That the copy in a process can be older makes no difference:
// a request can arrive as much later.
type line []tick.Waiting

func (l line) Len() int              { return len(l) }
func (l line) At(i int) tick.Waiting { return l[i] }

func (w State) waiting() (all line) {
	for _, kv := range w.under(readyDir) {
		r := decoded[tick.Ready](w, kv)
		all = append(all, tick.Waiting{Ready: r, Key: kv.Name, Rev: kv.Modified})
	}
	return all
}

func (w State) standing() tick.Standing {
	return tick.Standing{Keys: keys, Job: w.job(), Waiting: w.waiting(), History: tick.History{Limit: 20}, Now: at(w.minutes)}
}

// mayBegin follows sched/due.go.
func (w State) mayBegin(i int, plan tick.Plan) bool {
	p := w.procs[i]
	if w.Spread || p.refused || len(plan.Ticks) != 1 || p.run.phase != idle {
		return false
	}
	return w.Deaf || !slices.ContainsFunc(keys.Before(w.job()), func(dir string) bool { return len(w.under(dir)) > 0 })
}

// begins sends a prompt begin.
func (w State) begins(i int, plan tick.Plan) State {
	first := w.job().First(plan.Ticks[0])
	first.Missed = plan.Missed
	run := w.newRun(i, first)
	s := &tick.Prompt{
		Keys: keys, Job: w.job(), Mark: w.procs[i].mark, Plan: plan, Run: run, Value: tick.Encode(run), Guard: w.guard(i),
	}
	return w.waits(i).claims(i, prompt, s, run, s.Value, s.Build())
}

// orphans are the runs that the process would settle; see sched/orphan.go.
func (w State) orphans(i int) (all []*tick.Settle) {
	p := w.procs[i]
	for _, kv := range w.under(runDir) {
		r := decoded[tick.Run](w, kv)
		r = *r.At(kv.Modified)
		own := w.etcd.Get(layout.Own(r.Claim)).Modified
		switch p.run.phase {
		case beginning, running, ending:
			if p.run.run.Run == r.Run {
				continue
			}
		}
		if !tick.IsOrphan(own, kv.Modified) {
			continue
		}
		past := r.Past()
		past.Outcome, past.Fence, past.Ended = tick.Lost, kv.Modified, at(w.minutes)
		next := w.job().Plan(p.mark.At, at(w.minutes), time.Hour, 1)
		all = append(all, &tick.Settle{
			Standing: w.standing(), Run: r, Rev: kv.Modified, Past: past, Begun: !strings.Contains(p.never, r.Run+" "),
			Outdated: w.job().NewestOnly(r.ID) && !p.paused && p.mark.Rev != 0 && len(next.Ticks) > 0,
		})
	}
	return all
}
