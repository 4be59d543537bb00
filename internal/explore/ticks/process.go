package ticks

import (
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// runner are the events of the run of a process; see sched/starter.go and sched/execute.go.
func (w State) runner(i int) []event {
	p := w.procs[i]
	if !p.alive || p.gone || p.lease == 0 {
		return nil
	}
	one := func(tell string, do func() (State, error)) []event {
		return []event{{calm: true, tell: says(i, tell), do: do}}
	}
	switch p.run.phase {
	case idle:
		var all []event
		for _, of := range w.next(i) {
			all = append(all, one("begins a tick that waits", func() (State, error) {
				run := w.newRun(i, of.Ready)
				run.Admitted = of.AdmittedAt()
				s := &tick.Begin{Keys: keys, Tick: of, Ahead: w.ahead(of)}
				if w.Limit > 0 {
					s.Slots, run.Slots = w.freeSlot()
				}
				s.Run, s.Value = run, tick.Encode(run)
				next := w
				next.procs[i].tried = len(w.under(runDir)) > 0
				return next.claims(i, starting, s, run, s.Value, s.Build()), nil
			})...)
		}
		return all
	case undoing:
		return one("took back what its begin may have left", func() (State, error) { return w.undone(i), nil })
	case running:
		all := one("ends its run", func() (State, error) { return w.ends(i, false), nil })
		if p.run.end == nil && w.left.fails > 0 {
			less := w
			less.left.fails--
			tell := says(i, "ends its run, whose handler has failed")
			all = append(all, event{tell: tell, do: func() (State, error) { return less.ends(i, true), nil }})
		}
		return all
	case releasing:
		return one("gave up the claim of its run", func() (State, error) { return w.released(i), nil })
	}
	return nil
}

// next returns the tick that the process begins, or those of which it begins one, if it can as far as it sees.
func (w State) next(i int) []tick.Waiting {
	if !w.Spread && w.procs[i].term == 0 {
		return nil
	}
	all := w.waiting()
	if slots, _ := w.freeSlot(); w.Limit > 0 && slots == nil {
		return nil
	} else if w.Limit == 0 {
		all = all[:min(1, len(all))]
	}
	beside := len(w.under(runDir)) > 0 // which etcd refuses, unless the run is settled until then
	return slices.DeleteFunc(all, func(of tick.Waiting) bool {
		claim := tick.RunClaim(group, name, of.ID, !of.Parallel)
		return w.get(layout.Own(claim)) != nil || !of.Parallel && beside && w.procs[i].tried
	})
}

// freeSlot returns a slot that is free, nil for none; see sched/limits.go.
func (w State) freeSlot() ([]tick.Slot, map[string]int) {
	for n := w.Limit - 1; n >= 0; n-- {
		s := tick.Slot{Key: keys.Slot(limit, n)}
		kv := w.get(s.Key)
		if kv != nil {
			s.Rev, s.Value, s.Last = kv.Modified, string(kv.Value), decoded[tick.Holder](w, kv)
		}
		if kv == nil || w.etcd.Get(s.Last.Record(keys)).Modified != kv.Modified {
			return []tick.Slot{s}, map[string]int{limit: n}
		}
	}
	return nil, nil
}

// ahead are the keys at which the ticks of the recorded runs would wait again, of those that are before a tick.
func (w State) ahead(of tick.Waiting) (all []string) {
	for _, k := range w.under(runDir) {
		if r := decoded[tick.Run](w, k); !of.Parallel && r.Nominal.Before(of.Nominal) {
			all = append(all, keys.Ready(name, r.ID))
		}
	}
	return all
}

func (w State) newRun(i int, of tick.Ready) tick.Run {
	claim := tick.RunClaim(group, name, of.ID, !of.Parallel)
	return tick.Run{Ready: of, Claim: claim, Run: w.id(i, "r"), Owner: string(rune('A' + i)), Instance: w.id(i, ""), Began: at(w.minutes)}
}

// claims sends the acquisition of the claim of a run.
func (w State) claims(i int, of kind, step any, r tick.Run, value string, add *pb.TxnRequest) State {
	t, in := w.claim(i, r.Run, r.Claim, add)
	p := &w.procs[i]
	p.sent++
	p.run = run{phase: beginning, run: &r, value: value, lease: p.lease, try: t}
	return w.send(i, of, step, in)
}

// begun has the process call its handler.
func (w State) begun(i int, r *tick.Run, rev int64) (State, error) {
	p := &w.procs[i]
	p.run.phase, p.run.run, p.run.rev = running, r, rev
	n, attempt := number(r.ID), int8(1)<<r.Attempt
	if w.told.called[n]&attempt != 0 {
		return w, fmt.Errorf("the handler is called twice for attempt %d of tick %d", r.Attempt, n)
	}
	w.told.called[n] |= attempt
	return w, nil
}

// notBegun has the process hear that its run did not begin.
func (w State) notBegun(i int) State {
	w.procs[i].run = run{}
	return w
}

// undone takes back a begin whose reply was lost; see acquire/undo.go. What may still arrive is void.
func (w State) undone(i int) State {
	p := &w.procs[i]
	p.never += p.run.run.Run + " "
	r := protocol.Undo{Try: p.run.try, Unsure: true}.Build()
	void := txn.Put([]byte(layout.Void(r.Void.Ticket)), txn.VoidValue, int64(r.Void.Lease)) // as the batcher does
	r.In.Failure = append(r.In.Failure, void)
	if next, _, err := w.etcd.Txn(r.In); err == nil { // else the lease is gone, and all that is on it
		w.etcd = next
	}
	p.run = run{}
	return w.compact()
}

// held is the claim of the run.
func (w State) held(i int) *protocol.Held {
	r := w.procs[i].run
	h := protocol.NewHeld(r.try, r.rev)
	h.Lease = r.lease
	return &h
}

// ends sends the end of the run: the handler has returned. Each try has the same record; see
// sched/execute.go: finish.
func (w State) ends(i int, fails bool) State {
	p := &w.procs[i]
	if p.run.end == nil {
		p.run.ended, p.run.fails = w.minutes, fails
		past := p.run.run.Past()
		past.Outcome, past.Fence, past.Ended = tick.OK, p.run.rev, at(w.minutes)
		p.run.end = &tick.End{
			Keys: keys, Job: w.job(), Run: *p.run.run, Value: p.run.value, Began: p.run.rev, Past: past, History: tick.History{Limit: 20},
		}
		if fails { // see sched/execute.go: retried
			past.Outcome, past.Again = tick.Failed, true
			next := p.run.run.Again(past, "failed")
			next.Last, next.After = nil, past.Ended
			next.Retries++
			p.run.end.Past, p.run.end.Next = past, &next
		}
	}
	s := *p.run.end
	p.run.phase = ending
	return w.send(i, end, &s, s.Build(), w.held(i).Guard()...)
}

// released gives up the claim of the run, if it is still held.
func (w State) released(i int) State {
	r := protocol.Release{Held: w.held(i)}.Free()
	if next, _, err := w.etcd.Txn(r.In); err == nil {
		w.etcd = next
	}
	w.procs[i].run = run{}
	return w.compact()
}

// abandon has the process hear that the claim of its run is lost.
func (w State) abandon(i int) State {
	w.procs[i].run = run{}
	return w
}

// living are the events of the life of a process.
func (w State) living(i int) (all []event) {
	p := w.procs[i]
	add := func(calm bool, tell string, do func() (State, error)) {
		all = append(all, event{calm: calm, tell: says(i, tell), do: do})
	}
	switch {
	case p.gone:
		return nil
	case !p.alive:
		add(true, "began anew", func() (State, error) {
			next := w
			next.procs[i] = process{life: p.life + 1, alive: true}
			return next.session(i), nil
		})
		return all
	case p.lease != 0 && !w.hasLease(i):
		add(true, "noticed that its lease is gone", func() (State, error) { return w.noticed(i), nil })
		return all
	}
	if w.left.ends > 0 {
		less := w
		less.left.ends--
		add(false, "died", func() (State, error) {
			next := less.strays(i)
			next.procs[i] = process{life: p.life, lease: 0}
			return next, nil
		})
		add(false, "lost its lease, and does not know yet", func() (State, error) {
			next := less
			next.etcd, _ = next.etcd.Revoke(p.lease)
			return next.compact(), nil
		})
	}
	return all
}

// strays has nobody wait for the requests of a process.
func (w State) strays(i int) State {
	w.flying = slices.Clone(w.flying)
	w.flying = slices.DeleteFunc(w.flying, func(r request) bool { return int(r.proc) == i && r.reply != nil })
	for n := range w.flying {
		if int(w.flying[n].proc) == i {
			w.flying[n].waited = false
		}
	}
	return w
}

// noticed has a process lose all its claims, and open another session.
func (w State) noticed(i int) State {
	w = w.strays(i)
	p := &w.procs[i]
	switch p.run.phase {
	case beginning, undoing: // a begin whose reply was lost
		p.never += p.run.run.Run + " "
	}
	p.run = run{}
	return w.dethroned(i).session(i)
}

// fresh returns the next number of a process, of a kind.
func (w State) fresh(i int, kind int64) int64 {
	return kind + 1_000_000*int64(i) + 10_000*int64(w.procs[i].life) + int64(w.procs[i].sent)
}

// session opens a session.
func (w State) session(i int) State {
	p := &w.procs[i]
	p.sent++
	p.lease = w.fresh(i, values.Leases)
	next, err := w.etcd.Grant(p.lease)
	if err != nil {
		panic(err)
	}
	w.etcd = next
	return w
}

// outside is what operators, the clock and etcd do.
func (w State) outside() (all []event) {
	add := func(calm bool, tell string, do func() (State, error)) {
		all = append(all, event{calm, func() string { return tell }, do})
	}
	for _, id := range w.etcd.Leases() {
		if !slices.ContainsFunc(w.procs[:], func(p process) bool { return p.lease == id }) {
			add(true, "the lease of a process that died expired", func() (State, error) {
				next := w
				next.etcd, _ = next.etcd.Revoke(id)
				return next.compact(), nil
			})
		}
	}
	paused, high := w.get(pausedKey), w.get(highKey)
	if paused != nil && high != nil {
		add(true, "an operator resumed the job", func() (State, error) { return w.resumed(paused.Modified), nil })
	}
	change := func(left *int8, tell string, op *pb.RequestOp, deletes bool) {
		if *left == 0 {
			return
		}
		*left--
		next := w
		*left++
		add(false, tell, func() (State, error) {
			next.etcd, _, _ = next.etcd.Txn(&pb.TxnRequest{Success: []*pb.RequestOp{op}})
			next.told.reset = next.told.reset || deletes
			return next.compact(), nil
		})
	}
	if w.get(ownerKey) != nil {
		change(&w.left.forced, "an operator took the ownership away", txn.Delete([]byte(ownerKey)), false)
	}
	if paused == nil {
		change(&w.left.pauses, "an operator paused the job", txn.Put([]byte(pausedKey), tick.Encode(tick.Pause{Version: 1}), int64(0)), false)
	}
	if high != nil {
		change(&w.left.deleted, "an operator deleted the mark", txn.Delete([]byte(highKey)), true)
	}
	if int(w.minutes) < w.Ticks {
		add(true, "a minute passed", func() (State, error) {
			next := w
			next.minutes++
			return next, nil
		})
	}
	return all
}

// resumed carries out what sched/operate.go sends for Resume.
func (w State) resumed(rev int64) State {
	high := w.get(highKey)
	to, _ := tick.Instant([]byte(high.Value))
	s := tick.Resume{Keys: keys, Job: name, PauseRev: rev, Mark: tick.Mark{At: to, Rev: high.Modified}, To: at(w.minutes)}
	for n := 1; n <= int(w.minutes); n++ {
		w.told.exempt[n] = w.told.exempt[n] || !w.told.decided[n]
		w.told.decided[n] = true
	}
	w.etcd, _, _ = w.etcd.Txn(s.Build())
	return w.compact()
}

// leave has the processes go at the end of a calm run.
func (w State) leave() []event {
	for i, p := range w.procs {
		if !p.gone && p.alive {
			return []event{{calm: true, tell: says(i, "left"), do: func() (State, error) {
				next := w
				next.etcd, _ = next.etcd.Revoke(p.lease)
				next.procs[i].gone, next.procs[i].lease = true, 0
				next.procs[i].term = 0
				return next.compact(), nil
			}}}
		}
	}
	return nil
}
