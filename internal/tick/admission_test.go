package tick_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
)

// Of two decisions about one mark only the first is carried out, and none while the job is paused.
func TestAdmissionOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(j *tick.Job) { j.Overlap = tick.BufferAll; j.Buffer = 9 })
	one, other := w.admission(at(1)), w.admission(at(1))
	if a := one.Judge(w.do(one.Build())); !a.Done || a.Mark != w.mark() || !a.Mark.At.Equal(at(1)) {
		t.Errorf("%+v, mark %+v", a, w.mark())
	}
	if a := other.Judge(w.do(other.Build())); a.Done || a.Fewer {
		t.Errorf("admitted twice: %+v", a)
	}
	late := w.admission(at(2))
	w.put(w.Paused("a"), tick.Encode(tick.Pause{Version: 1}))
	if a := late.Judge(w.do(late.Build())); a.Done {
		t.Errorf("admitted in a pause: %+v", a)
	}
	if got := w.has(); got != "ready 1, paused" {
		t.Error(got)
	}
}

// Each Overlap decides about the ticks of two minutes, of which the second comes due while the first
// waits or runs.
func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		overlap         tick.Overlap
		waiting, begun  string
		together, after string
	}{
		{tick.Skip, "ready 1, skipped 2", "run 1, skipped 2", "ready 1, skipped 2", "ready 2"},
		{tick.BufferOne, "ready 1, skipped 2", "ready 2, run 1", "ready 1, skipped 2", "ready 2"},
		{tick.BufferAll, "ready 1, ready 2", "ready 2, run 1", "ready 1, ready 2", "ready 2"},
		{tick.CancelRunning, "ready 2, skipped 1", "ready 2, run 1", "ready 2, skipped 1", "ready 2"},
		{tick.Allow, "ready 1, ready 2", "ready 2, run 1", "ready 1, ready 2", "ready 2"},
	} {
		change := func(j *tick.Job) { j.Overlap, j.Buffer = c.overlap, 2; j.CatchUp, j.CatchUpMax = tick.All, 9 }
		w := newWorld(t, change)
		w.admit(at(1))
		w.admit(at(2))
		if got := w.has(); got != c.waiting {
			t.Errorf("%v, waiting: %s", c.overlap, got)
		}
		w = newWorld(t, change)
		w.admit(at(1))
		w.begin()
		w.admit(at(2))
		if got := w.has(); got != c.begun {
			t.Errorf("%v, running: %s", c.overlap, got)
		}
		if cancelled := len(w.under(w.Newer("a"))) > 0; cancelled != (c.overlap == tick.CancelRunning) {
			t.Errorf("%v: the run is cancelled: %v", c.overlap, cancelled)
		}
		w = newWorld(t, change)
		if a := w.admit(at(2)); !a.Done || len(a.Waits)+len(a.Left) != 2 {
			t.Errorf("%v: %+v", c.overlap, a)
		}
		if got := w.has(); got != c.together {
			t.Errorf("%v, together: %s", c.overlap, got)
		}
		w = newWorld(t, func(j *tick.Job) { j.Overlap, j.Buffer = c.overlap, 2 })
		if a := w.admit(at(2)); !a.Gave || a.Waits[0].Ready.Missed != 1 {
			t.Errorf("%v: of two missed ones %+v", c.overlap, a)
		}
		if got := w.has(); got != c.after {
			t.Errorf("%v, the latest: %s", c.overlap, got)
		}
	}
}

// A full buffer leaves out a tick, unless the buffer has room in the meantime.
func TestBufferFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(j *tick.Job) { j.Overlap, j.Buffer = tick.BufferAll, 1 })
	w.admit(at(1))
	full := w.admission(at(2))
	w.begin()
	if a := full.Judge(w.do(full.Build())); !a.Done || len(a.Waits) != 1 {
		t.Errorf("the buffer had room: %+v", a)
	}
	if w.admit(at(3)); w.has() != "ready 2, run 1, skipped 3" {
		t.Error(w.has())
	}
}

// What nobody admitted in time is recorded, as CatchUp and StartDeadline require.
func TestMissedTicks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(j *tick.Job)
		now    time.Time
		want   string
	}{
		{func(j *tick.Job) { j.CatchUp = tick.SkipMissed }, at(3).Add(59 * time.Second), "ready 3"},
		{func(j *tick.Job) { j.CatchUp = tick.SkipMissed; j.StartDeadline = time.Second }, at(3).Add(59 * time.Second), "late 3"},
		{func(j *tick.Job) { j.CatchUp = tick.All; j.CatchUpMax = 2; j.Overlap = tick.Allow }, at(9), "ready 8, ready 9"},
		{func(j *tick.Job) {
			j.CatchUp = tick.All
			j.CatchUpMax = 9
			j.Window = time.Minute
			j.Overlap = tick.Allow
		}, at(9), "ready 8, ready 9"},
	} {
		w := newWorld(t, c.change)
		w.admit(c.now)
		if got := w.has(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// A request for a tick is served once.
func TestServeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.put(w.AsksOf("a")+"x", "request")
	of := w.job.First(at(5))
	s := tick.Serve{Standing: w.standing(at(1)), Requests: []tick.Asked{{Key: w.AsksOf("a") + "x", Rev: w.etcd.Revision()}}, Tick: of}
	in := s.Build()
	if d, ok := s.Judge(w.do(in)); !ok || len(d.Waits) != 1 {
		t.Errorf("%+v, %v", d, ok)
	}
	if _, ok := s.Judge(w.do(in)); ok || w.has() != "ready 5" {
		t.Errorf("served twice: %s", w.has())
	}
}

// A prompt tick begins under the guard of the owner's claim, and only with an empty line.
func TestPrompt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	prompt := func(minute int) tick.Prompt {
		run := tick.Run{Ready: w.job.First(at(minute)), Run: "r"}
		plan := w.job.Plan(w.mark().At, at(minute), time.Minute, 32)
		return tick.Prompt{Keys: w.Keys, Job: w.job, Mark: w.mark(), Plan: plan, Run: run, Value: tick.Encode(run)}
	}
	s := prompt(1)
	in := s.Build()
	r := w.do(in)
	if mark, run := s.Judge(r.Rev); !r.Succeeded || mark != w.mark() || run.Admitted != r.Rev {
		t.Errorf("%+v, %+v", mark, run)
	}
	if w.do(in).Succeeded || w.do(prompt(2).Build()).Succeeded {
		t.Error("it has begun twice, or beside another")
	}
	if got := w.has(); got != "run 1" {
		t.Error(got)
	}
}
