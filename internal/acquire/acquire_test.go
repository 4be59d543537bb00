package acquire

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A call tries again at once three times if it has learnt something, and more often for a key that others share.
// Before other tries it pauses.
func TestLoopPauses(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, tt := range []struct {
		name  string
		call  *Call
		not   Result // all but the last
		tries int
		waits bool
	}{
		{"first", exclusive("k"), Result{}, 1, false},
		{"learns three times", exclusive("k"), Result{Next: Retry}, 4, false},
		{"learns four times", exclusive("k"), Result{Next: Retry}, 5, true},
		{"of a shared key", shared("k"), Result{Next: Retry}, 33, false},
		{"of a shared key that changes all the time", shared("k"), Result{Next: Retry}, 34, true},
		{"fails for a while", shared("k"), Result{Next: Later, Err: failed}, 2, true},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			begun, tries := time.Now(), 0
			_, err := w.Loop(t.Context(), "k", tt.call, func(context.Context) Result {
				if tries++; tries < tt.tries {
					return tt.not
				}
				return Result{Err: errors.New("over")}
			})
			if err.Error() != "over" || tries != tt.tries || time.Since(begun) > 0 != tt.waits {
				t.Errorf("%v after %d tries in %v", err, tries, time.Since(begun))
			}
		})
	}
}

// What ends a call that would try for ever. It has the last reason and what ended it.
func TestLoopEnds(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, tt := range []struct {
		name  string
		until time.Duration
		ctx   time.Duration
		do    func(w *world)
		want  error
		after time.Duration
	}{
		{"its time is up", time.Second, time.Hour, func(*world) {}, context.DeadlineExceeded, time.Second},
		{"its context ends", time.Hour, time.Second, func(*world) {}, context.DeadlineExceeded, time.Second},
		{
			"the client is closed", time.Hour, time.Hour, func(w *world) { time.AfterFunc(time.Second, w.Life.Refuse) },
			claimerr.ErrClosed, time.Second,
		},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			ctx, cancel := context.WithTimeout(t.Context(), tt.ctx)
			defer cancel()
			tt.do(w)
			o, begun := exclusive("k"), time.Now()
			o.Until = begun.Add(tt.until)
			_, err := w.Loop(ctx, "k", o, func(context.Context) Result { return Result{Next: Later, Err: failed} })
			if d := time.Since(begun); !errors.Is(err, tt.want) || !errors.Is(err, failed) || d != tt.after {
				t.Errorf("%v after %v", err, d)
			}
		})
	}
	run(t, "its context has ended", func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := w.Try(ctx, "k", exclusive("k"))
		if !errors.Is(err, context.Canceled) || errors.Is(err, txn.ErrUnknown) || w.Steps() != "" {
			t.Error(err)
		}
	})
}

// A call with a key beside its claim prepares that before each attempt. What may pass is tried again.
func TestLoopPrepares(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		prepares []error
		want     string
		tries    int
	}{
		{"at once", nil, "unmet", 1},
		{"after a while", []error{rpctypes.ErrNoLeader, rpctypes.ErrNoLeader}, "unmet", 1},
		{"not at all", []error{txn.ErrPermissionDenied}, "denied", 0},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			o, p := w.beside("k")
			p.prepares = tt.prepares
			tries := 0
			_, err := w.Loop(t.Context(), "k", o,
				func(context.Context) Result { tries++; return Result{Err: claimerr.ErrRefused} })
			same(t, "outcome", outcome(err), tt.want)
			same(t, "tries", tries, tt.tries)
		})
	}
}

// A reentrant call has the claim of its own client: before it asks etcd, or after another call of the client was
// faster.
func TestReentrantCalls(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		reentrant := func() *Call {
			o := exclusive("k")
			o.Reentrant = true
			return o
		}
		tries := 0
		var a *Attempt
		_, err := w.Loop(t.Context(), "k", reentrant(), func(ctx context.Context) Result {
			if tries++; tries == 1 { // another call has the key in etcd, and does not know it yet
				o := exclusive("k")
				a = w.New(w.Open(t), o.Mode, o)
				a.S.Again()
				w.Put(layout.Own("k"), a.Value, a.Lease)
				return w.Alone(ctx, "k", reentrant(), w.TryOnce)
			}
			return Result{Err: errors.New("asked again")}
		})
		if err == nil || err.Error() != "asked again" || tries != 2 {
			t.Fatalf("%v after %d tries", err, tries)
		}
		r := w.Grant(t.Context(), a, w.rev())
		a.End()
		w.Steps()
		got, err := w.Try(t.Context(), "k", reentrant())
		same(t, "outcome", outcome(err), "won")
		same(t, "the same claim", got, r.Term)
		same(t, "sent", w.Steps(), "")
		w.Other(layout.Own("other"), "x")
		o := exclusive("other")
		o.Reentrant = true
		_, err = w.Try(t.Context(), "other", o)
		same(t, "another client's", outcome(err), "other: held by x")
	})
}

// A call with Supersede tries again while its own client is about to have the key, and not once that is another's.
func TestSupersedable(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		own := w.hold(t, exclusive("k"))
		for _, tt := range []struct {
			name  string
			claim string
			do    func()
			want  bool
		}{
			{"nobody's", "", func() {}, false},
			{"another's", "x", func() {}, false},
			{"under way", "y", func() { w.Keys.Register("y") }, true},
			{"held", own.ID, func() {}, true},
			{"given up", own.ID, func() { _ = own.Release(t.Context()) }, false},
		} {
			tt.do()
			same(t, tt.name, w.supersedable(&held{claim: tt.claim}, "k"), tt.want)
		}
	})
}

// A call with Supersede waits for what its own client is about to have.
func TestSupersedeTriesAgain(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		o, refusal := exclusive("k"), Result{Err: &held{claim: "y"}}
		o.Supersede = true
		same(t, "another's", w.afterOwn("k", o, refusal).Next, Stop)
		w.Keys.Register("y")
		same(t, "its own client's", w.afterOwn("k", o, refusal).Next, Later)
		o.Supersede = false
		same(t, "without it", w.afterOwn("k", o, refusal).Next, Stop)
	})
}

// rev returns the revision of etcd.
func (w *world) rev() (rev int64) {
	w.Etcd.With(func(m *memetcd.Model) { rev = m.Revision() })
	return rev
}

// What becomes of a claim that was granted when something has happened before its caller has it.
func TestGrant(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		do      func(w *world, a *Attempt, rev int64) // after the claim was put
		outcome string
		sent    string
		owner   string // at the end
	}{
		{"in time", func(*world, *Attempt, int64) {}, "won", "", "own"},
		{"its session is dead", func(_ *world, a *Attempt, _ int64) {
			a.S.Die(claimerr.Loss{Reason: claimerr.Expired})
		}, "lost", "", "own"}, // until etcd ends the lease
		{"the client is closed", func(w *world, _ *Attempt, _ int64) { w.Life.Refuse() }, "closed", "delete", ""},
		{
			"too late, then renewed", func(w *world, _ *Attempt, _ int64) { w.Slept.Store(int64(25 * time.Second)) },
			"won", "read", "own",
		},
		{"too late, and etcd does not answer", func(w *world, _ *Attempt, _ int64) {
			w.Slept.Store(int64(25 * time.Second))
			w.Answer(testlayers.Always(txn.ErrNoAnswer), nil)
			time.AfterFunc(1100*time.Millisecond, func() { w.Answer(nil, nil) })
		}, "lost", "", ""},
		{"too late, and deleted meanwhile", func(w *world, _ *Attempt, _ int64) {
			w.Slept.Store(int64(25 * time.Second))
			w.Remove(layout.Own("k"))
		}, "lost", "", ""},
		{"handed over before the last verification", func(_ *world, a *Attempt, rev int64) {
			_ = a.S.Renew(context.Background())
			a.HandedAt = rev
		}, "won", "read, read", "own"},
		{"handed over since", func(_ *world, a *Attempt, rev int64) {
			a.HandedAt = rev + 1
		}, "won", "", "own"},
		{"taken away, of which word has come", func(w *world, a *Attempt, _ int64) {
			w.Other(layout.Own("k"), "x")
			w.Keys.SetTaken(a.ID, "k", claimerr.Loss{Reason: claimerr.Superseded})
		}, "lost", "delete", "x"},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			s := w.Open(t)
			s.Again()
			o := exclusive("k")
			o.Until = time.Now().Add(time.Second)
			a := w.New(s, o.Mode, o)
			rev := w.Put(layout.Own("k"), a.Value, a.Lease)
			tt.do(w, a, rev)
			r := w.Grant(t.Context(), a, rev)
			a.End()
			same(t, "outcome", outcome(r.Err), tt.outcome)
			same(t, "a term", r.Term != nil, tt.outcome == "won")
			pass(time.Second)
			if sent := w.Steps(); tt.sent != "" || tt.outcome == "won" {
				same(t, "sent", sent, tt.sent)
			}
			pass(5 * time.Second)
			if tt.owner == "own" {
				tt.owner = a.ID
			}
			same(t, "owner", w.Owner("k").Claim, tt.owner)
		})
	}
}

// A claim that a ReleaseAll is giving up when its call could return it is not returned.
func TestGrantOfAClaimThatIsBeingReleased(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s, o := w.Open(t), exclusive("k")
		s.Again()
		a := w.New(s, o.Mode, o)
		defer a.End()
		claim := w.Add(a.grant(w.Put(layout.Own("k"), a.Value, a.Lease)))
		w.Answer(nil, func(*pb.TxnRequest) error { time.Sleep(time.Second); return nil })
		released := make(chan error, 1)
		go func() { released <- claim.Release(context.Background()) }()
		pass(time.Second / 2)
		got, err := w.Confirm(t.Context(), a, claim)
		same(t, "the claim", got, nil)
		if !errors.Is(err, claimerr.ErrReleased) {
			t.Errorf("%v, want ErrReleased", err)
		}
		w.Answer(nil, nil)
		pass(2 * time.Second)
		same(t, "release", <-released, nil)
		s.Unreserve()
		same(t, "owner", w.Owner("k").Claim, "")
	})
}

// Of two claims of one client on a key the younger one counts, in whatever order word of them comes.
func TestGrantOfTwo(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s, o := w.Open(t), exclusive("k")
		var rs [3]Result
		var revs [3]int64
		var as [3]*Attempt
		for i := range as {
			as[i] = w.New(s, o.Mode, o)
			defer as[i].End()
			s.Again()
			revs[i] = w.Put(layout.Own("k"), as[i].Value, as[i].Lease)
		}
		for _, i := range []int{1, 0, 2} {
			rs[i] = w.Grant(t.Context(), as[i], revs[i])
		}
		same(t, "the first", outcome(rs[0].Err), "lost")
		same(t, "the second", outcome(rs[1].Term.Err()), "lost")
		same(t, "the last", outcome(rs[2].Term.Err()), "won")
		pass(time.Second)
		same(t, "owner", w.Owner("k").Claim, as[2].ID)
	})
}

// A Manual claim begins with nearly all of its lease before it.
func TestManualClaimBeginsYoung(t *testing.T) {
	t.Parallel()
	for d, sent := range map[time.Duration]string{0: "", 5 * time.Second: "read"} {
		run(t, d.String(), func(t *testing.T, w *world) {
			s, o := w.Session(t), exclusive("k")
			a := w.New(s, o.Mode, o)
			defer a.End()
			pass(d)
			w.Put(layout.Own("k"), a.Value, a.Lease)
			r := w.Grant(t.Context(), a, w.rev())
			same(t, "outcome", outcome(r.Err), "won")
			same(t, "young", s.Young(), true)
			same(t, "sent", w.Steps(), sent)
		})
	}
}

// What a record in the way means: shared holders, or none any more.
func TestHeldByARecord(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(w *world)
		want string
	}{
		{"shared", func(*world) {}, "k: shared by 1"},
		{"its holders are gone", func(w *world) {
			w.Etcd.With(func(m *memetcd.Model) {
				for _, k := range m.Under("") {
					if k.Name != layout.Own("k") {
						m.Remove(k.Name)
					}
				}
			})
		}, "won"},
		{"etcd is away", func(w *world) { w.Answer(testlayers.Always(rpctypes.ErrNoLeader), nil) }, "won"},
		{"denied", func(w *world) { w.Answer(testlayers.Always(rpctypes.ErrPermissionDenied), nil) }, "denied"},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.hold(t, shared("k"))
			h := Holder{Key: "k"}
			w.Etcd.With(func(m *memetcd.Model) { h.Own = m.KV(layout.Own("k")) })
			tt.do(w)
			same(t, "outcome", outcome(w.HeldBy(t.Context(), h)), tt.want)
		})
	}
}
