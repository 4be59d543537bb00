package ticks

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/fault"
	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// without removes conditions from a request, and from those that are nested in it.
func without(in *pb.TxnRequest, of func(c *pb.Compare) bool) {
	less := fault.Without(in, of)
	in.Compare, in.Success, in.Failure = less.Compare, less.Success, less.Failure
}

// skips removes operations likewise.
func skips(in *pb.TxnRequest, of func(op *pb.RequestOp) bool) {
	in.Success = slices.Clone(in.Success)
	for n, op := range in.Success {
		switch inner := op.GetRequestTxn(); {
		case inner != nil:
			inner = &pb.TxnRequest{Compare: inner.Compare, Success: inner.Success, Failure: inner.Failure}
			skips(inner, of)
			in.Success[n] = txn.Nest(inner)
		case of(op):
			in.Success[n] = txn.Get([]byte("/nothing"))
		}
	}
}

// on is about keys that begin with a prefix.
func on(prefixes ...string) func(c *pb.Compare) bool {
	return func(c *pb.Compare) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(string(c.Key), p) })
	}
}

// Each check finds the fault of a step that it is there for, and tells how it comes to that.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	drop := func(of kind, conditions func(c *pb.Compare) bool) func(kind, *pb.TxnRequest) {
		return func(k kind, in *pb.TxnRequest) {
			if k == of {
				without(in, conditions)
			}
		}
	}
	lose := func(of kind, op func(op *pb.RequestOp) bool) func(kind, *pb.TxnRequest) {
		return func(k kind, in *pb.TxnRequest) {
			if k == of {
				skips(in, op)
			}
		}
	}
	puts := func(dir string) func(op *pb.RequestOp) bool {
		return func(op *pb.RequestOp) bool { return strings.HasPrefix(string(op.GetRequestPut().GetKey()), dir) }
	}
	deletes := func(dir string) func(op *pb.RequestOp) bool {
		return func(op *pb.RequestOp) bool {
			return strings.HasPrefix(string(op.GetRequestDeleteRange().GetKey()), dir)
		}
	}
	for name, c := range map[string]struct {
		scope Scope
		want  string
	}{
		"admission of a former owner": {
			Scope{Ticks: 2, Ends: 1, Spread: true, Break: drop(admission, on(ownerKey))},
			"although another is the owner",
		},
		"prompt begin of a former owner": {
			Scope{Ticks: 2, Forced: 1, Break: drop(prompt, on(ownerKey))}, "although another is the owner",
		},
		"prompt begin beside a run that must be settled": {
			Scope{Ticks: 2, Ends: 1, Deaf: true, Break: drop(prompt, on(runDir))}, "two runs are recorded",
		},
		"settlement of a former owner": {
			Scope{Ticks: 2, Ends: 2, Again: true, Break: drop(settle, on(ownerKey))}, "although another is the owner",
		},
		"admission that does not compare the mark": {
			Scope{Ticks: 2, Faults: 1, Spread: true, Break: drop(admission, on(highKey))}, "the mark went back before tick|is called twice for attempt 1|is in several places",
		},
		"admission of ticks that were decided": {
			Scope{Ticks: 2, Faults: 1, Spread: true, Overlap: tick.Allow, Break: drop(admission, on(highKey))}, "is called twice for attempt 1 of tick 1|is in several places",
		},
		"admission in a pause": {
			Scope{Ticks: 1, Pauses: 1, Spread: true, Break: drop(admission, on(pausedKey))}, "while the job was paused",
		},
		"tick that does not wait": {
			Scope{Ticks: 1, Spread: true, Break: lose(admission, puts(readyDir))}, "tick 1 is decided, and nowhere",
		},
		"mark that does not move": {
			Scope{Ticks: 1, Spread: true, Break: lose(admission, puts(highKey))}, "tick 1 is there, and the mark is before it|is called twice",
		},
		"end that keeps the run": {
			Scope{Ticks: 1, Break: lose(end, deletes(runDir))}, "tick 1 is in several places",
		},
		"end of a run that was settled": {
			Scope{Ticks: 2, Ends: 1, Break: func(k kind, in *pb.TxnRequest) {
				if k == end {
					without(in, func(*pb.Compare) bool { return true })
				}
			}}, "tick 1 is in several places",
		},
		"begin that is not made void": {
			Scope{Ticks: 1, Faults: 1, Spread: true, Again: true, Break: drop(starting, on(prefix+"void/"))}, "tick 1 has not come to an end",
		},
		"begin of a tick that is gone": {
			Scope{Ticks: 1, Spread: true, Break: drop(starting, on(readyDir))}, "is called twice for attempt 1 of tick 1|tick 1 is in several places",
		},
		"two runs of a job": {
			Scope{Ticks: 2, Ends: 1, Overlap: tick.BufferAll, Spread: true, Break: drop(starting, on(runDir))}, "two runs are recorded",
		},
		"tick that begins before an earlier one": {
			Scope{Ticks: 2, Ends: 1, Again: true, Overlap: tick.BufferAll, Spread: true, Break: func(k kind, in *pb.TxnRequest) {
				if k == starting {
					without(in, func(c *pb.Compare) bool {
						return strings.HasPrefix(string(c.Key), readyDir) && c.Target == pb.Compare_CREATE
					})
				}
			}}, "tick 2 has begun before tick 1",
		},
		"run that takes the slot of another": {
			Scope{Ticks: 2, Overlap: tick.Allow, Spread: true, Limit: 1, Break: drop(starting, on(keys.Slots(limit)))},
			"2 runs are recorded, and the limit is 1",
		},
		"slot that stays when its run has ended": {
			Scope{Ticks: 1, Overlap: tick.Allow, Spread: true, Limit: 1, Break: lose(end, deletes(keys.Slots(limit)))},
			"is left",
		},
		"tick given up too early": {
			Scope{Ticks: 1, Ends: 1, Again: true, Settles: func(s *tick.Settle) { s.Job.Again = false }}, "tick 1 was given up in attempt 1 of 2",
		},
		"failure that is counted as an end": {
			Scope{Ticks: 1, Fails: 1, Break: lose(end, puts(readyDir))}, "tick 1 is decided, and nowhere",
		},
		"failed run whose record stays": {
			Scope{Ticks: 1, Fails: 1, Break: lose(end, deletes(runDir))}, "tick 1 is in several places",
		},
		"tick begun again against the policy": {
			Scope{Ticks: 1, Ends: 1, Settles: func(s *tick.Settle) { s.Job.Again = true }}, "tick 1 has another attempt",
		},
		"attempt taken for one that called no handler": {
			Scope{Ticks: 1, Ends: 1, Settles: func(s *tick.Settle) { s.Begun = false }}, "attempt 1 of tick 1 waits, and has called its handler|is called twice for attempt 1 of tick 1",
		},
		"owner that decides nothing": {
			Scope{Ticks: 1, Spread: true, Break: func(k kind, in *pb.TxnRequest) {
				if k == admission {
					in.Success[0].GetRequestTxn().Compare = []*pb.Compare{txn.CreatedAt([]byte(specKey), 0)}
				}
			}}, "it does not come to rest",
		},
		"orphan that nobody settles": {
			Scope{Ticks: 1, Ends: 1, Break: func(k kind, in *pb.TxnRequest) {
				if k == settle {
					in.Success = []*pb.RequestOp{txn.Nest(&pb.TxnRequest{Compare: []*pb.Compare{txn.CreatedAt([]byte(specKey), 0)}})}
				}
			}}, "it does not come to rest",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := search.Run(New(c.scope), search.Options{Most: 150_000})
			if r.Bad == nil || len(r.Bad.Story) == 0 {
				t.Fatalf("not found in %d states", r.States)
			}
			if !slices.ContainsFunc(strings.Split(c.want, "|"), func(text string) bool { return strings.Contains(r.Bad.Err.Error(), text) }) {
				t.Errorf("want %q, found %v", c.want, r.Bad)
			}
			t.Logf("%d states, %d events long: %v", r.States, len(r.Bad.Way)-1, r.Bad.Err)
		})
	}
}
