package tick_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/tick"
)

// Requests are removed together with their record, unless the last one was served meanwhile.
func TestRefuse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	one, two := w.AsksOf("a")+"1", w.AsksOf("a")+"2"
	w.put(one, "request")
	w.put(two, "request")
	p := tick.Past{ID: tick.NominalID(at(1)), Outcome: tick.Missed, Nominal: at(1), Missed: 2, Ended: at(1)}
	s := tick.Refuse{
		Keys: w.Keys, Job: "a", Requests: []string{one, two}, Rev: w.etcd.Revision(), Pause: &tick.Asked{Key: w.Paused("a"), Rev: 7},
		History: tick.History{Limit: w.job.History}, Past: &p,
	}
	if w.do(s.Build()).Succeeded {
		t.Error("refused for a pause that there is not")
	}
	s.Pause = nil
	if !w.do(s.Build()).Succeeded || len(w.under(w.AsksOf("a"))) > 0 || w.has() != "missed 1" {
		t.Errorf("%s, and %d requests are left", w.has(), len(w.under(w.AsksOf("a"))))
	}
	w.put(two, "request")
	if w.do(s.Build()).Succeeded || len(w.under(w.AsksOf("a"))) != 1 {
		t.Error("a newer request was removed")
	}
}

// Each tick that was cancelled is removed with a record, but for those that have begun.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(j *tick.Job) { j.Overlap = tick.BufferAll; j.Buffer = 9 })
	w.admit(at(1))
	w.admit(at(2))
	ticks := w.waiting()
	s := &tick.Withdraw{Keys: w.Keys, Job: "a", Ticks: ticks, History: tick.History{Limit: w.job.History}}
	for _, one := range ticks {
		s.Past = append(s.Past, one.LeftOut(tick.Cancelled, at(3)))
	}
	w.begin()
	each := s.Judge(w.do(s.Build()))
	if len(each) != 2 || each[0].Succeeded || !each[1].Succeeded {
		t.Errorf("%+v", each)
	}
	if got := w.has(); got != "run 1, cancelled 2" {
		t.Error(got)
	}
}

// What an owner says of a definition is stored while that is the one that it has.
func TestComplain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.put(w.Definition("a"), "definition")
	w.job.Defined = w.etcd.Revision()
	s := tick.Complain{Keys: w.Keys, Job: w.job, Spec: "problem"}
	in := s.Build()
	if !w.do(in).Succeeded || w.do(in).Succeeded {
		t.Error("it is stored once, over the specification that the owner knows")
	}
	s.SpecRev = w.etcd.Revision()
	w.put(w.Definition("a"), "another")
	if w.do(s.Build()).Succeeded {
		t.Error("stored although the definition has changed")
	}
}

// Each Overlap decides about a tick by how many wait and run.
func TestFits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		overlap          tick.Overlap
		waiting, running int
		fits, replaces   bool
	}{
		{tick.Skip, 0, 0, true, false},
		{tick.Skip, 0, 1, false, false},
		{tick.Skip, 1, 0, false, false},
		{tick.BufferOne, 0, 1, true, false},
		{tick.BufferOne, 1, 0, false, false},
		{tick.BufferAll, 1, 1, true, false},
		{tick.BufferAll, 2, 0, false, false},
		{tick.CancelRunning, 1, 1, true, true},
		{tick.Allow, 5, 5, true, false},
	} {
		j := tick.Job{Overlap: c.overlap, Buffer: 2}
		if fits, replaces := j.Fits(c.waiting, c.running); fits != c.fits || replaces != c.replaces {
			t.Errorf("overlap %d beside %d and %d: got %v, %v", c.overlap, c.waiting, c.running, fits, replaces)
		}
	}
}
