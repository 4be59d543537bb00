package tick_test

import (
	"errors"
	"testing"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// begun is a world in which the tick of minute 1 runs and that of minute 2 waits.
func begun(t *testing.T, change func(j *tick.Job)) (w *world, run tick.Run, rev int64) {
	t.Helper()
	w = newWorld(t, func(j *tick.Job) {
		j.Overlap, j.Buffer = tick.BufferAll, 9
		if change != nil {
			change(j)
		}
	})
	w.admit(at(1))
	run, rev = w.begin()
	w.admit(at(2))
	return w, run, rev
}

// A tick begins once, not beside a run of its job, not after a Cancel, and not before an earlier one.
func TestBegin(t *testing.T) {
	t.Parallel()
	w, _, rev := begun(t, nil)
	if rev == 0 || w.has() != "ready 2, run 1" {
		t.Fatal(w.has())
	}
	if _, rev := w.begin(); rev != 0 {
		t.Error("it has begun beside another")
	}
	w = newWorld(t, func(j *tick.Job) { j.Overlap, j.Buffer = tick.BufferAll, 9; j.CatchUp, j.CatchUpMax = tick.All, 9 })
	w.admit(at(2))
	ahead := w.waiting()[1].Key
	if _, rev := w.begin(ahead); rev != 0 {
		t.Error("it has begun before the one ahead")
	}
	w.put(w.Withdraw("a"), "cancel")
	if _, rev := w.begin(); rev != 0 {
		t.Error("it has begun after a Cancel")
	}
	first := tick.Begin{Keys: w.Keys, Tick: w.waiting()[0]}
	if kvs := w.under(first.Tick.Key); !first.MayFollow(kvs) || first.MayFollow(nil) {
		t.Error("whether it can begin later depends on whether it waits")
	}
}

func (w *world) end(run tick.Run, rev int64, p tick.Past, next *tick.Ready) *tick.End {
	return &tick.End{
		Keys: w.Keys, Job: w.job, Run: run, Value: tick.Encode(run), Began: rev, Past: p, Next: next,
		History: tick.History{Limit: w.job.History},
	}
}

// The end of a run is known also if the reply to its first request was lost.
func TestEndTwice(t *testing.T) {
	t.Parallel()
	w, run, rev := begun(t, nil)
	p := run.Past()
	p.Outcome, p.Ended = tick.OK, at(3)
	s := w.end(run, rev, p, nil)
	in := s.Build()
	if e, err := s.Judge(w.do(in)); err != nil || !e.Done || !e.Now || w.has() != "ready 2, ok 1" {
		t.Errorf("%+v, %v: %s", e, err, w.has())
	}
	if e, err := s.Judge(w.do(in)); err != nil || !e.Done || e.Now || e.Past.Outcome != tick.OK {
		t.Errorf("the second time: %+v, %v", e, err)
	}
	other := p
	other.Ended = at(4)
	s = w.end(run, rev, other, nil)
	if _, err := s.Judge(w.do(s.Build())); !errors.Is(err, tick.ErrNoRun) {
		t.Errorf("of a run that is gone: %v", err)
	}
}

// A tick that would wait again does not after a Cancel.
func TestEndWithdrawn(t *testing.T) {
	t.Parallel()
	w, run, rev := begun(t, nil)
	p := run.Past()
	p.Outcome, p.Ended, p.Again = tick.Failed, at(3), true
	next := run.Again(p, "failed")
	s := w.end(run, rev, p, &next)
	in := s.Build()
	w.put(w.Withdraw("a"), tick.Encode(tick.Cancelling{Version: 1, By: "me", Note: "enough"}))
	if e, err := s.Judge(w.do(in)); err != nil || e.Done || s.Next != nil || s.Past.Again {
		t.Fatalf("%+v, %v, then %+v", e, err, s.Past)
	}
	if e, err := s.Judge(w.do(s.Build())); err != nil || !e.Done || e.Past.Error != "not tried again; cancelled by me: enough" {
		t.Errorf("%+v, %v", e, err)
	}
	if got := w.has(); got != "ready 2, failed 1" {
		t.Error(got)
	}
}

// With CancelRunning a tick that would wait again gives way to a newer one.
func TestEndReplaced(t *testing.T) {
	t.Parallel()
	w, run, rev := begun(t, func(j *tick.Job) { j.Overlap = tick.CancelRunning })
	p := run.Past()
	p.Outcome, p.Ended = tick.Lost, at(3)
	next := run.Again(p, "was interrupted")
	s := w.end(run, rev, p, &next)
	if e, err := s.Judge(w.do(s.Build())); err != nil || !e.Now || e.Waits != nil || w.has() != "ready 2, lost 1" {
		t.Errorf("%+v, %v: %s", e, err, w.has())
	}
}

// What a dead owner leaves behind is recorded or begins again, as the job requires.
func TestSettle(t *testing.T) {
	t.Parallel()
	again := func(j *tick.Job) { j.Again = true }
	for name, c := range map[string]struct {
		change func(j *tick.Job)
		step   func(s *tick.Settle)
		want   string
	}{
		"at most once":    {nil, nil, "ready 2, lost 1"},
		"at least once":   {again, nil, "ready 1, ready 2"},
		"too often":       {again, func(s *tick.Settle) { s.Run.Attempt = 2 }, "ready 2, lost 1"},
		"never begun":     {nil, func(s *tick.Settle) { s.Begun = false }, "ready 1, ready 2"},
		"withdrawn":       {again, func(s *tick.Settle) { s.By = tick.Withdrawal{Rev: s.Rev + 1} }, "ready 2, lost 1"},
		"withdrawn unrun": {nil, func(s *tick.Settle) { s.Begun = false; s.By = tick.Withdrawal{Rev: s.Rev + 1} }, "ready 2, cancelled 1"},
		"outdated":        {again, func(s *tick.Settle) { s.Outdated = true }, "ready 2, lost 1"},
		"replaced":        {func(j *tick.Job) { j.Again, j.Overlap = true, tick.CancelRunning }, nil, "ready 2, lost 1"},
	} {
		w, run, rev := begun(t, c.change)
		p := run.Past()
		p.Outcome, p.Ended = tick.Lost, at(3)
		s := &tick.Settle{Standing: w.standing(at(3)), Run: run, Rev: rev, Past: p, Begun: true}
		if c.step != nil {
			c.step(s)
		}
		note := s.Keys.Stuck(run.Job, run.ID) // the owner may not have heard of it
		w.do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Put([]byte(note), "", int64(0))}})
		in := s.Build()
		if d := s.Judge(w.do(in)); d.Done {
			t.Errorf("%s: settled although its claim is held: %+v", name, d)
		}
		own := keyspace.Own("/e/", run.Claim)
		if kvs := w.under(own); tick.IsOrphan(kvs[0].ModRevision, rev) || !tick.IsOrphan(0, rev) {
			t.Errorf("%s: by the claim it is not known whether it is an orphan", name)
		}
		w.do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Delete([]byte(own))}})
		d := s.Judge(w.do(in))
		if left := w.under(note); len(left) != 0 {
			t.Errorf("%s: left: %v", name, left)
		}
		if got := w.has(); !d.Done || got != c.want || (d.Waits != nil) == (d.Left != nil) {
			t.Errorf("%s: %s, want %s: %+v", name, got, c.want, d)
		}
		if d := s.Judge(w.do(in)); d.Done {
			t.Errorf("%s: settled twice", name)
		}
	}
}

// Failures in a row pause the job, and a count that another process has changed is not overwritten.
func TestTally(t *testing.T) {
	t.Parallel()
	fails := func(w *world, run tick.Run, rev int64, f tick.Counted) (*tick.End, *pb.TxnRequest) {
		p := run.Past()
		p.Outcome, p.Ended, p.Error = tick.Failed, at(3), "broken"
		s := w.end(run, rev, p, nil)
		if !s.Tallies() {
			t.Error("a failure is not counted")
		}
		s.Tally = w.CountEnd(w.job, f, s.Left(), rev)
		return s, s.Build()
	}
	w, run, rev := begun(t, func(j *tick.Job) { j.PauseOnFailure = 2 })
	s, in := fails(w, run, rev, tick.Counted{Failures: tick.Failures{InARow: 1}, Rev: 99})
	if e, err := s.Judge(w.do(in)); err != nil || e.Done {
		t.Errorf("counted from what is out of date: %+v, %v", e, err)
	}
	s, in = fails(w, run, rev, tick.Counted{Failures: tick.Failures{InARow: 1}})
	if e, err := s.Judge(w.do(in)); err != nil || !e.Paused || w.has() != "ready 2, failed 1, paused" {
		t.Errorf("%+v, %v: %s", e, err, w.has())
	}
}
