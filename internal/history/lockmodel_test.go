package history_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/history"
)

// Stories that models accept, and those that they refuse, with what the message must
// name. A model without an entry accepts.
func TestLockModels(t *testing.T) {
	const (
		owner, fenced       = "OwnerAwareMutex", "FencedMutex"
		reentrant, refenced = "ReentrantMutex", "ReentrantFencedMutex"
		permits             = "AcquiredPermits"
	)
	models := []history.LockModel{
		history.OwnerAwareMutex(), history.ReentrantMutex(2), history.FencedMutex(), history.ReentrantFencedMutex(2),
		history.AcquiredPermits(2),
	}
	for _, c := range []struct {
		name    string
		story   func(h script)
		refused []string
	}{
		{"one after the other", func(h script) {
			h.grant("a", 1)
			h.release("a", 1)
			h.grant("b", 2)
			h.release("b", 2)
		}, nil},
		{"two at a time", func(h script) {
			h.grant("a", 1)
			h.grant("b", 2)
			h.release("a", 1)
			h.release("b", 2)
		}, []string{owner, reentrant, fenced, refenced}},
		{"three at a time", func(h script) {
			h.grant("a", 1)
			h.grant("b", 2)
			h.grant("c", 3)
			h.release("a", 1)
			h.release("b", 2)
			h.release("c", 3)
		}, []string{owner, reentrant, fenced, refenced, permits}},
		{"a release between two permits", func(h script) {
			h.grant("a", 1)
			h.grant("b", 2)
			h.release("a", 1)
			h.grant("c", 3)
			h.release("b", 2)
			h.release("c", 3)
		}, []string{owner, reentrant, fenced, refenced}},
		{"calls at the same time have an order", func(h script) {
			b := h.Acquire("b", "k")
			h.grant("a", 1)
			r := h.Release("a", tok(1))
			b.Granted(2)
			r.Done()
			h.release("b", 2)
		}, nil},
		{"a release by another", func(h script) {
			h.grant("a", 1)
			h.release("b", 1)
			h.release("a", 1)
		}, []string{owner, reentrant, fenced, refenced, permits}},
		{"a release of what nobody holds", func(h script) {
			h.release("a", 1)
		}, []string{owner, reentrant, fenced, refenced, permits}},
		{"a release too many", func(h script) {
			h.grant("a", 1)
			h.release("a", 1)
			h.release("a", 1)
		}, []string{owner, reentrant, fenced, refenced, permits}},
		{"fences that fall", func(h script) {
			h.grant("a", 2)
			h.release("a", 2)
			h.grant("b", 1)
			h.release("b", 1)
		}, []string{fenced, refenced}},
		{"a fence for two terms", func(h script) {
			h.grant("a", 2)
			h.release("a", 2)
			h.grant("b", 2)
			h.release("b", 2)
		}, []string{fenced, refenced}},
		{"no fence", func(h script) {
			h.grant("a", 0)
			h.release("a", 0)
		}, []string{fenced, refenced}},
		{"acquired twice by its owner", func(h script) {
			h.grant("a", 1)
			h.grant("a", 1)
			h.release("a", 1)
			h.release("a", 1)
			h.grant("b", 2)
			h.release("b", 2)
		}, []string{owner, fenced}},
		{"another between two releases of the owner", func(h script) {
			h.grant("a", 1)
			h.grant("a", 1)
			h.release("a", 1)
			h.grant("b", 2)
			h.release("a", 1)
			h.release("b", 2)
		}, []string{owner, reentrant, fenced, refenced}},
		{"acquired again with another fence", func(h script) {
			h.grant("a", 1)
			h.grant("a", 2)
			h.release("a", 2)
			h.release("a", 1)
		}, []string{owner, fenced, refenced}},
		{"acquired three times by its owner", func(h script) {
			for range 3 {
				h.grant("a", 1)
			}
			for range 3 {
				h.release("a", 1)
			}
		}, []string{owner, reentrant, fenced, refenced, permits}},

		{"a term that lapsed", func(h script) {
			h.grant("a", 1)
			h.write("a", 1)
			h.grant("b", 2)
			h.write("b", 2)
			h.grant("c", 3)
		}, nil},
		{"a term that was used after the next was", func(h script) {
			h.grant("a", 1)
			h.grant("b", 2)
			h.write("b", 2)
			h.write("a", 1)
		}, []string{owner, reentrant, fenced, refenced}},
		{"permits that were used after a third was granted", func(h script) {
			h.grant("a", 1)
			h.grant("b", 2)
			h.grant("c", 3)
			for fence, process := range []string{"a", "b", "c"} {
				h.write(process, int64(fence+1))
			}
		}, []string{owner, reentrant, fenced, refenced, permits}},
		{"a release that is unknown, and one that came too late", func(h script) {
			h.grant("a", 1)
			h.Release("a", tok(1)).Unknown()
			h.grant("b", 2)
			h.Release("b", tok(2)).Lost()
			h.grant("c", 3)
			h.release("c", 3)
		}, nil},
		{"a reentrant term that lapsed after a release", func(h script) {
			h.grant("a", 1)
			h.grant("a", 1)
			h.release("a", 1)
			h.grant("b", 2)
			h.release("b", 2)
		}, []string{owner, fenced}},
		{"a handle that was released after the process had learned of the loss", func(h script) {
			h.grant("a", 1)
			h.grant("a", 1)
			h.Ended("a", tok(1))
			h.grant("b", 2)
			h.write("b", 2)
			h.release("a", 1)
			h.Release("a", tok(1)).Lost()
			h.release("b", 2)
		}, []string{fenced}},
		{"taken from its owner, and released", func(h script) {
			h.grant("a", 1)
			h.Taken("k")
			h.grant("b", 2)
			h.Checked("a", tok(1))
			h.release("a", 1)
			h.release("b", 2)
		}, nil},
		{"taken from its owner, which acquires it again before it hears of that", func(h script) {
			h.grant("a", 1)
			h.Taken("k")
			h.grant("b", 2)
			h.grant("a", 1)
			h.write("b", 2)
			h.release("b", 2)
		}, []string{owner, fenced}},
		{"taken from its owner, and checked too late", func(h script) {
			h.grant("a", 1)
			h.Taken("k")
			h.grant("b", 2)
			time.Sleep(time.Minute)
			h.Checked("b", tok(2))
			h.Checked("a", tok(1))
		}, []string{owner, reentrant, fenced, refenced}},
		{"calls that were refused, or have no outcome", func(h script) {
			h.grant("a", 1)
			h.Acquire("b", "k").Refused()
			h.Acquire("b", "k").Unknown()
			h.Release("b", tok(1)).Refused()
			h.writeStale("b", 0)
			h.release("a", 1)
		}, nil},
		{"two keys", func(h script) {
			h.grant("a", 1)
			h.Acquire("b", "l").Granted(1)
			h.release("a", 1)
			h.Release("b", tokOf("l", 1)).Done()
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := history.New()
				c.story(script{h})
				for _, m := range models {
					want := strings.Contains(" "+strings.Join(c.refused, " ")+" ", " "+m.String()+" ")
					err := m.Check(h, history.Checks{})
					var v *history.Violation
					switch {
					case (err != nil) != want:
						t.Errorf("%s: %v", m, err)
					case want && (!errors.As(err, &v) || v.Rule != history.Linearizable || v.Key != "k" || len(v.Lines) == 0 || !strings.Contains(v.Detail, m.String())):
						t.Errorf("%s: %v", m, err)
					}
				}
			})
		})
	}
}

// Stories of readers and writers, and whether the model accepts them.
func TestReadersWriter(t *testing.T) {
	a, b := history.Reader("a"), history.Reader("b")
	for _, c := range []struct {
		name  string
		right bool
		story func(h script)
	}{
		{"readers together, then a writer", true, func(h script) {
			h.grant(a, 1)
			h.grant(b, 1)
			h.release(a, 1)
			h.release(b, 1)
			h.grant("a", 2)
			h.release("a", 2)
			h.grant(b, 3)
		}},
		{"a reader beside a writer", false, func(h script) {
			h.grant("b", 1)
			h.grant(a, 2)
			h.release("b", 1)
		}},
		{"a writer beside a reader", false, func(h script) {
			h.grant(a, 1)
			h.grant("b", 2)
			h.release(a, 1)
		}},
		{"two writers", false, func(h script) {
			h.grant("a", 1)
			h.grant("b", 2)
			h.release("a", 1)
		}},
		{"readers with two fences", false, func(h script) {
			h.grant(a, 1)
			h.grant(b, 2)
			h.release(a, 1)
		}},
		{"a reader with the fence of a writer", false, func(h script) {
			h.grant("a", 1)
			h.release("a", 1)
			h.grant(b, 1)
		}},
		{"a writer with the fence of readers", false, func(h script) {
			h.grant(a, 1)
			h.release(a, 1)
			h.grant("b", 1)
		}},
		{"readers one after the other by one record", true, func(h script) {
			h.grant(a, 1)
			h.release(a, 1)
			h.grant(b, 1)
		}},
		{"a reader with an earlier fence", false, func(h script) {
			h.grant(a, 2)
			h.release(a, 2)
			h.grant(b, 1)
		}},
		{"a reader whose term lapsed", true, func(h script) {
			h.grant(a, 1)
			h.Ended(a, tok(1))
			h.grant("b", 2)
			h.write("b", 2)
		}},
		{"a reader that writes after a writer came", false, func(h script) {
			h.grant(a, 1)
			h.grant("b", 2)
			h.write(a, 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := history.New()
				c.story(script{h})
				if err := history.ReadersWriter().Check(h, history.Checks{}); (err == nil) != c.right {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// A search that is not finished is not a verdict.
func TestLockModelUndecided(t *testing.T) {
	h := script{history.New()}
	h.grant("a", 1)
	h.release("a", 1)
	h.grant("b", 2)
	var v *history.Violation
	if err := history.FencedMutex().Check(h.History, history.Checks{Steps: 2}); !errors.As(err, &v) || v.Rule != history.Undecided {
		t.Errorf("%v", err)
	}
}

func tokOf(key string, fence int64) fencing.Token { return fencing.Token{Key: key, Fence: fence} }
