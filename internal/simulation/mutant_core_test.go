package simulation_test

// coreMutants are about giving up, hot keys, slots, deaf watches, locks and growth. Those
// with tests concern what random clients seldom run into, or what costs them only
// time.
var coreMutants = []mutant{
	{
		name: "local waiter that leaves before its turn and lets others pass", tests: "TestFollowerGivesUpBeforeItsTurn",
		edits: []edit{{"internal/line/local.go", "f.Again = f.Before //", "f.Again = nil //"}},
	},
	{
		name: "local waiters that follow another session", tests: "TestLocalWaitersOfTwoSessions", unseen: apart,
		edits: []edit{
			{"internal/term/local.go", "next.ID == id && next.s == t.s && !next.local.Closed", "next.ID == id && !next.local.Closed"},
			{"internal/line/waiter.go", "w != nil && w.a.S == s {", "w != nil {"},
			{"internal/protocol/ending.go", "e.Local.Value, e.Local.Lease)", "e.Local.Value, e.Held.Lease)"},
		},
	},
	{
		name: "releases that queue behind acquisitions", tests: "TestGivingUpDoesNotWaitForCallers", unseen: alone,
		edits: []edit{{"internal/txn/batcher.go", "		if c.Urgent {\n			b.urgent = append(b.urgent, c)\n", "		if c == nil {\n			b.urgent = append(b.urgent, c)\n"}},
	},
	{
		name: "a refusal that answers one caller only", tests: "TestHotKeyIsRefusedToAllAtOnce", unseen: alone,
		edits: []edit{{"internal/txn/ask.go", "a != nil && !a.Departed.Load() {", "a != nil && a.key != k {"}},
	},
	{
		name: "lease of records that is given up after the time of one request", of: "etcdclaims/work", tests: "TestFirstOutcomeWhileNoLeaseIsGranted",
		edits: []edit{{"internal/retention/leases.go", "WithTimeout(ctx, 2*h.host.Store().Timeout())", "WithTimeout(ctx, h.host.Store().Timeout())"}},
	},
	{
		name: "outcome of work that each waiter learns in its turn", of: "etcdclaims/work", tests: "TestOutcomeReachesAllWhoWait",
		edits: []edit{{"etcdclaims/work/outcome.go", "if len(o.ends(ev.Kv, asking)) > 0 {", "if len(o.ends(ev.Kv, asking)) < 0 {"}},
	},
	{
		name: "outcome of work read by each waiter for itself", of: "etcdclaims/work", tests: "TestOutcomeReachesTheDeaf",
		edits: []edit{{"etcdclaims/work/plan.go", "if !told {", "if told {"}},
	},
	{
		name: "outcome of work believed from an event", of: "etcdclaims/work", tests: "TestForgottenOutcomeIsNoAnswer",
		edits: []edit{{"etcdclaims/work/outcome.go", "			if len(o.ends(ev.Kv, asking)) > 0 {\n", `			for _, s := range o.ends(ev.Kv, asking) {
				o.all.mu.Lock()
				s.record = ev.Kv
				if s.wake != nil {
					s.wake()
				}
				o.all.mu.Unlock()
			}
			if len(o.ends(ev.Kv, asking)) < 0 {
`}},
	},
	{
		name: "record of an attempt that nobody got, left behind", of: "etcdclaims/work", tests: "TestUndoOfWorkWithoutALease|TestBeginInAnOutage",
		edits: []edit{{"internal/record/known.go", "txn.ValueIs([]byte(key), put)", "txn.ValueIs([]byte(key), before)"}},
	},
	{
		name: "given back and unknown, taken for lost", tests: "TestLossyWorkEnding",
		edits: []edit{{"host.go", "	if e.Deletes {\n", "	if e.Deletes && out == nil {\n"}},
	},
	{
		name: "lease of records that is not kept for work under way", of: "etcdclaims/work", tests: "TestRecordOutlivesItsOwner|TestRetentionLeaseIsKeptForRequestsUnderWay",
		edits: []edit{{"internal/retention/keep.go", "		owned[l] = true\n", "		owned[nil] = l != nil\n"}},
	},
	{
		name: "turn in line that ends with its caller", of: "etcdclaims/work", tests: "TestWaitersForWorkTakeTurns",
		edits: []edit{{"etcdclaims/work/outcome.go", "			close(o.turns[0].turn)\n", "			_ = o\n"}},
	},
	{
		name: "callers that read their places before they share a claim", tests: "TestReentrantHerd",
		edits: []edit{
			{"internal/line/await.go", "			if w.mayShare(a) {\n", "			if a != nil {\n"},
			{"internal/line/await.go", "ev.Shares = w.mayShare(w.a)", "ev.Shares = w.listed.awaited.Key == \"\" && w.mayShare(w.a)"},
		},
	},
	{
		name: "repeat refused without a last look", of: "middleware", tests: "TestOnceReadsTheRecordBeforeItRefuses",
		edits: []edit{{"middleware/turn.go", "if called || !errors.As(err, &late) {", "if called || errors.As(err, &late) || err != nil {"}},
	},
	{
		name: "client that New has not made, used", tests: "TestNoClient",
		edits: []edit{{"client.go", "if c == nil || c.log == nil {", "if c == nil {"}},
	},
	{
		name: "keys of features that callers can claim", tests: "TestKeptKeys",
		edits: []edit{{"options.go", "err != nil || o.ownKey {", "err != nil || o != nil {"}},
	},
	{
		name: "an answer given to who asked after it", tests: "TestLaterCallerAsksAnew", unseen: alone,
		edits: []edit{{"internal/txn/ask.go", "a != nil && !a.Departed.Load() {", "a != nil {"}},
	},
	{
		name: "undo, one at a time", tests: "TestUndosShareRoundTrips",
		edits: []edit{{"internal/lease/cleanup.go", "const mostWorkers = 2 * txn.FullBatch", "const mostWorkers = 1 + 0*txn.FullBatch"}},
	},
	{
		name: "waiters not asked again at renewals", seeds: 100,
		edits: []edit{{"internal/term/verify.go", "	waits := k.ts.Waiters.Of(k.s)\n", "	waits := k.ts.Waiters.Of(k.s)[:0]\n"}},
	},
	{
		name: "MinHold given up with its caller's context", seeds: 100,
		edits: []edit{{"internal/term/move.go", "		m.later()\n	}\n	t.finish(claimerr.ErrReleased)\n", "		t.terms.CleanUp(t.ID, &lease.Cleanup{Of: t.s, What: \"releasing a claim\", Do: t.delete})\n	}\n	t.finish(claimerr.ErrReleased)\n"}},
	},
	{
		name: "MaxHold that does not count sleep", tests: "TestMaxHoldCountsSleep",
		edits: []edit{{"internal/lease/notices.go", "slept := passed-last.Awake() > pulse/10", "slept := passed < 0"}},
	},
	{
		name: "empty session that does not ask for the epoch after a restore", of: "internal/lease", tests: "TestRenewEmptySession",
		edits: []edit{{"internal/lease/renew.go", "rev < seen {", "rev > seen+1<<40 {"}},
	},
	{
		name: "time limit that is used again after it has passed", of: "internal/txn", tests: "TestTimeLimit", unseen: timeless,
		edits: []edit{{"internal/txn/timelimit.go", "if l.timer.Stop() {", "if l.timer.Stop() || true {"}},
	},
	{
		name: "refusal of the server taken for the end of the caller", of: "internal/txn", tests: "TestSend", unseen: mirrored,
		edits: []edit{{"internal/txn/sender.go", "clientv3.ContextError(unlessOnce(callCtx, ctx), err)", "clientv3.ContextError(callCtx, err)"}},
	},
	{
		name: "pulse that does not begin again", of: "internal/lease", tests: "TestPulseRests",
		edits: []edit{{"internal/lease/notices.go", "if len(p.used) > 0 {", "if len(p.used) >= 0 {"}},
	},
	{
		name: "claim that is returned while ReleaseAll gives it up", of: "internal/acquire", tests: "TestGrantOfAClaimThatIsBeingReleased",
		edits: []edit{{"internal/acquire/acquire.go", "if err := t.Standing(); err", "if err := t.Err(); err"}},
	},
	{
		name: "MaxHold that begins before its claim", of: "internal/term", tests: "TestMaxHoldOfAClaimThatIsRefused",
		edits: []edit{
			{"internal/term/term.go", "	t.limitLocked()\n	return t\n", "	return t\n"},
			{
				"internal/term/term.go", "	t.mu.Lock() // what ends it from now on waits until it is whole\n	defer t.mu.Unlock()\n",
				"	t.limitLocked()\n",
			},
		},
	},
	{
		name: "MaxHold that Check does not look at", tests: "TestMaxHoldCountsSleep",
		edits: []edit{{"internal/term/check.go", "	if len(t.limits) > 0 {\n", "	if len(t.limits) > 99 {\n"}},
	},
	{
		name: "beat that counts although it comes too late", tests: "TestProgressStops",
		edits: []edit{{
			"internal/term/limit.go", "	if t.work.cause != nil {\n		return t.work.cause\n",
			"	if err := t.Err(); err != nil {\n		return err\n",
		}},
	},
	{
		name: "limit that is forgotten when an end comes to nothing", of: "internal/term", tests: "TestProgress",
		edits: []edit{{"internal/term/phase.go", "			t.armLocked(t.terms.Clock.Now()) // a limit that was reached meanwhile counts now\n", ""}},
	},
	{
		name: "Close that ends belief last", seeds: 100,
		edits: []edit{{"internal/term/all.go", "t.Lose(why) {", "t == nil {"}, {"internal/term/phase.go", "	if err == nil {\n		t.parting.Store(leavingForGood)\n", "	if err == nil {\n		t.parting.Store(staying)\n"}},
	},
	{
		name: "Close that forgets a session being opened", tests: "TestCloseWhileASessionOpens",
		edits: []edit{{"internal/lease/close.go", "return p.isBusy() || p.isOpening()", "return p.isBusy()"}},
	},
	{
		name: "unknown outcome without its caller's deadline", tests: "TestDeadlineNoticedByOthersFirst", unseen: mirrored,
		edits: []edit{{"internal/txn/outcome.go", "		return unknownError{withCause(ctx, u.error)}\n", "		return u\n"}},
	},
	{
		name: "history that takes each end of a shared key for a release", tests: "TestHistoryOfSharedKey",
		edits: []edit{{"etcdclaims/admin/pastterm.go", "	if t.Kind == protocol.KindShared && t.EndRevision > 0", "	if t.Kind == protocol.KindSlots && t.EndRevision > 0"}},
	},
	{
		name: "history that keeps all terms", of: "etcdclaims/admin", tests: "TestHistoryKeepsFewTerms",
		edits: []edit{{"etcdclaims/admin/pastterm.go", "	if len(l.terms) >= 2*l.keep {", "	if len(l.terms) < 0 {"}},
	},
	{
		name: "late lock that makes its way after a release", of: "etcdclaims/locks", tests: "TestLateLockOnALeaseThatStays",
		edits: []edit{{"etcdclaims/locks/put.go", `, clientv3.Compare(clientv3.CreateRevision(l.Void(id)), "=", 0)),`, "),"}},
	},
	{
		name: "late lock that other locks of the client do not settle", of: "etcdclaims/locks", tests: "TestLateLockOfOtherLocks",
		edits: []edit{{"etcdclaims/locks/put.go", "c.Kept(putsName{}, func() any { return new(puts) }).(*puts)", "new(puts)"}},
	},
	{
		name: "lock refused after a release of unknown outcome", of: "etcdclaims/locks", tests: "TestLockRefusedAfterUnknown",
		edits: []edit{{"etcdclaims/locks/locks.go", "			return false, txn.AfterSent(sent, err)\n", "			return false, err\n"}},
	},
	{
		name: "lock that outlives its epoch", of: "etcdclaims/locks", tests: "TestLocksAfterRaisedEpoch",
		edits: []edit{{"etcdclaims/locks/state.go", "return s.holder.Epoch != e.Value }", "return e == nil }"}},
	},
	{
		name: "void keys that count as nothing", tests: "TestVoidsFillASession",
		edits: []edit{{"internal/lease/room.go", "len(r.members) + r.reserved + len(r.voids) }", "len(r.members) + r.reserved }"}},
	},
	{
		name: "session that has ended before its claims are lost", of: "internal/lease", tests: "TestClaimsAreLostBeforeTheirSessionHasEnded",
		edits: []edit{
			{"internal/lease/session.go", "	close(s.dead)\n	s.p.forget(s)\n", "	s.p.forget(s)\n"},
			{"internal/lease/session.go", "	lost := members[:0]\n", "	close(s.dead)\n	lost := members[:0]\n"},
		},
	},
	{
		name: "session that takes claims while it loses those it has", of: "internal/lease", tests: "TestClaimsAreLostBeforeTheirSessionHasEnded",
		edits: []edit{
			{"internal/lease/session.go", "	s.cause = &why\n", ""},
			{"internal/lease/session.go", "	close(s.dead)\n	s.p.forget(s)\n", "	s.mu.Lock()\n	s.cause = &why\n	s.mu.Unlock()\n	close(s.dead)\n	s.p.forget(s)\n"},
		},
	},
	{
		name: "session found dead by who does not wait for its claims", of: "internal/lease", tests: "TestWhoFindsASessionDeadWaitsForItsClaims",
		edits: []edit{{"internal/lease/session.go", "		<-s.dead // another call is about to end them\n", ""}},
	},
	{
		name: "session that ended before it was admitted, kept", of: "internal/lease", tests: "TestDeadBeforeAdmission",
		edits: []edit{{"internal/lease/pool.go", "if !s.IsLost() {", "if s != nil {"}},
	},
	{
		name: "deadline that is not enforced while the session ends", of: "internal/lease", tests: "TestWhoFindsASessionDeadWaitsForItsClaims",
		edits: []edit{{"internal/lease/deadline.go", "		s.mu.Unlock()\n		<-s.dead\n", "		s.mu.Unlock()\n"}},
	},
	{
		name: "idle session that never ends", tests: "TestIdleSessionsEnd",
		edits: []edit{{"internal/lease/room.go", "time.AfterFunc(idle*s.Grant().TTL, s.endUnused)", "time.AfterFunc(100000*idle*s.Grant().TTL, s.endUnused)"}},
	},
	{
		name: "surplus slot handed over", seeds: 100,
		edits: []edit{{"internal/protocol/slots.go", "if s.unset || s.i >= s.n {", "if s.unset {"}},
	},
	{
		name: "slot taken whatever their number", of: "internal/protocol", tests: "TestTake",
		edits: []edit{
			{"internal/protocol/slots.go", "conditions := []*pb.Compare{s.recorded()}", "conditions := []*pb.Compare{s.recorded()}[:0]"},
			{"internal/protocol/shared.go", "conditions := []*pb.Compare{s.recorded()}", "conditions := []*pb.Compare{s.recorded()}[:0]"},
		},
	},
	{
		name: "slot that is surplus by now tried again", of: "internal/protocol", tests: "TestSurplusSlotIsNotTried",
		edits: []edit{{"internal/protocol/slots.go", "s.i = s.choose(s.n) // the one", "s.i = before.n - 1 // the one"}},
	},
	{
		name: "slot that a caller has stood in line for, refused for another number", of: "internal/protocol", tests: "TestAdvance",
		edits: []edit{{"internal/protocol/slots.go", "	s.inLine = s.inLine || seen.Joined\n	if !isRecord {\n		return s, Judged{Own: seen.Record}, nil\n	}\n", "	if !isRecord {\n		return s, Judged{Own: seen.Record}, nil\n	}\n	s.inLine = s.inLine || seen.Joined\n"}},
	},
	{
		name: "first in line for a slot not asked at renewals", tests: "TestSlotsOfTheDead|TestSlotsResizedUnheard",
		edits: []edit{{"internal/line/waiter.go", "		case w.awaited.Rev == everyRenewal:\n			w.doubt()\n", ""}},
	},
	{
		name: "shared claim whose guard is its own key alone", of: "internal/protocol", tests: "TestGuard",
		edits: []edit{{"internal/protocol/held.go", "return append(guard, h.Mode.Guard(h.Fence).Stands()...)", "return guard"}},
	},
	{
		name: "slot that is held under any record", of: "internal/protocol", tests: "TestGuard",
		edits: []edit{{"internal/protocol/mode.go", ", txn.CreatedBefore(r.Name, r.Rev+1)}", ", txn.CreatedAfter(r.Name, 0)}"}},
	},
	{
		name: "verification that leaves out the record", of: "internal/protocol", tests: "TestGuard",
		edits: []edit{{"internal/protocol/verify.go", "		in.Compare = append(in.Compare, h.Mode.Guard(h.Fence).Stands()...)\n", ""}},
	},
	{
		name: "slot free as soon as its record is gone", tests: "TestSlotsRecordDeleted",
		edits: []edit{{"internal/term/term.go", "	if !t.Mode.Guard(t.Fence).Unchanged {\n", "	if !t.Mode.Guard(t.Fence).Unchanged && t.s == nil {\n"}},
	},
	{
		name: "record deleted beside other shared claims", seeds: 100,
		edits: []edit{{"internal/protocol/shared.go", "Compare: []*pb.Compare{claims, record}", "Compare: []*pb.Compare{record}"}},
	},
	{
		name: "shared caller that passes exclusive ones in line", seeds: 100,
		edits: []edit{{"internal/protocol/join.go", "	case !s.First: // none", "	case s.Queued < 0: // none"}},
	},
	{
		name: "shared claim of an epoch before joined", of: "internal/protocol", tests: "TestTake",
		edits: []edit{{"internal/protocol/shared.go", "return err == nil && h.Epoch == s.epoch", "return err == nil && h.Epoch >= 0"}},
	},
	{
		name: "abandoned record deleted beside shared claims", of: "internal/protocol", tests: "TestClear",
		edits: []edit{{"internal/protocol/shared.go", ", txn.NoneUnder(s.Sharers(s.Key))}", "}"}},
	},
	{
		name: "shared claims that end and begin in one round trip", of: "internal/txn", tests: "TestAKeyOccursOnce", unseen: alone,
		edits: []edit{{"internal/txn/request.go", "b == Leaves && (c == Joins || c == Clears):", "b == Leaves && (c == Joins || c == Clears), b+c == Joins+Clears:"}},
	},
	{
		name: "shared claims of one round trip that all think that they are alone", tests: "TestSharedTwinsRelease", unseen: alone,
		edits: []edit{
			{"internal/protocol/release.go", "s.Mode.Leave(s.Value, s.Alone)", "s.Mode.Leave(string(rune(keyspace.Revision(s.Fence))), true)"},
			{"internal/protocol/shared.go", "	claims.RangeEnd = ", "	if rev := []rune(value); len(rev) == 1 {\n		claims = txn.ModifiedAt(claims.Key, int64(rev[0]))\n	}\n	claims.RangeEnd = "},
		},
	},
	{
		name: "key of a shared claim that was lost with the record", tests: "TestSharedLostWithTheRecord",
		edits: []edit{{"internal/term/term.go", "} else if t.TakeAway(claimerr.Loss{Reason: reason}) { ", "} else if t.TakeAway(claimerr.Loss{Reason: reason}) && t.s == nil { "}},
	},
	{
		name: "shared holder that takes another record for its own", of: "internal/protocol", tests: "TestReleaseWithOperations",
		edits: []edit{{"internal/protocol/shared.go", "	if seen.Held {\n", "	if seen.Held && seen.Record == nil {\n"}},
	},
	{
		name: "fence of a shared claim from its own key", of: "internal/protocol", tests: "TestTokens",
		edits: []edit{{"internal/protocol/mode.go", "keyspace.Fence(keyspace.Epoch(fence), r.Rev)", "fence"}},
	},
	{
		name: "record left by the last holders", tests: "TestSharedTogether",
		edits: []edit{{"internal/term/ending.go", "	if !a.Emptied {\n", "	if !a.Emptied || t.s != nil {\n"}},
	},
	{
		name: "note of another owner taken for one's own", of: "internal/protocol", tests: "TestWriteNote", unseen: unused,
		edits: []edit{{"internal/protocol/force.go", "n.State == Kept && string(now.Value) == s.Value", "string(now.Value) == s.Value"}},
	},
	{
		name: "note of a later version believed", tests: "TestUpgradeNote",
		edits: []edit{{"info.go", "err == nil && n.Version <= protocol.Version {", "err == nil {"}},
	},
	{
		name: "forced release of a later version believed", tests: "TestUpgradeEviction",
		edits: []edit{{"internal/term/evict.go", "err != nil || e.Version > protocol.Version {", "err != nil {"}},
	},
	{
		name: "work in a state of a later version begun", tests: "TestUpgradeRecord", unseen: texts,
		edits: []edit{{"internal/record/record.go", "	case !v.State.stored():\n", "	case v.State == \"\":\n"}},
	},
	{
		name: "History that asks for progress once", tests: "TestHistoryAsksAgainForProgress",
		edits: []edit{{"internal/feed/past.go", "time.NewTicker(again)", "time.NewTicker(again + time.Hour)"}},
	},
	{
		name: "outage that only claims notice", tests: "TestEtcdAway", of: "internal/scenarios",
		edits: []edit{{"internal/store/store.go", "\ts.cfg.ObserveOther(ctx, sent, err)\n", ""}},
	},
	{
		name: "outage that names no call that waits", tests: "TestEtcdAway", of: "internal/scenarios",
		edits: []edit{{"internal/line/line.go", "\tdefer l.Outage.Await(key)()\n", ""}},
	},
	{
		name: "handler that waits for itself without a word", tests: "TestOwnWaitIsLogged",
		edits: []edit{{"internal/line/local.go", "\tdefer l.OwnWaits.Watch(ctx, attemptOf(f).User, attemptOf(f).Call.From)()\n", ""}},
	},
	{
		name: "Close that leaves queues and schedulers to themselves", tests: "TestCloseEndsAll", of: "internal/scenarios",
		edits: []edit{{"close.go", "\tc.dependents.End(ctx)\n", ""}},
	},
	{
		name: "what is made after Close stays open", tests: "TestMadeAfterClose", of: "internal/scenarios",
		edits: []edit{{"internal/attach/dependents.go", "\t\td.closed = true\n", ""}},
	},
	{
		name: "Close that ends one by one when its time is over", tests: "TestCloseEndsTheRestSideBySide", of: "internal/attach",
		edits: []edit{{"internal/attach/dependents.go", "\t\tcase <-ended:\n\t\tcase <-ctx.Done():\n", "\t\tcase <-ended:\n"}},
	},
	{
		name: "Close that ends the oldest first", tests: "TestCloseEndsAll", of: "internal/scenarios",
		edits: []edit{{"internal/attach/dependents.go", "\tx := d.ends[last]\n\td.ends = d.ends[:last:last]\n", "\tx := d.ends[0]\n\td.ends = d.ends[1:]\n"}},
	},
	{
		name: "lost reply to the end of a claim taken for a refusal", of: "internal/protocol", tests: "TestEndingInAnyOrder",
		edits: []edit{{"internal/protocol/ending.go", "if e.Ops == nil || e.sent {", "if e.Ops == nil {"}},
	},
	{
		name: "claim of a local waiter left after a lost reply", of: "internal/protocol", tests: "TestEndingInAnyOrder", unseen: apart,
		edits: []edit{{"internal/protocol/endrest.go", "if e.Local != nil {", "if e.Local != nil && e.tries < 0 {"}},
	},
	{
		name: "release that pauses when its line has changed", of: "internal/protocol", tests: "TestEnding", unseen: timeless,
		edits: []edit{{"internal/protocol/endrefusal.go", "case e.tries <= mostHandOvers:", "case e.tries < 1:"}},
	},
	{
		name: "claim that is gone after an unanswered hand-over taken for lost", tests: "TestFollowersOfAClaimThatEnds", unseen: apart,
		edits: []edit{{"internal/protocol/ending.go", "e.Local, e.locals, e.tries = nil, locals, 0", "e.Local, e.locals, e.tries, e.sent = nil, locals, 0, false"}},
	},
	{
		name: "key freed again and again without a pause", of: "internal/protocol", tests: "TestEnding", unseen: timeless,
		edits: []edit{{"internal/protocol/endrefusal.go", "	case e.frees: ", "	case e.frees && e.tries < 0: "}},
	},
	{
		name: "release with operations that a put of another proves", tests: "TestReleaseWithProof",
		edits: []edit{{"internal/protocol/endops.go", "case ev.Kind == EndReplied && e.past.Judge(ev.Reply):", "case ev.Kind == EndReplied && (e.past.Judge(ev.Reply) || e.sent):"}},
	},
	{
		name: "release with operations that hands nothing over", tests: "TestReleaseWithHandsOver",
		edits: []edit{{"release.go", "Ops: ops, HandsOver: true}", "Ops: ops, HandsOver: false}"}},
	},
	{
		name: "release with operations that goes on without its record", tests: "TestReleaseWithoutRecord",
		edits: []edit{{"internal/protocol/ending.go", "return e.Record(resp) //", "return Kept //"}},
	},
	{
		name: "operations of ended work taken for done", of: "etcdclaims/work", tests: "TestReleaseWithAfterTheEnd",
		edits: []edit{{"etcdclaims/work/ending.go", "state == StateFree && ops == 0 {", "state == StateFree && ops >= 0 {"}},
	},
	{
		name: "Release under an ended context left to the background", tests: "TestReleaseUnderAnEndedContext",
		edits: []edit{{"release.go", "\tif txn.ContextError(ctx) == nil {\n\t\treturn ctx", "\tif txn.ContextError(ctx) == nil || true {\n\t\treturn ctx"}},
	},
	{
		name: "outage that gRPC's wait outlasts", tests: "TestEverythingReturnsSoonAfterOutage",
		edits: []edit{{"internal/outage/outage.go", "\t\t\tconn.ResetConnectBackoff()\n", "\t\t\t_ = conn\n"}},
	},
	{
		name: "MinHold of one key alone at Close", tests: "TestMinHoldOfManyKeys|TestMinHoldSurvivesCloseAndReleaseAll",
		edits: []edit{{"internal/term/all.go", "ts.restAll(ctx, resting, func", "ts.restAll(ctx, resting[:min(1, len(resting))], func"}},
	},
	{
		name: "Close that releases nothing after its context", tests: "TestCloseWithEndedContext",
		edits: []edit{{"close.go", "context.WithTimeout(context.WithoutCancel(ctx), 2*c.store.Timeout())", "context.WithTimeout(ctx, 2*c.store.Timeout())"}},
	},
	{
		name: "Watch that does not count what etcd has", tests: "TestDeafWatchIsMadeUpFor",
		edits: []edit{{"internal/watch/audit.go", "int64(len(w.known)) != a.count", "a.count < 0"}},
	},
	{
		name: "unreadable record that ends the records", of: "etcdclaims/work", tests: "TestRecords",
		edits: []edit{{"etcdclaims/work/records.go", "r, _ := decodeRecord(strings.TrimPrefix(string(kv.Key), root), kv) // in StateUnreadable if it cannot be read\n", "r, bad := decodeRecord(strings.TrimPrefix(string(kv.Key), root), kv)\nif bad != nil {\nyield(Record{}, bad)\nreturn\n}\n"}},
	},
	{
		name: "name of a place that a late request may take", of: "internal/line", tests: "TestNamesAreUsedAgain",
		edits: []edit{{"internal/line/wait.go", "r.Term != nil && a.Settled()", "r.Term != nil"}},
	},
	{
		name: "name of a place that a late request may delete", of: "internal/line", tests: "TestNamesAreUsedAgain",
		edits: []edit{{"internal/acquire/undo.go", "		first = false\n", "		_ = first\n"}},
	},
	{
		name: "name of a key that a restore may have brought back", of: "internal/acquire", tests: "TestNames",
		edits: []edit{{"internal/acquire/names.go", "	return epoch == n.epoch", "	return true"}},
	},
	{
		name: "new names for ever", of: "etcdclaims", tests: "TestAKeyHasFewKeys",
		edits: []edit{{"internal/term/ending.go", "		if t.freed != nil {", "		if t.freed != nil && t.IsLost() {"}},
	},
	{
		name: "place in line of somebody else's claim", of: "internal/protocol", tests: "TestRelease",
		edits: []edit{{
			"internal/protocol/place.go", "h.Kind != KindSelf && its && h.Epoch == epoch && p.Lease != 0",
			"h.Kind != KindSelf && (its || true)",
		}},
	},
	{
		name: "Reentrant callers in line that wait for their own client", seeds: 100,
		edits: []edit{{"internal/line/wait.go", "	return a.Call.Reentrant && ", "	return a.Call.Reentrant && a == nil && "}},
	},
	{
		name: "Reentrant that shares an ended claim", tests: "TestReentrantSharesNoEndedClaim",
		edits: []edit{{"internal/term/terms.go", "t.life.phase == phaseHeld && t.work.cause == nil && t.s.Fresh()", "t.life.phase == phaseHeld"}},
	},
	{
		name: "back-off that overflows", tests: "TestExponentialBackoff",
		edits: []edit{{"backoff.go", "shift < 63 && base > 0 && base <= limit>>shift", "base<<shift <= limit"}},
	},
	{
		name: "error cut inside a rune", of: "etcdclaims/work", tests: "TestFailCutsBetweenRunes", unseen: texts,
		edits: []edit{{"internal/record/record.go", "for !utf8.RuneStart(s[cut]) {", "for cut < 0 {"}},
	},
	{
		name: "prefix within the keys of another client's callers", tests: "TestConfigRefused",
		edits: []edit{{"internal/keyspace/prefix.go", "[...]string{\"own/\", \"note/\", \"work/\"}", "[...]string{\"note/\", \"work/\"}"}},
	},
	{
		name: "release of all locks that ends with the first", of: "etcdclaims/locks", tests: "TestLocksReleaseAllGoesOn",
		edits: []edit{{"etcdclaims/locks/locks.go", "core.EachOf(p.Kvs, func(kv *mvccpb.KeyValue) {", "core.EachOf(p.Kvs[:1], func(kv *mvccpb.KeyValue) {"}},
	},
	{
		name: "lock that expired, released", of: "etcdclaims/locks", tests: "TestReleaseOfLockThatExpires",
		edits: []edit{{"etcdclaims/locks/locks.go", "return false, txn.Unknown(errors.New(\"the lock is gone, by this call or by the end of its TTL\"))", "return true, nil"}},
	},
	{
		name: "watch with a backlog without bound", tests: "TestSlowWatchConsumer",
		edits: []edit{{"internal/feed/feed.go", "const Backlog = 4096", "const Backlog = 1 << 30"}},
	},
	{
		name: "calls with other credentials in one round trip", tests: "TestMetadataIsNotShared", unseen: alone,
		edits: []edit{{"internal/txn/batch.go", "t.calls[0].meta.Name != c.meta.Name", "t.calls[0].meta.Name == \"none\""}, {"internal/acquire/ask.go", "meta: txn.MetadataOf(ctx).Name}", "meta: \"\"}"}},
	},
	{
		name: "permission that is gone, reported as a lost session", tests: "TestRevokedPermissionIsTheCause",
		edits: []edit{{"internal/lease/deadline.go", "case errors.Is(*p, txn.ErrPermissionDenied):", "case errors.Is(*p, txn.ErrPermissionDenied) && p == nil:"}},
	},
	{
		name: "refusal for callers with the same lease alone", tests: "TestHotKeyIsRefusedToAllAtOnce",
		edits: []edit{{"internal/acquire/ask.go", "askKey{key: key, beside:", "askKey{key: key + o.TTL.String(), beside:"}},
	},
	{
		name: "release of a lock that waits for its lease", of: "etcdclaims/locks", tests: "TestReleaseDoesNotWaitForTheLease",
		edits: []edit{{"etcdclaims/locks/put.go", "	case <-late.C:\n	case <-ctx.Done():\n", ""}},
	},
	{
		name: "newcomers that all put the record of a shared key", tests: "TestSharedChurn",
		edits: []edit{{"internal/line/line.go", "	if o.Mode.Keys().Record {\n		known =", "	if o.Mode == nil {\n		known ="}},
	},
	{
		name: "timeout of a request that begins in its queue", of: "internal/txn", tests: "TestRequestsThatWaitDoNotTimeOut", unseen: mirrored,
		edits: []edit{{"internal/txn/call.go", "	if !c.Until.IsZero() {\n", "	if c.Until.IsZero() {\n		c.Until = time.Now().Add(b.cfg.Timeout)\n	}\n	if !c.Until.IsZero() {\n"}},
	},
	{
		name: "timeout of a cleanup that begins in its queue", tests: "TestCleanupsThatWaitDoNotTimeOut",
		edits: []edit{{"internal/lease/cleanup.go", "	err := c.Do(cs.cfg.Life.IO)\n", "	ctx, cancel := context.WithTimeout(cs.cfg.Life.IO, cs.cfg.Store.Timeout())\n	defer cancel()\n	err := c.Do(ctx)\n"}},
	},
	{
		name: "release after a handler that etcd may hold up", tests: "TestRunReturnsSoonInAnOutage",
		edits: []edit{{"run.go", "	ctx, cancel := context.WithTimeout(cl.c.life.IO, cl.c.store.Timeout())\n", "	ctx, cancel := context.WithCancel(cl.c.life.IO)\n"}},
	},
	{
		name: "outcome after a handler that etcd may hold up", tests: "TestRunReturnsSoonInAnOutage",
		edits: []edit{{"etcdclaims/work/ending.go", "	ctx, cancel := context.WithTimeout(w.c.host.IO(), w.c.host.Store().Timeout())\n", "	ctx, cancel := context.WithCancel(w.c.host.IO())\n"}},
	},
	{
		name: "cleanup that repeats a move although its time has passed", tests: "TestMinHoldOverInAnOutage",
		edits: []edit{{"internal/term/move.go", "			return t.delete(ctx)\n		}\n		if err := m.carryOutOnce(ctx)", "			return t.delete(ctx)\n		}\n		if err := m.carryOut(ctx)"}},
	},
	{
		name: "concern that keeps nothing apart", of: "internal/protocol", tests: "TestConcerns", unseen: alone,
		edits: []edit{{"internal/protocol/try.go", "append(keys.concerned(record != \"\"), t.Ask.Concern...)", "keys.concerned(record != \"\")"}},
	},
	{
		name: "transaction under a claim that shares whatever it concerns", of: "internal/protocol", tests: "TestConcerns", unseen: alone,
		edits: []edit{{"internal/protocol/held.go", "r.Key, r.Also = s.Mode.Keys().Line, s.Concern", "r.Key, r.Also = s.Mode.Keys().Line, nil"}},
	},
	{
		name: "round trip without what each is to carry", of: "internal/txn", tests: "TestAlso", unseen: alone,
		edits: []edit{{"internal/txn/batch.go", "	in.Success = append(in.Success, b.cfg.Also...)\n", ""}},
	},
	{
		name: "retries that come back together", of: "internal/retry", tests: "TestDelay",
		edits: []edit{{"internal/retry/retry.go", "time.Millisecond + rand.N(", "time.Millisecond - rand.N(time.Duration(1)) + ("}},
	},
	{
		name: "reply that is too large asked for again unchanged", of: "internal/retry", tests: "TestPages|TestReadsInParts",
		edits: []edit{{"internal/retry/pages.go", "limit, most = limit/2, max(most/2, 1)\n", ""}},
	},
	{
		name: "refusal of a learner that is final", of: "internal/txn", tests: "TestVerdictOfEachErrorOfEtcd", unseen: mirrored,
		edits: []edit{{"internal/txn/refusal.go", "named(rpctypes.ErrGRPCNotSupportedForLearner): NotSent,", "named(rpctypes.ErrGRPCNotSupportedForLearner): Final,"}},
	},
	{
		name: "HTTP status of a proxy as a refusal of etcd", of: "internal/txn", tests: "TestVerdictOfOtherErrors", unseen: mirrored,
		edits: []edit{{"internal/txn/refusal.go", "			return codes.Unavailable\n", "			return st.Code()\n"}},
	},
	{
		name: "write by another KV that found no connection and is unknown", of: "internal/txn", tests: "TestNotSentByAnotherKV", unseen: mirrored,
		edits: []edit{{"internal/txn/sender.go", "return nil, false, WithCause(ctx, fmt.Errorf(\"%w: %w\", ErrNotSent, err))\n		}\n		cmps", "return nil, true, err\n		}\n		cmps"}},
	},
	{
		name: "suspicion although the holder has answered", of: "internal/protocol", tests: "TestSuspicion", unseen: trusted,
		edits: []edit{{"internal/protocol/over.go", ", txn.ModifiedAt([]byte(s.Question), s.Rev),", ","}},
	},
	{
		name: "suspicion of a later holder", of: "internal/protocol", tests: "TestSuspicion", unseen: trusted,
		edits: []edit{{
			"internal/protocol/over.go",
			"txn.ModifiedAt(s.Own.Key, s.Own.ModRevision), txn.OnLease(s.Own.Key, s.Own.Lease), txn.ModifiedAt(", "txn.ModifiedAt(",
		}},
	},
	{
		name: "suspicion after one unanswered look", seeds: 100,
		edits: []edit{{"internal/suspicion/standing.go", "x.began.Sub(q.since) >= patience {", "x.began.Sub(q.since) >= patience/9 {"}},
	},
	{
		name: "suspicion without a notice for the holder", of: "internal/protocol", tests: "TestSuspicion", unseen: trusted,
		edits: []edit{{"internal/protocol/join.go", "	if s.Over != nil && s.Over.Notify != nil {", "	if s.Over != nil && s.Over.Notify == nil {"}},
	},
	{
		name: "no patience after an outage", tests: "TestSuspectNobodyWithoutEtcd",
		edits: []edit{{"internal/suspicion/inquiries.go", "		l.q.least = afterOutage\n", "		_ = l\n"}},
	},
	{
		name: "wrong suspicion that is forgotten", tests: "TestSuspectWrongly",
		edits: []edit{{"internal/suspicion/inquiries.go", "	all.wrong[instance] = w\n", ""}},
	},
	{
		name: "suspicion that is not judged while callers wait again", tests: "TestSuspectWronglyOnceAnswersAreLate",
		edits: []edit{{"internal/suspicion/inquiry.go", "	case answered:\n		q.judge(true)\n", "	case answered:\n		q.taken = 0\n"}},
	},
	{
		name: "patience that ignores how far the holder is", tests: "TestSuspectNobodyFar|TestSuspectNobodyWhoseAnswersAreLate",
		edits: []edit{{"internal/suspicion/standing.go", "				q.answers.took(q.stood)\n", ""}},
	},
	{
		name: "impatience with a client that has not answered yet", tests: "TestSuspectNobodyFar|TestSuspectNobodyWhoseAnswersAreLate",
		edits: []edit{{"internal/suspicion/inquiry.go", "least: firstPatience}", "least: 0}"}},
	},
	{
		name: "accuser that ignores how far it is itself", tests: "TestSuspectNobodyFar",
		edits: []edit{{"internal/suspicion/patience.go", "3*time.Duration(t))<<min(failures, 5), longestLook)", "3*time.Duration(min(t, 0)))<<min(failures, 0), longestLook)"}},
	},
	{
		name: "answers that wait for the replies to answers that came", of: "internal/suspicion", tests: "TestLateRepliesHoldUpNothing",
		edits: []edit{{"internal/suspicion/pending.go", "if q.in.stand--; q.in.stand == 0 {", "if q.in.stand == 0 {"}},
	},
	{
		name: "answers to questions that are gone", tests: "TestAnswersEndWithTheirQuestion",
		edits: []edit{{"internal/suspicion/pending.go", "	p.drop(name)\n	p.failures = 0\n", "	_ = name\n	p.failures = 0\n"}},
	},
	{
		name: "questions at one pace whatever their number", tests: "TestSuspectCost",
		edits: []edit{{"internal/suspicion/patience.go", "min(askEvery/2*time.Duration(1+others), longestPace)", "min(askEvery/2*time.Duration(2+0*others), longestPace)"}},
	},
	{
		name: "answers at one pace however many ask", tests: "TestSuspectNobodyAskedByMany",
		edits: []edit{{"internal/suspicion/pending.go", "p.pace = min(pace(len(p.asked)-1), max(askEvery, p.pace*3/2))", "p.pace = min(pace(1), max(askEvery, p.pace*3/2))"}},
	},
	{
		name: "answer that counts as given although its reply was lost", of: "internal/suspicion", tests: "TestUntilAnswered",
		edits: []edit{{"internal/suspicion/pending.go", "case r != lost:", "case r <= denied:"}},
	},
	{
		name: "question that went with its lease, taken for answered", of: "internal/suspicion", tests: "TestWhatRepliesMean",
		edits: []edit{{"internal/suspicion/standing.go", "q.rev > 0 && x.kept {", "q.rev > 0 {"}},
	},
	{
		name: "question whose time counts although the accuser stood still", of: "internal/suspicion", tests: "TestWhatRepliesMean",
		edits: []edit{{"internal/suspicion/standing.go", "x.rev != q.rev || x.late || q.anew {", "x.rev != q.rev || q.anew {"}},
	},
	{
		name: "suspect whose key is tried for again although etcd denies that", of: "internal/suspicion", tests: "TestAccuserThatMayNotTakeTheKey",
		edits: []edit{{"internal/suspicion/accuser.go", "		w.forbidden = true\n", ""}},
	},
	{
		name: "questions of callers that are not the first in line", tests: "TestSuspectAsksOnlyWhenNeeded",
		edits: []edit{{"internal/suspicion/accuser.go", "!w.forbidden && p.Pred == nil && !p.Behind {", "!w.forbidden {"}},
	},
	{
		name: "hand-over to the last of several with equal preferences", of: "internal/protocol", tests: "TestRelease", unseen: unused,
		edits: []edit{{"internal/protocol/place.go", "kv.CreateRevision < best.CreateRevision", "kv.CreateRevision > best.CreateRevision"}},
	},
	{
		name: "line of the owner before kept by a claim with a preference", tests: "TestPreferAfterAnotherOrder", unseen: unused,
		edits: []edit{{"internal/protocol/ending.go", "if e.Prefers && len(e.Line.Next) > 0 {", "if e.Prefers && len(e.Line.Next) < 0 {"}},
	},
	{
		name: "undo that its client does not know of", of: "etcdclaims/work", tests: "TestUndoneWorkIsNoGhost",
		edits: []edit{{"internal/acquire/undo.go", "a.ac.CleanUp(a.ID, ", "a.ac.CleanUp(\"\", "}},
	},
	{
		name: "question of before that a client is suspected for", of: "internal/suspicion", tests: "TestAQuestionIsPutAnew",
		edits: []edit{{"internal/suspicion/inquiry.go", "	if q.stale {\n		in.Success", "	if q.stale && on == nil {\n		in.Success"}},
	},
}
