package world

import "slices"

// messages, sessions and operators are the faults that each kind of call is searched with.
var (
	messages  = One(LostRequest, LostReply, LateReply)
	sessions  = One(Crash, Expiry, Revocation)
	operators = One(Deletion, EpochRaise)
)

// and returns the faults of both.
func (f Faults) and(more ...Faults) Faults {
	for _, m := range more {
		for i := range m {
			f[i] += m[i]
		}
	}
	return f
}

// all are n clients that make the calls, one after the other.
func all(n int, calls ...Call) (callers []Caller) {
	for range n {
		callers = append(callers, Caller{Calls: calls})
	}
	return callers
}

// Scopes returns all scopes. Those that Quick names are searched within seconds together.
func Scopes() (scopes []Scope) {
	common := messages.and(sessions, operators)
	add := func(name string, most int, faults Faults, callers []Caller) {
		scopes = append(scopes, Scope{Name: name, Callers: callers, Faults: faults, Most: most})
	}
	kinds := []string{"exclusive", "slots", "shared"}
	for kind, name := range kinds {
		take, wait := Call{Mode: Kind(kind)}, Call{Mode: Kind(kind), Waits: true}
		add(name+": 2 try", 1, common, all(2, take))
		add(name+": 2 try, two faults", 2, common, all(2, take))
		add(name+": 2 wait", 1, common, all(2, wait))
		add(name+": 2 wait, two faults", 2, common, all(2, wait))
		add(name+": 2 wait twice", 1, common, all(2, wait, wait))
		add(name+": 3 wait", 1, common, all(3, wait))
		others := One(Twice, Silence, GivingUp, Closing, Deafness, Force, Restart).and(One(Crash))
		add(name+": 2 wait, other faults", 2, others, all(2, wait))
		add(name+": 2 wait, a request sent twice", 1, One(Twice), all(2, wait))
		add(name+": 2 wait, requests sent twice", 2, One(Twice, LostRequest, LostReply, Force), all(2, wait))
		noted := Call{Mode: Kind(kind), Waits: true, Noted: true, Writes: Kind(kind) != Slots2}
		add(name+": 2 wait, with notes and writes", 1, common, all(2, noted))
		ops := Call{Mode: Kind(kind), Waits: true, Ops: true}
		add(name+": 2 wait, and end with an operation", 2, messages.and(sessions, One(Deletion)), all(2, ops))
		add(name+": 2 wait, and end with an operation sent twice", 1, One(Twice), all(2, ops))
		meets := Call{Mode: Kind(kind), Waits: true, Meets: true}
		add(name+": 2 wait, on a condition", 1, common.and(One(Unmeeting)), all(2, meets))
		frees := Call{Mode: Kind(kind), Waits: true, Frees: true}
		add(name+": 2 wait, without hand-over", 1, common, all(2, frees))
		gives := One(LostRequest, LostReply, GivingUp, Deletion)
		add(name+": 2 try, and callers give up", 2, gives, all(2, take))
		add(name+": 2 wait with notes, and callers give up", 2, gives, all(2, noted))
		add(name+": 2 try, a request sent twice", 1, One(Twice), all(2, take))
		again := One(LostRequest, LostReply, GivingUp, EpochRaise, Deletion)
		add(name+": one tries twice", 3, again, all(1, take, take))
		add(name+": one waits twice, with notes", 3, again, all(1, noted, noted))
		add(name+": one waits twice, with notes, and gives up", 2, One(LostRequest, LostReply, GivingUp), all(1, noted, noted))
		add(name+": one waits twice, and ends with an operation", 3, again, all(1, ops, ops))
		add(name+": one ends with an operation, and gives up", 2, One(LostReply, GivingUp), all(1, ops))
		restores := One(Restore, EpochRaise, LateReply)
		add(name+": 2 try, etcd restored", 2, restores, all(2, take, take))
		add(name+": 2 wait, etcd restored", 2, restores, all(2, wait))
		writes := Call{Mode: Kind(kind), Writes: Kind(kind) != Slots2}
		add(name+": 2 try, and write, etcd restored", 2, restores, all(2, writes, writes))
	}
	wait := func(k Kind) Caller { return Caller{Calls: []Call{{Mode: k, Waits: true}}} }
	add("exclusive and shared", 2, common, []Caller{wait(Exclusive), wait(Shared)})
	add("exclusive and slots, which try", 1, common, []Caller{{Calls: []Call{{}}}, {Calls: []Call{{Mode: Slots2}}}})
	add("exclusive and two shared", 1, common, []Caller{wait(Exclusive), wait(Shared), wait(Shared)})
	add("exclusive: one tries, one waits", 1, common, []Caller{{Calls: []Call{{}, {}}}, wait(Exclusive)})
	parts, noted := Call{Parts: true}, Call{Parts: true, Noted: true}
	add("exclusive: delayed releases, one tries twice, one waits", 2, common, []Caller{{Calls: []Call{parts, {}}}, wait(Exclusive)})
	add("exclusive: delayed releases, 2 try twice, with notes", 1, common, all(2, noted, noted))
	thenWaits := []Caller{{Calls: []Call{parts, {Waits: true}}}, wait(Exclusive)}
	add("exclusive: delayed releases, one tries, then waits", 2, common.and(One(GivingUp)), thenWaits)
	add("exclusive: delayed releases, 2 try twice, etcd restored", 2, One(Restore, EpochRaise), all(2, parts, parts))
	ends := One(LostRequest, LostReply, Revocation, GivingUp)
	add("exclusive: 2 try, and end with an operation", 2, ends, all(2, Call{Ops: true}))
	resizes := One(Resize, LostRequest, LateReply)
	add("slots: 2 wait, their number changes", 2, resizes, all(2, Call{Mode: Slots2, Waits: true}))
	add("slots: 3 wait, their number changes", 1, One(Resize), all(3, Call{Mode: Slots2, Waits: true}))
	add("slots: 3 wait, a request sent twice", 1, One(Twice), all(3, Call{Mode: Slots2, Waits: true}))
	ended := One(Deletion, LostRequest)
	add("slots: 3 wait, and end with an operation", 2, ended, all(3, Call{Mode: Slots2, Waits: true, Ops: true}))
	try := func(k Kind) Caller { return Caller{Calls: []Call{{Mode: k}}} }
	gives := One(Deletion, GivingUp, LostReply)
	add("exclusive and shared, which try and give up", 3, gives, []Caller{try(Exclusive), try(Shared)})
	add("exclusive and two shared, which try and give up", 3, gives, []Caller{try(Exclusive), try(Shared), try(Shared)})
	add("exclusive and slots, their number changes", 2, resizes, []Caller{{Calls: []Call{{}}}, wait(Slots2)})
	writes := Call{Waits: true, Writes: true}
	add("exclusive: 2 wait twice, and write", 1, common, all(2, writes, writes))
	add("exclusive: 3 wait, two faults", 2, common, all(3, Call{Waits: true}))
	each := One(Crash, LostRequest, LostReply, Expiry, Deletion)
	add("exclusive: 2 wait, one of each fault", 0, each, all(2, Call{Waits: true}))
	add("slots: 2 try, one of each fault", 0, each, all(2, Call{Mode: Slots2}))
	add("shared: 2 wait, one of each fault", 0, each, all(2, Call{Mode: Shared, Waits: true}))
	addWork(add)
	return scopes
}

// addWork adds the scopes of work whose record is beside the claim.
func addWork(add func(name string, most int, faults Faults, callers []Caller)) {
	faults := messages.and(sessions, One(EpochRaise))
	complete, once := Call{Work: Completes}, Call{Work: Completes, AtMostOnce: true}
	add("work: 2 complete", 1, faults, all(2, complete))
	add("work: 2 complete, two faults", 2, faults, all(2, complete))
	add("work: 2 complete, and callers give up", 2, messages.and(One(GivingUp)), all(2, complete))
	add("work: 2 fail, and complete", 1, faults, all(2, Call{Work: Fails}, complete))
	add("work: 2 give back, and complete", 1, faults, all(2, Call{Work: GivesBack}, complete))
	add("work: 2 at most once, two faults", 2, faults, all(2, once))
	add("work: 2 at most once, one of each fault", 0, One(LostRequest, GivingUp, Expiry), all(2, once))
	callers := One(Twice, Silence, GivingUp, Closing, Deafness, Force, Restart).and(One(Crash))
	wait1, waitOnce := Call{Work: Completes, Waits: true}, Call{Work: Completes, Waits: true, AtMostOnce: true}
	add("work: 2 wait", 1, faults, all(2, wait1))
	add("work: 2 wait, other faults", 1, callers, all(2, wait1))
	add("work: 2 wait, messages", 2, messages.and(One(Twice)), all(2, wait1))
	add("work: 2 wait, sessions", 2, One(Crash, Restart, Expiry), all(2, wait1))
	add("work: 2 wait, callers", 2, One(GivingUp, Closing, Deafness, Force, LostReply), all(2, wait1))
	add("work: 2 wait at most once", 1, faults.and(callers), all(2, waitOnce))
	add("work: 2 wait at most once, messages", 2, messages.and(One(Twice)), all(2, waitOnce))
	add("work: 2 wait at most once, sessions", 2, One(Crash, Restart, Revocation), all(2, waitOnce))
	add("work: 2 wait and fail, and complete", 1, One(LostReply, Crash, Closing), all(2, Call{Work: Fails, Waits: true}, wait1))
	add("work: one tries, one waits", 1, faults.and(callers), []Caller{{Calls: []Call{complete}}, {Calls: []Call{wait1}}})
	add("work: 3 wait", 1, One(LostReply, Crash, GivingUp), all(3, wait1))
	add("work: 2 try, other faults", 2, callers, all(2, complete))
	add("work: 2 try at most once, other faults", 2, callers, all(2, once))
	add("work: 2 try, late requests", 2, One(Twice, GivingUp, Closing, LostRequest, LostReply), all(2, complete))
	add("work: 2 fail, and complete, other faults", 1, callers, all(2, Call{Work: Fails}, complete))
}

// quick are the scopes that `go test` searches.
var quick = []string{
	"exclusive: 2 try, two faults", "exclusive: 2 wait", "exclusive: 2 wait, two faults",
	"slots: 2 wait, a request sent twice", "slots: 2 wait", "shared: 2 wait", "shared: 2 try",
	"exclusive: 2 wait, with notes and writes", "exclusive: 2 wait, requests sent twice", "shared: 2 wait, a request sent twice",
	"work: 2 complete", "work: 2 wait, other faults",
}

// IsQuick reports whether a scope is searched within seconds.
func (s *Scope) IsQuick() bool { return slices.Contains(quick, s.Name) }
