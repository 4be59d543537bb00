package history_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/history"
)

// script is a history written like a story: each line happens after the one before.
type script struct{ *history.History }

func tok(fence int64) fencing.Token { return fencing.Token{Key: "k", Fence: fence} }

func (h script) grant(process string, fence int64)   { h.Acquire(process, "k").Granted(fence) }
func (h script) release(process string, fence int64) { h.Release(process, tok(fence)).Done() }
func (h script) write(process string, fence int64)   { h.Effect(process, tok(fence)).Done() }
func (h script) writeStale(process string, fence int64) {
	h.Effect(process, tok(fence)).Refused()
}

// rulesOf returns the rules that the history breaks.
func rulesOf(t *testing.T, h *history.History, opts history.Checks) []history.Rule {
	t.Helper()
	err := h.Check(opts)
	if err == nil {
		return nil
	}
	var vs history.Violations
	if !errors.As(err, &vs) || len(vs) == 0 {
		t.Fatalf("not Violations: %v", err)
	}
	var rules []history.Rule
	for _, v := range vs {
		if !slices.Contains(rules, v.Rule) {
			rules = append(rules, v.Rule)
		}
		if v.Detail == "" || len(v.Lines) == 0 && v.Rule != history.Undecided {
			t.Errorf("a violation that shows nothing: %v", v)
		}
	}
	return rules
}

// Each fault is caught, by the rule that is for it, and its innocent twin is
// not. Times are of a bubble: all at one instant, where nobody sleeps.
func TestRules(t *testing.T) {
	const grace = 2 * time.Second
	for _, c := range []struct {
		name  string
		story func(h script)
		want  []history.Rule
	}{
		{"two owners", func(h script) {
			h.grant("a", 1)
			h.grant("b", 2)
		}, []history.Rule{history.OneOwner}},
		{"two owners one after the other", func(h script) {
			h.grant("a", 1)
			h.release("a", 1)
			h.grant("b", 2)
		}, nil},
		{"a double grant that the fence makes harmless", func(h script) {
			h.grant("a", 1)
			h.grant("b", 2)
			h.write("b", 2)
			h.writeStale("a", 1)
			h.Ended("a", tok(1))
			h.release("b", 2)
		}, []history.Rule{history.OneOwner}},
		{"a loss that its owner noticed in time", func(h script) {
			h.grant("a", 1)
			h.Ended("a", tok(1))
			h.grant("b", 2)
			h.write("b", 2)
			h.writeStale("a", 1)
			h.release("b", 2)
		}, nil},
		{"a loss noticed before the grant was reported", func(h script) {
			c := h.Acquire("a", "k")
			h.Ended("a", tok(1))
			c.Granted(1)
			h.grant("b", 2)
		}, nil},
		{"a release that has begun ends the belief", func(h script) {
			h.grant("a", 1)
			r := h.Release("a", tok(1))
			h.grant("b", 2)
			r.Done()
		}, nil},
		{"a release that failed does not", func(h script) {
			h.grant("a", 1)
			h.Release("a", tok(1)).Failed()
			h.grant("b", 2)
		}, []history.Rule{history.OneOwner}},
		{"a release that failed, and was tried again", func(h script) {
			h.grant("a", 1)
			h.Release("a", tok(1)).Failed()
			h.release("a", 1)
			h.grant("b", 2)
		}, nil},
		{"a reply on its way is no belief", func(h script) {
			h.grant("a", 1)
			b := h.Acquire("b", "k") // called while a holds: it waits
			h.release("a", 1)
			b.Granted(2)
		}, nil},
		{"a process that died believes nothing", func(h script) {
			h.grant("a", 1)
			h.Died("a")
			h.grant("b", 2)
		}, nil},
		{"a process that was born again does", func(h script) {
			h.Died("a")
			h.grant("a", 1)
			h.grant("b", 2)
		}, []history.Rule{history.OneOwner}},
		{"a grant that the dead cannot hear of", func(h script) {
			a := h.Acquire("a", "k")
			h.Died("a")
			a.Granted(1)
			h.grant("b", 2)
		}, nil},
		{"two keys are two", func(h script) {
			h.grant("a", 1)
			h.Acquire("b", "l").Granted(1)
		}, nil},

		{"taken away, and believed for as long as allowed", func(h script) {
			h.grant("a", 1)
			h.Taken("k")
			h.grant("b", 2)
			h.Checked("a", tok(1))
			time.Sleep(grace)
			h.Ended("a", tok(1))
		}, nil},
		{"taken away, and believed for longer", func(h script) {
			h.grant("a", 1)
			h.Taken("k")
			h.grant("b", 2)
			time.Sleep(grace + time.Nanosecond)
			h.Ended("a", tok(1))
		}, []history.Rule{history.OneOwner}},
		{"taken away, and checked for longer", func(h script) {
			h.grant("a", 1)
			h.Taken("k")
			time.Sleep(grace + time.Nanosecond)
			h.grant("b", 2)
			h.release("b", 2)
			h.Checked("a", tok(1))
			h.Ended("a", tok(1))
		}, []history.Rule{history.OneOwner, history.Linearizable}},
		{"taken too late to be an excuse", func(h script) {
			h.grant("a", 1)
			h.grant("b", 2)
			h.Taken("k")
			h.Ended("a", tok(1))
		}, []history.Rule{history.OneOwner}},
		{"taken before it was asked for", func(h script) {
			h.Taken("k")
			h.grant("a", 1)
			h.grant("b", 2)
		}, []history.Rule{history.OneOwner}},
		{"taken from the successor", func(h script) {
			h.grant("a", 1)
			h.Taken("k")
			h.grant("b", 2)
			time.Sleep(grace / 2)
			h.Taken("k")
			time.Sleep(grace/2 + time.Nanosecond)
			h.Ended("a", tok(1))
			h.Ended("b", tok(2))
			h.grant("c", 3)
		}, []history.Rule{history.OneOwner}},
		{"taken between a grant and the news of it", func(h script) {
			a := h.Acquire("a", "k")
			h.Taken("k")
			h.grant("b", 2)
			a.Granted(1)
			h.Ended("a", tok(1))
		}, nil},
		{"taken from both", func(h script) {
			h.grant("a", 1)
			h.Taken("k")
			h.grant("b", 2)
			h.Taken("k")
			h.grant("c", 3)
		}, nil},
		{"taken perhaps", func(h script) {
			h.grant("a", 1)
			h.Take("k").Unknown()
			time.Sleep(time.Hour)
			h.grant("b", 2)
		}, nil},
		{"not taken", func(h script) {
			h.grant("a", 1)
			h.Take("k").Failed()
			h.grant("b", 2)
		}, []history.Rule{history.OneOwner}},

		{"a fence that falls", func(h script) {
			h.grant("a", 2)
			h.release("a", 2)
			h.grant("b", 1)
		}, []history.Rule{history.FencesRise, history.Linearizable}},
		{"a fence granted twice", func(h script) {
			h.grant("a", 2)
			h.release("a", 2)
			h.grant("b", 2)
		}, []history.Rule{history.FencesRise, history.Linearizable}},
		{"a fence of zero", func(h script) { h.grant("a", 0) }, []history.Rule{history.FencesRise, history.Linearizable}},
		{"fences of calls that overlap", func(h script) {
			a, b := h.Acquire("a", "k"), h.Acquire("b", "k")
			b.Granted(2)
			h.release("b", 2)
			a.Granted(1)
			h.Ended("a", tok(1))
		}, nil},

		{"a stale write that was accepted", func(h script) {
			h.grant("a", 1)
			h.Ended("a", tok(1))
			h.grant("b", 2)
			h.write("a", 1)
			h.release("b", 2)
		}, []history.Rule{history.Linearizable}},
		{"a stale write that was refused", func(h script) {
			h.grant("a", 1)
			h.Ended("a", tok(1))
			h.grant("b", 2)
			h.writeStale("a", 1)
			h.release("b", 2)
		}, nil},
		{"a write that was under way when its owner fell", func(h script) {
			h.grant("a", 1)
			w := h.Effect("a", tok(1))
			h.Ended("a", tok(1))
			h.grant("b", 2)
			w.Done()
		}, nil},
		{"a write after the end, and nobody came", func(h script) {
			h.grant("a", 1)
			h.Ended("a", tok(1))
			h.write("a", 1)
			h.grant("b", 2)
		}, nil},
		{"a write between two refusals", func(h script) {
			h.grant("a", 1)
			h.writeStale("a", 1)
			h.write("a", 1)
			h.writeStale("a", 1)
		}, []history.Rule{history.Linearizable}},
		{"two writes at a time, and the first is refused", func(h script) {
			h.grant("a", 1)
			v, w := h.Effect("a", tok(1)), h.Effect("a", tok(1))
			v.Refused()
			w.Done()
			h.Ended("a", tok(1))
		}, nil},
		{"two writes at a time, and the second is refused", func(h script) {
			h.grant("a", 1)
			v, w := h.Effect("a", tok(1)), h.Effect("a", tok(1))
			v.Done()
			w.Refused()
			h.Ended("a", tok(1))
		}, nil},
		{"what the dead are told", func(h script) {
			h.grant("a", 1)
			w := h.Effect("a", tok(1))
			h.Died("a")
			w.Refused()
			h.write("b", 1) // by whom it left the token to
		}, nil},
		{"what the living are told", func(h script) {
			h.grant("a", 1)
			h.Effect("a", tok(1)).Refused()
			h.Died("a")
			h.write("b", 1)
		}, []history.Rule{history.Linearizable}},
		{"a write between two that failed otherwise", func(h script) {
			h.grant("a", 1)
			h.Effect("a", tok(1)).Failed()
			h.Effect("a", tok(1)).Lost()
			h.write("a", 1)
			h.Effect("a", tok(1)).Failed()
		}, nil},
		{"a write refused under a claim that held", func(h script) {
			h.grant("a", 1)
			h.writeStale("a", 1)
			h.release("a", 1)
		}, []history.Rule{history.Linearizable}},
		{"a write under a fence of nobody's", func(h script) { h.write("a", 7) }, []history.Rule{history.Linearizable}},
		{"a write that is unknown", func(h script) {
			h.grant("a", 1)
			w := h.Effect("a", tok(1))
			h.Ended("a", tok(1))
			h.grant("b", 2)
			w.Unknown()
			h.Effect("a", tok(1)).Unknown()
		}, nil},

		{"checked while another owns", func(h script) {
			h.grant("a", 1)
			h.Ended("a", tok(1))
			h.grant("b", 2)
			h.Checked("a", tok(1))
			h.release("b", 2)
		}, []history.Rule{history.Linearizable}},
		{"checked after a release, and taken too late to be an excuse", func(h script) {
			h.grant("a", 1)
			h.release("a", 1)
			h.Checked("a", tok(1))
			h.Taken("k")
		}, []history.Rule{history.Linearizable}},
		{"checked while the owner", func(h script) {
			h.grant("a", 1)
			h.Checked("a", tok(1))
			h.write("a", 1)
			h.Checked("a", tok(1))
			h.Ended("a", tok(1))
			h.grant("b", 2)
			h.release("b", 2)
		}, nil},

		{"a release of what another owns", func(h script) {
			h.grant("a", 1)
			h.Ended("a", tok(1))
			h.grant("b", 2)
			h.release("a", 1)
			h.release("b", 2)
		}, []history.Rule{history.Linearizable}},
		{"a release of what another owns, refused", func(h script) {
			h.grant("a", 1)
			h.Ended("a", tok(1))
			h.grant("b", 2)
			h.Release("a", tok(1)).Refused()
			h.release("b", 2)
		}, nil},
		{"a release of what was taken, with a lost reply", func(h script) {
			h.grant("a", 1)
			h.Taken("k")
			h.grant("b", 2)
			h.release("a", 1)
			h.release("b", 2)
		}, nil},
		{"a release that did not release", func(h script) {
			h.grant("a", 1)
			h.release("a", 1)
			h.write("a", 1)
		}, []history.Rule{history.Linearizable}},
		{"a release of what was taken that did not release", func(h script) {
			h.grant("a", 1)
			h.Taken("k")
			h.release("a", 1)
			h.write("a", 1)
		}, []history.Rule{history.Linearizable}},
		{"a release that perhaps did not release", func(h script) {
			h.grant("a", 1)
			h.Release("a", tok(1)).Unknown()
			h.write("a", 1)
			h.grant("b", 2)
		}, nil},
		{"a release that perhaps did, and then surely had", func(h script) {
			h.grant("a", 1)
			h.Release("a", tok(1)).Unknown()
			h.grant("b", 2)
			h.write("a", 1)
		}, []history.Rule{history.Linearizable}},
		{"a second release says nothing", func(h script) {
			h.grant("a", 1)
			h.Release("a", tok(1)).Unknown()
			h.grant("b", 2)
			h.release("a", 1)
			h.write("b", 2)
		}, nil},
		{"a hand-over told of by its receiver first", func(h script) {
			h.grant("a", 1)
			b := h.Acquire("b", "k")
			r := h.Release("a", tok(1))
			b.Granted(2)
			h.write("b", 2)
			h.release("b", 2)
			r.Done()
		}, nil},

		{"a wait that never ended", func(h script) { h.Acquire("a", "k") }, []history.Rule{history.CallsReturn}},
		{"a wait that its process did not survive", func(h script) {
			h.Acquire("a", "k")
			h.Died("a")
		}, nil},
		{"a wait of another than died", func(h script) {
			h.Acquire("a", "k")
			h.Died("b")
		}, []history.Rule{history.CallsReturn}},
		{"acquisitions that came to nothing", func(h script) {
			h.grant("a", 1)
			h.Acquire("b", "k").Refused()
			h.Acquire("b", "k").Unknown()
			h.Acquire("b", "k").Failed()
			h.write("a", 1)
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := script{history.New()}
				c.story(h)
				opts := history.Checks{Grace: grace}
				if got := rulesOf(t, h.History, opts); !slices.Equal(got, c.want) {
					t.Errorf("broken rules: %v, want %v\n%v", got, c.want, h.Check(opts))
				}
				if got := rulesOf(t, roundTrip(t, h.History), opts); !slices.Equal(got, c.want) {
					t.Errorf("broken rules once kept and read again: %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestViolationIsReadable(t *testing.T) {
	h := script{history.New()}
	h.grant("a", 41)
	h.Ended("a", tok(41))
	h.grant("b", 42)
	h.write("a", 41)
	err := h.Check(history.Checks{})
	var v *history.Violation
	if !errors.As(err, &v) {
		t.Fatalf("%v is no Violation", err)
	}
	if v.Rule != history.Linearizable || v.Key != "k" || !slices.Equal(v.Fences, []int64{41, 42}) {
		t.Errorf("%+v", v)
	}
	for _, part := range []string{`"k"`, `effect @41 of "a" (#6 to #7) has to come before grant @42 of "b"`, "\n\t#2 ", "\n\t#6 ", "\n\t#7 ", "b granted"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in: %v", part, err)
		}
	}
}

func TestManyViolationsAreCutShort(t *testing.T) {
	h := script{history.New()}
	for i := range int64(100) {
		h.grant(fmt.Sprint("p", i), i+1)
	}
	err := h.Check(history.Checks{})
	if err == nil || !strings.Contains(err.Error(), "more violations") || len(err.Error()) > 20_000 {
		t.Errorf("%v", err)
	}
}

// What could not be decided is a failure.
func TestUndecided(t *testing.T) {
	h := script{history.New()}
	for i := range int64(100) {
		h.grant("a", i+1)
		h.release("a", i+1)
	}
	if got := rulesOf(t, h.History, history.Checks{Steps: 150}); !slices.Equal(got, []history.Rule{history.Undecided}) {
		t.Errorf("broken rules: %v", got)
	}
	if err := h.Check(history.Checks{Steps: 2000}); err != nil {
		t.Error(err)
	}
}

// The checks are quick enough to be run thousands of times.
func TestLongHistories(t *testing.T) {
	for name, story := range map[string]func(h *history.History){
		"20,000 calls on 5 keys": func(h *history.History) {
			for i := range int64(20_000 / 5 / 4) {
				for k := range 5 {
					tk := fencing.Token{Key: fmt.Sprint("k", k), Fence: i + 1}
					h.Acquire("a", tk.Key).Granted(tk.Fence)
					h.Effect("a", tk).Done()
					h.Checked("a", tk)
					h.Release("a", tk).Done()
					h.Effect("a", tk).Refused()
				}
			}
		},
		"200 unknown of each kind on a key": func(h *history.History) {
			for i := range int64(200) {
				tk := fencing.Token{Key: "k", Fence: i + 1}
				h.Acquire("b", "k").Unknown()
				c := h.Acquire("a", "k")
				h.Effect("b", fencing.Token{Key: "k", Fence: i/2 + 1}).Unknown()
				c.Granted(tk.Fence)
				h.Effect("a", tk).Done()
				h.Effect("a", tk).Unknown()
				h.Release("a", tk).Unknown()
			}
		},
		"500 that died without a word": func(h *history.History) {
			for i := range int64(500) {
				p := fmt.Sprint("p", i)
				h.Acquire(p, "k").Granted(i + 1)
				h.Effect(p, tok(i+1)).Done()
				h.Effect(p, tok(i+1))
				h.Release(p, tok(i+1))
				h.Died(p)
			}
		},
		"100 at a time": func(h *history.History) {
			for i := range int64(100) {
				tk := tok(i + 1)
				h.Acquire("a", "k").Granted(tk.Fence)
				var calls, stale []*history.Call
				for range 50 {
					calls = append(calls, h.Effect("a", tk))
					stale = append(stale, h.Effect("b", tok(i)))
				}
				for j := range calls {
					calls[j].Done()
					stale[j].Refused()
				}
				h.Release("a", tk).Done()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := history.New()
			story(h)
			begin := time.Now()
			if err := h.Check(history.Checks{}); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("checked in %v", took)
			} else {
				t.Logf("checked in %v", took)
			}
		})
	}
}
