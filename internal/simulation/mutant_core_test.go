package simulation_test

// coreMutants are about giving up, hot keys, slots, deaf watches, locks and growth. Those
// with tests concern what random clients seldom run into, or what costs them only
// time.
var coreMutants = []mutant{
	{
		name: "local waiters that follow another session", tests: "TestLocalWaitersOfTwoSessions",
		edits: []edit{
			{"localline.go", "next.id == id && next.s == t.s && !next.local.closed", "next.id == id && !next.local.closed"},
			{"localline.go", "} else if w != nil && w.a.s == t.s {", "} else if w != nil {"},
		},
	},
	{
		name: "releases that queue behind acquisitions", tests: "TestGivingUpDoesNotWaitForCallers",
		edits: []edit{{"internal/txn/batcher.go", "		if c.Urgent {\n			b.urgent = append(b.urgent, c)\n", "		if c == nil {\n			b.urgent = append(b.urgent, c)\n"}},
	},
	{
		name: "a refusal that answers one caller only", tests: "TestHotKeyIsRefusedToAllAtOnce",
		edits: []edit{{"ask.go", "a != nil && !a.departed.Load() {", "a != nil && a.key.key == \"\" {"}},
	},
	{
		name: "an answer given to who asked after it", tests: "TestLaterCallerAsksAnew",
		edits: []edit{{"ask.go", "a != nil && !a.departed.Load() {", "a != nil {"}},
	},
	{
		name: "undo, one at a time", tests: "TestUndosShareRoundTrips",
		edits: []edit{{"cleanup.go", "const mostWorkers = 2 * txn.FullBatch", "const mostWorkers = 1 + 0*txn.FullBatch"}},
	},
	{
		name: "waiters not asked again at renewals", seeds: 100,
		edits: []edit{{"renew.go", "	waits := s.c.waiters.of(s)\n", "	waits := s.c.waiters.of(s)[:0]\n"}},
	},
	{
		name: "MinHold given up with its caller's context", seeds: 100,
		edits: []edit{{"rehome.go", "		m.later()\n	}\n	t.finish(ErrReleased)\n", "		t.settleLater(nil, txn.Request{})\n	}\n	t.finish(ErrReleased)\n"}},
	},
	{
		name: "Close that ends belief last", seeds: 100,
		edits: []edit{{"close.go", "			t.shut()\n", "			_ = t\n"}, {"term.go", "		t.parting.Store(leavingForGood)\n", "		t.parting.Store(staying)\n"}},
	},
	{
		name: "Close that forgets a session being opened", tests: "TestCloseWhileASessionOpens",
		edits: []edit{{"close.go", "busy := c.unfinished+c.grants > 0", "busy := c.unfinished > 0"}},
	},
	{
		name: "unknown outcome without its caller's deadline", tests: "TestDeadlineNoticedByOthersFirst",
		edits: []edit{{"internal/txn/outcome.go", "		return unknownError{wire.WithCause(ctx, u.error)}\n", "		return u\n"}},
	},
	{
		name: "late lock that makes its way after a release", tests: "TestLateLockOnALeaseThatStays",
		edits: []edit{{"lockput.go", `, clientv3.Compare(clientv3.CreateRevision(l.void(id)), "=", 0)),`, "),"}},
	},
	{
		name: "lock that outlives its epoch", tests: "TestLocksAfterRaisedEpoch",
		edits: []edit{{"lockstate.go", "return s.holder.Epoch != e.Value }", "return e == nil }"}},
	},
	{
		name: "void keys that count as nothing", tests: "TestVoidsFillASession",
		edits: []edit{{"session.go", "len(s.terms) + s.reserved + len(s.voids) }", "len(s.terms) + s.reserved }"}},
	},
	{
		name: "idle session that never ends", tests: "TestIdleSessionsEnd",
		edits: []edit{{"session.go", "time.AfterFunc(idle*s.lease.Load().ttl, s.endUnused)", "time.AfterFunc(100000*idle*s.lease.Load().ttl, s.endUnused)"}},
	},
	{
		name: "surplus slot handed over", seeds: 100,
		edits: []edit{{"slots.go", "return t.slots != nil && (t.slots.unset || t.slots.i >= t.slots.n)", "return t.slots != nil && t.slots.unset"}},
	},
	{
		name: "slot taken whatever their number", seeds: 100,
		edits: []edit{{"attempt.go", "		in.Compare = append(in.Compare, a.slots.recorded(l))\n", ""}},
	},
	{
		name: "slot that is surplus by now tried again", tests: "TestSlotsResize",
		edits: []edit{{"slots.go", "		a.setSlot(s.i % s.n) // the one tried may be surplus by now\n", ""}},
	},
	{
		name: "first in line for a slot not asked at renewals", tests: "TestSlotsOfTheDead|TestSlotsResizedUnheard",
		edits: []edit{{"waiter.go", "		case w.awaited.rev == everyRenewal:\n			w.doubt()\n", ""}},
	},
	{
		name: "note of a later version believed", tests: "TestUpgradeNote",
		edits: []edit{{"info.go", "err == nil && n.Version <= valueVersion {", "err == nil {"}},
	},
	{
		name: "forced release of a later version believed", tests: "TestUpgradeEviction",
		edits: []edit{{"sentinel.go", "err != nil || e.Version > valueVersion {", "err != nil {"}},
	},
	{
		name: "work in a state of a later version begun", tests: "TestUpgradeRecord",
		edits: []edit{{"record.go", "	case !r.State.stored():\n", "	case r.State == \"\":\n"}},
	},
}
