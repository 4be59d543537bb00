package tick_test

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// follow are jobs that run after a: after success, failure and end, and one that runs after another job too.
func follow(string) []tick.Follower {
	return []tick.Follower{
		{Job: "s", Following: tick.Following{After: "a"}},
		{Job: "f", Following: tick.Following{After: "a", AfterOn: tick.OnFailure}},
		{Job: "e", Following: tick.Following{After: "a", AfterOn: tick.OnEnd}},
		{Job: "j", Following: tick.Following{AfterAll: []string{"a", "b"}}},
	}
}

// asked returns the jobs of which a tick is requested.
func (w *world) asked() string {
	w.Helper()
	var jobs []string
	for _, kv := range w.under(w.Asks()) {
		a, err := tick.Decode[tick.Ask](string(kv.Key), kv.Value)
		if err != nil || a.By != "a" || !a.At.Equal(at(1)) || a.After != tick.NominalID(at(1)) {
			w.Errorf("%+v, %v", a, err)
		}
		if a.Failed {
			a.Job += "!"
		}
		jobs = append(jobs, a.Job)
	}
	return strings.Join(jobs, " ")
}

// An end requests the ticks of the jobs that run after it, in whichever transaction it is recorded.
func TestFollow(t *testing.T) {
	t.Parallel()
	const failed = "e! f! j!"
	same := func(t *testing.T, w *world, want string) {
		t.Helper()
		words := strings.Fields(w.asked())
		for _, word := range strings.Fields(want) {
			if !strings.Contains(" "+strings.Join(words, " ")+" ", " "+word+" ") {
				t.Errorf("requested are %v, want %s", words, want)
			}
		}
		if len(words) != len(strings.Fields(want)) {
			t.Errorf("requested are %v, want %s", words, want)
		}
	}
	failing := func(run tick.Run, o tick.Outcome, again bool) (tick.Past, tick.Ready) {
		p := run.Past()
		p.Outcome, p.Ended, p.Again = o, at(3), again
		next := run.Again(p, "failed")
		if again {
			next.Last, next.Retries = nil, 1
		}
		return p, next
	}
	t.Run("success", func(t *testing.T) {
		w, run, rev := begun(t, nil)
		p, _ := failing(run, tick.OK, false)
		s := w.end(run, rev, p, nil)
		s.Followers = follow
		w.do(s.Build())
		same(t, w, "s e j")
	})
	t.Run("failure", func(t *testing.T) {
		w, run, rev := begun(t, nil)
		p, _ := failing(run, tick.Failed, false)
		s := w.end(run, rev, p, nil)
		s.Followers = follow
		w.do(s.Build())
		same(t, w, failed)
	})
	t.Run("another attempt", func(t *testing.T) {
		w, run, rev := begun(t, nil)
		p, next := failing(run, tick.Failed, true)
		s := w.end(run, rev, p, &next)
		s.Followers = follow
		w.do(s.Build())
		same(t, w, "")
		d := &tick.Drop{Standing: w.standing(at(9)), Tick: w.waiting()[0], Outcome: tick.Late}
		d.Followers = follow
		w.do(d.Build())
		same(t, w, failed) // the attempt that there was remains the last
	})
	t.Run("withdrawn", func(t *testing.T) {
		w, run, rev := begun(t, nil)
		p, next := failing(run, tick.Failed, true)
		w.do(w.end(run, rev, p, &next).Build())
		one := w.waiting()[0]
		s := &tick.Withdraw{
			Keys: w.Keys, Job: "a", Ticks: []tick.Waiting{one}, Past: []tick.Past{one.LeftOut(tick.Cancelled, at(3))},
			History: tick.History{Limit: w.job.History}, Followers: follow,
		}
		w.do(s.Build())
		same(t, w, failed)
	})
	t.Run("replaced as it ends", func(t *testing.T) {
		w, run, rev := begun(t, func(j *tick.Job) { j.Overlap = tick.CancelRunning })
		p, next := failing(run, tick.Failed, true)
		s := w.end(run, rev, p, &next)
		s.Followers = follow
		w.do(s.Build())
		same(t, w, failed)
	})
	t.Run("replaced as it waits", func(t *testing.T) {
		w := newWorld(t, func(j *tick.Job) { j.Overlap = tick.CancelRunning })
		w.admit(at(1))
		run, rev := w.begin()
		p, next := failing(run, tick.Failed, true)
		w.do(w.end(run, rev, p, &next).Build())
		s := w.admission(at(2))
		s.Followers = follow
		w.do(s.Build())
		same(t, w, failed)
	})
	t.Run("lost", func(t *testing.T) {
		w, run, rev := begun(t, nil)
		w.do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Delete([]byte("/e/own/" + run.Claim))}})
		p, _ := failing(run, tick.Lost, false)
		s := &tick.Settle{Standing: w.standing(at(3)), Run: run, Rev: rev, Past: p, Begun: true}
		s.Followers = follow
		w.do(s.Build())
		same(t, w, failed)
	})
	t.Run("not begun", func(t *testing.T) {
		w := newWorld(t, func(j *tick.Job) { j.StartDeadline = 1 })
		s := w.admission(at(1).Add(2))
		s.Followers = follow
		w.do(s.Build())
		if same(t, w, ""); w.has() != "late 1" {
			t.Error(w.has())
		}
	})
}

// Jobs whose ticks are left out at one instant, in one transaction, request ticks of one job under different keys.
func TestFollowLeftOutTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	p := tick.Waiting{Ready: tick.Ready{ID: tick.NominalID(at(1)), Nominal: at(1), Attempt: 2, Retries: 1}}.LeftOut(tick.Skipped, at(2))
	joins := func(string) []tick.Follower { return follow("")[3:] }
	w.do(&pb.TxnRequest{Success: append(w.Follow("a", joins, p), w.Follow("b", joins, p)...)})
	if n := len(w.under(w.Asks())); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// A request is outdated if the job runs after others by now, or after other ends of them.
func TestOutdated(t *testing.T) {
	t.Parallel()
	one, fail := tick.Following{After: "a"}, tick.Following{After: "a", AfterOn: tick.OnFailure}
	both, other := tick.Following{AfterAll: []string{"a", "b"}}, tick.Following{AfterAll: []string{"a", "c"}}
	end := tick.Following{AfterAll: []string{"a", "b"}, AfterOn: tick.OnEnd}
	for _, of := range []struct {
		by, now tick.Following
		defined int64
		want    bool
	}{
		{one, one, 0, false},
		{one, one, 7, false},
		{one, fail, 0, false}, // another process may have another version of the code
		{one, fail, 7, true},
		{one, both, 0, false},
		{both, both, 0, false},
		{both, both, 7, false},
		{both, one, 0, true},
		{both, one, 7, true},
		{both, other, 0, true},
		{both, end, 0, true},
		{both, tick.Following{}, 0, true},
	} {
		a := tick.Ask{By: "a", After: "x", Defined: of.defined, Join: of.by.Join()}
		if of.now.Outdated(a) != of.want {
			t.Errorf("by %+v, now %+v, of definition %d: want %t", of.by, of.now, of.defined, of.want)
		}
	}
	if one.Outdated(tick.Ask{By: "operator"}) {
		t.Error("RunNow is outdated")
	}
}

// A join is complete when each of its jobs has ended, and has the newest end of each.
func TestJoined(t *testing.T) {
	t.Parallel()
	end := func(by, id string, failed bool) tick.Ask { return tick.Ask{By: by, ID: id, Failed: failed} }
	a1, a2, b1, c1 := end("a", "1", true), end("a", "2", false), end("b", "1", false), end("c", "1", true)
	for _, of := range []struct {
		ends           []tick.Ask
		complete       bool
		ok, fail, both bool
	}{
		{[]tick.Ask{a1}, false, false, false, false},
		{[]tick.Ask{a1, a2, c1}, false, false, false, false},
		{[]tick.Ask{a1, b1}, true, false, true, true},
		{[]tick.Ask{b1, a1, a2}, true, true, false, true},
	} {
		for on, want := range map[string]bool{"": of.ok, tick.OnFailure: of.fail, tick.OnEnd: of.both} {
			f := tick.Following{AfterAll: []string{"a", "b"}, AfterOn: on}
			newest, complete, runs := f.Joined(of.ends)
			if complete != of.complete || runs != want || complete && (newest[0].By != "a" || newest[1].By != "b") {
				t.Errorf("%v, on %q: %v, %v, %v", of.ends, on, newest, complete, runs)
			}
		}
	}
}
