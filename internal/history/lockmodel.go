package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// A LockModel is a sequential specification of a lock or a semaphore, by which
// [LockModel.Check] judges a history. The models are those by which Jepsen tests
// Hazelcast, under their names there (jepsen-io/jepsen, hazelcast.clj at 6b2d9ef). Use
// them for processes that record only acquisitions and releases, and for what
// [History.Check] does not know: claims with Reentrant and with Slots.
//
// Jepsen's models know acquire and release by a client, which is a process here. A
// lease adds two things:
//
//   - Each recorded [History.Checked], and each Effect that was Done, must come while
//     its process holds the lock by that fence.
//   - A term can lapse at any time after the last call that shows it held, if fewer
//     releases of it are Done than acquisitions were granted. A release that returned
//     after the term's Ended does not count, nor one after a Take.
//
// As in Jepsen's tests, calls that were refused or failed have no step. Neither do
// acquisitions whose outcome is unknown: no process uses what they may have left in
// etcd.
type LockModel struct {
	name string
	most int // acquisitions of one owner; permits of a semaphore
	kind lockKind
}

type lockKind struct {
	fenced    bool // fences rise
	reentrant bool // an owner may acquire again
	permits   bool // several owners
	readers   bool // several owners that are readers, by the names of their processes
}

// OwnerAwareMutex returns the model of a mutex that has an owner: it is granted if it
// is free, and released by its owner only. Fences are not compared.
func OwnerAwareMutex() LockModel { return LockModel{name: "OwnerAwareMutex", most: 1} }

// ReentrantMutex returns the model of a mutex that its owner may acquire most times
// (2 in Jepsen's tests). It is free after as many releases. Record each acquisition
// and each release; [History.Check] does not know such histories.
func ReentrantMutex(most int) LockModel {
	return LockModel{name: "ReentrantMutex", most: most, kind: lockKind{reentrant: true}}
}

// FencedMutex returns the model of an [OwnerAwareMutex] whose every grant has a fence
// greater than all before it. Unlike in Jepsen's, 0 is not a fence.
func FencedMutex() LockModel {
	return LockModel{name: "FencedMutex", most: 1, kind: lockKind{fenced: true}}
}

// ReentrantFencedMutex returns the model of a [ReentrantMutex] with a fence. The fence
// rises when the mutex is granted to an owner, and stays the same when its owner
// acquires it again.
func ReentrantFencedMutex(most int) LockModel {
	return LockModel{name: "ReentrantFencedMutex", most: most, kind: lockKind{fenced: true, reentrant: true}}
}

// AcquiredPermits returns the model of a semaphore with n permits (2 in Jepsen's
// tests): at most n are held at a time, and a process releases only what it holds.
// Record the acquisitions and releases of all slots under one key, for example with
// the token {Key: key, Fence: claim.Fence()}. Fences are not compared, since each slot
// has its own.
func AcquiredPermits(n int) LockModel {
	return LockModel{name: "AcquiredPermits", most: n, kind: lockKind{permits: true}}
}

// ReadersWriter returns the model of a lock that any number of readers hold, or one
// writer, as claims with and without [etcdclaims.Shared] do. Record a reader's calls, and
// those alone, under a process named by [Reader]. Readers that hold the lock together have
// one fence, which is greater than that of each writer before. The fence of a writer is
// greater than all before it. Jepsen has no such model.
func ReadersWriter() LockModel {
	return LockModel{name: "ReadersWriter", kind: lockKind{fenced: true, readers: true}}
}

// Reader returns the name of a process for its calls as a reader; see [ReadersWriter].
func Reader(process string) string { return readerPrefix + process }

const readerPrefix = "reader "

func (m LockModel) String() string { return m.name }

// Check searches for an order of the recorded calls of each key that the model
// accepts. It returns nil or [Violations], one for each key without such an order. Of
// opts it uses Grace and Steps.
func (m LockModel) Check(h *History, opts Checks) error {
	p := newTimeline(h.snapshot())
	var vs Violations
	for _, k := range p.keys {
		if v := m.judge(k, p, opts); v != nil {
			vs = append(vs, v)
		}
	}
	if len(vs) > 0 {
		return vs
	}
	return nil
}

// judge returns the violation of one key, or nil.
func (m LockModel) judge(k *keyTimeline, p *timeline, opts Checks) *Violation {
	ops := m.operations(k, p, opts)
	if len(ops) == 0 {
		return nil
	}
	limit, first := searchLimit(opts.Steps, ops), ops[0].Input.(lockStep)
	ok, decided := explained(m.model, ops, limit)
	if ok {
		return nil
	}
	if !decided {
		return &Violation{
			Rule: Undecided, Key: k.key,
			Detail: fmt.Sprintf("no order of the %d operations that %s accepts was found within %d steps", len(ops), m, limit),
		}
	}
	v := &Violation{
		Rule: Linearizable, Key: k.key,
		Detail: fmt.Sprintf("%s accepts no order of the %d operations", m, len(ops)),
		Lines:  p.lines(first.seqs[:]...),
	}
	// This search keeps every order that it has tried.
	_, info := porcupine.CheckOperationsVerbose(m.model(newSearch(drawSteps)), ops, 0)
	if in, ok := stuck(ops, info.PartialLinearizationsOperations()); ok {
		v.Detail += fmt.Sprintf("; after the longest one that it accepts, %s of %q is wrong", in, in.process)
		v.Fences, v.Lines = []int64{in.fence}, p.lines(in.seqs[:]...)
	}
	return v
}

// stuck returns the first operation that is missing in the longest order that was
// found.
func stuck(ops []porcupine.Operation, found [][][]porcupine.Operation) (lockStep, bool) {
	var longest []porcupine.Operation
	for _, orders := range found {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := map[[2]int64]bool{}
	for _, op := range longest {
		placed[op.Input.(lockStep).seqs] = true
	}
	missing := slices.Clone(ops)
	missing = slices.DeleteFunc(missing, func(op porcupine.Operation) bool { return placed[op.Input.(lockStep).seqs] })
	if len(missing) == 0 {
		return lockStep{}, false
	}
	slices.SortFunc(missing, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	return missing[0].Input.(lockStep), true
}
