package simulation_test

// queueMutants are about queues. They are looked for in runs that have one.
var queueMutants = []mutant{
	{
		name: "items that are claimed jointly without the conditions of each", seeds: 100, queue: true, unseen: alone,
		edits: []edit{{"internal/txn/joint.go", "joint.Compare, joint.Success = append(joint.Compare, one.Compare...), append(", "joint.Success = append("}},
	},
	{
		name: "verb without the item's fence", seeds: 100, queue: true,
		edits: []edit{{"internal/item/held.go", "[]*pb.Compare{unmoved(h.Key(), h.Rev)}", "[]*pb.Compare{}"}},
	},
	{
		name: "items taken from a session that lives", seeds: 100, queue: true,
		edits: []edit{
			{"etcdclaims/queue/recover.go", "answers.Count(claims[i]) > 0 {\n				alive++\n", "answers.Count(claims[i]) > 1 {\n				alive++\n"},
			{"internal/item/recover.go", "in = &pb.TxnRequest{Compare: []*pb.Compare{absent(s.Own(s.Session))}}", "in = &pb.TxnRequest{}"},
		},
	},
	{
		name: "attempt not counted when a worker dies", seeds: 100, queue: true,
		edits: []edit{{"internal/item/recover.go", "		if st.Attempts >= st.Max {\n", "		st.Attempts--\n		if st.Attempts >= st.Max {\n"}},
	},
	{
		name: "enqueue without the condition that the item is not there", seeds: 100, queue: true,
		edits: []edit{{"internal/item/enqueue.go", "		Compare: []*pb.Compare{absent(key)},\n", ""}},
	},
	{
		name: "limit not in the claiming transaction", seeds: 100, queue: true, unseen: unused,
		edits: []edit{{"internal/item/claim.go", "			one.Compare = append(one.Compare, absent(s.slot(st.Slot)))\n", ""}},
	},
	{
		name: "claim of an item that has moved", seeds: 100, queue: true,
		edits: []edit{{"internal/item/claim.go", "[]*pb.Compare{as(e.KV), absent(taken)}", "[]*pb.Compare{absent(taken)}"}},
	},
	{
		name: "vested item moved from where it is not", seeds: 100, queue: true,
		edits: []edit{{"internal/item/waiting.go", "inner([]*pb.Compare{as(e.KV)}, then...)", "inner(nil, then...)"}},
	},
	{
		name: "release that drops the payload", seeds: 100, queue: true,
		edits: []edit{{
			"internal/item/verbs.go", "s.ends(s.uncover(st, s.place(VerbRelease), s.Now)...)",
			"s.ends(append(s.uncover(st, s.place(VerbRelease), s.Now), remove(s.Content(st.ID)))...)",
		}},
	},
	{
		name: "belief that outlasts a verb", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/verbs.go", "	l.leave()\n", ""}},
	},
	{
		name: "another's item taken for one's own", seeds: 200, queue: true,
		edits: []edit{{"internal/item/enqueue.go", "c.Seq == s.Seq", "c.Seq != \"\""}},
	},
	{
		name: "one attempt too many", seeds: 100, queue: true,
		edits: []edit{{"internal/item/verbs.go", "s.State.Attempts >= s.State.Max ||", "s.State.Attempts > s.State.Max ||"}},
	},
	{
		name: "what comes before the items that were read ahead is passed", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/arrivals.go", "	case a.edge != \"\": //", "	case a.edge == noEdge: //"}},
	},
	{
		name: "item that does not rise with its age", seeds: 100, queue: true, unseen: unused,
		edits: []edit{{"internal/item/waiting.go", "if step := int64(k.spec.Aging); step > 0 {", "if step := int64(k.spec.Aging); step < 0 {"}},
	},
	{
		name: "free slot that all who wait take at once", tests: "TestFewClaimsPerSlot", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/arrivals.go", "		a.freed[k.SlotOf(key)] = a.slotBy\n", ""}},
	},
	{
		name: "item of a partition key that is visible before its turn", seeds: 100, queue: true, unseen: unused,
		edits: []edit{{"internal/item/waiting.go", "	if st.Lacks() {\n", "	if st.Lacks() && k.root == \"\" {\n"}},
	},
	{
		name: "dead letter that keeps the turn of its partition key", seeds: 100, queue: true, unseen: unused,
		edits: []edit{{"internal/item/waiting.go", "st.Seq), p), free...)", "st.Seq), p), free[:0]...)"}},
	},
	{
		name: "cancelled item that keeps the turn of its partition key", seeds: 100, queue: true, unseen: unused,
		edits: []edit{{"internal/item/change.go", "append(s.leave(s.State), remove", "append(s.leave(State{}), remove"}},
	},
	{
		name: "turn of a partition key given twice", tests: "TestTurnIsOfTheFirst", of: "internal/item", unseen: unused,
		edits: []edit{{"internal/item/lane.go", "as(t.KV), absent(lane), ", "as(t.KV), "}},
	},
	{
		name: "item passed by a later one of its partition key", tests: "TestTurnIsOfTheFirst", of: "internal/item", unseen: unused,
		edits: []edit{{"internal/item/lane.go", "absent(lane), txn.NoneIn(t.after, t.Key())}", "absent(lane)}"}},
	},
	{
		name: "turn of another item of the partition key freed", tests: "TestLaneOfAnother", of: "internal/item", unseen: unused,
		edits: []edit{{
			"internal/item/lane.go",
			"inner([]*pb.Compare{txn.ValueIs([]byte(lane), laneOwner(st.Seq, st.ID))}, remove(lane))", "remove(lane)",
		}},
	},
	{
		name: "vested item passed by a later one of its partition key", tests: "TestVestedTurnIsNotPassed", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/lanes.go", "found.Late && !vested {", "found.Late && vested {"}},
	},
	{
		name: "partition key left to the process that died", tests: "TestKilledBeforeTheNextTurn", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/keeper.go", "		k.lanes.see(events)\n", ""}},
	},
	// The rest is found by tests of the queue itself. In a run of the simulation these
	// faults are rare: a process takes back what it claimed unknowingly within
	// milliseconds, a request is seldom late by a whole call, and a queue seldom full.
	{
		name: "bounds changed while a process uses the queue", tests: "TestReconfigure", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/queue.go", "unused := []string{q.keys.Workers(), q.keys.Taken()}", "unused := []string{}"}},
	},
	{
		name: "bounds whose second request is refused after the first", tests: "TestReconfigureUnderFaults", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/queue.go", "err != nil || now != want", "err != nil || now == want"}},
	},
	{
		name: "session made under a spec that was changed", tests: "TestReconfigureBesideFirstUse", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/sessions.go", "			etcdclaims.If(unmoved(q.keys.Spec(), rev)),\n", "			etcdclaims.If([]clientv3.Cmp{unmoved(q.keys.Spec(), rev)}[:0]...),\n"}},
	},
	{
		name: "queue of WorkMany that ends before WorkMany", tests: "TestManyQueuesStopWithClient", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/many.go", "cfg.Logger = m.cfg.Logger\n	return newUnattached(", "cfg.Logger = m.cfg.Logger\n	return New("}},
	},
	{
		name: "queues of WorkMany left open when Close must end", tests: "TestManyQueuesGiveBackWhenCloseMustEnd", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/many.go", "			m.closeAll(closing)\n", ""}},
	},
	{
		name: "sessions closed one after the other", tests: "TestCloseOfSessionsInOutage", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/sessions.go", "wg.Go(func() { errs[i] = have.close(ctx) })", "errs[i] = have.close(ctx)"}},
	},
	{
		name: "what a lost reply of a claim took is not found", tests: "TestClaimUnderFaults", of: "etcdclaims/queue",
		edits: []edit{{"internal/item/claim.go", "			case st.Nonce == s.Nonce:\n", "			case st.Nonce != s.Nonce:\n"}},
	},
	{
		name: "late request without the session's generation", tests: "TestClaimUnderFaults|TestEnqueueUnderFaults", of: "etcdclaims/queue",
		edits: []edit{{"internal/item/generation.go", "unmoved(s.Worker(s.Session), s.Rev)", "exists(s.Worker(s.Session))"}},
	},
	{
		name: "claim that leaves dead workers to others", tests: "TestFirstClaimAfterDeath", of: "etcdclaims/queue",
		edits: []edit{{
			"etcdclaims/queue/round.go", "b.Taken, again, err = c.q.recoverEnded(c.q.ctx, v.rev); err != nil",
			"b.Taken, again, err = 0, false, nil; err != nil",
		}},
	},
	{
		name: "callers that enqueue one by one", tests: "TestEnqueuesShareRoundTrips", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/enqueue.go", "	if len(items) == 1 && room == nil {\n", "	if len(items) == 0 {\n"}},
	},
	{
		name: "a repeated verb told by its own arguments", tests: "TestVerbCalledAgain", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/verbs.go", "if verb == item.VerbFail || verb == item.VerbSnooze {", "if verb == \"\" {"}},
	},
	{
		name: "room not checked in the transaction", tests: "TestMaxWaitingAcrossProcesses", of: "etcdclaims/queue", unseen: unused,
		edits: []edit{{"internal/item/enqueue.go", "		in.Compare = []*pb.Compare{unmoved(s.bound(), s.Room.Rev)}\n", ""}},
	},
	{
		name: "pause refused after an unknown outcome", tests: "TestPauseRefusedAfterUnknown", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/manage.go", "			return fail(unsureOr(unsure, err))\n		}\n		if", "			return fail(err)\n		}\n		if"}},
	},
	{
		name: "pause of a queue that never ends", seeds: 100, queue: true,
		edits: []edit{
			{"etcdclaims/queue/round.go", "over := v.pause.Over(q.now())", "over := false"},
			{"etcdclaims/queue/arrivals.go", "!until.IsZero() {", "false {"}, // else claimers read without a rest
		},
	},
	{
		name: "end of a pause at which no claimer wakes", tests: "TestPauseEndsByItself", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/arrivals.go", "!until.IsZero() {", "false {"}},
	},
	{
		name: "pause of a queue that ends although it was prolonged", tests: "TestPauseEndsUnderFaults", of: "etcdclaims/queue", unseen: unused,
		edits: []edit{{"internal/item/generation.go", "	in.Compare = []*pb.Compare{unmoved(k.Paused(), rev)}\n", ""}},
	},
	{
		name: "pause by another taken for one's own after a lost reply", tests: "TestPauseRepliesLost", of: "etcdclaims/queue", unseen: unused,
		edits: []edit{{"internal/item/generation.go", "string(kv.Value) == Encode(p.bounded())", "len(kv.Value) > 0"}},
	},
	{
		name: "keys deleted by hand taken for a verb", tests: "TestDeletedUnderWorker", of: "etcdclaims/queue", unseen: untouched,
		edits: []edit{{"internal/item/ending.go", "counted(resp, 2) > 0 && counted(resp, 3) > 0 {", "len(resp.Responses) > 0 {"}},
	},
	{
		name: "spec made anew beside sessions that have another", tests: "TestSpecDeleted", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/spec.go", "		case !there:\n			have = want\n		}\n", "		default:\n			have = want\n		}\n"}},
	},
	{
		name: "recovered item that vests anew by another clock", tests: "TestVisibleByAnotherClock", of: "etcdclaims/queue", unseen: timeless,
		edits: []edit{{"internal/item/waiting.go", "	if st.Vesting.After(now) {\n		now =", "	if st.Vesting.Before(now) {\n		now ="}},
	},
	{
		name: "dead letters removed by one clock", tests: "TestFastKeeperTrimsSlowly", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/trim.go", "from.Add(trimStep).UTC()", "from.Add(100 * 365 * 24 * time.Hour).UTC()"}},
	},
	{
		name: "foreign key that keeps dead letters", tests: "TestDeadRetentionBesideForeignKey", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/trim.go", "err == nil {\n				return died", "err != nil || died.Unix() > 0 {\n				return died"}},
	},
	{
		name: "redrive of all that overwrites a place of a later version", of: "cmd/claimctl", tests: "TestDeadCountedInError", unseen: unused,
		edits: []edit{{"internal/item/change.go", "		one.Compare = append(one.Compare, unmoved(s.Place(e.State.ID), rev))\n", ""}},
	},
	{
		name: "dead letter whose redrive is not known, and not looked up", tests: "TestRedriveAllCosts", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/dead.go", "done, verr := q.changed(ctx, s, some[i], item.VerbRedrive)", "done, verr := false, error(nil)"}},
	},
	{
		name: "dead letter that two redrive, moved twice", tests: "TestRedriveAllBesideAnother", of: "etcdclaims/queue", unseen: unused,
		edits: []edit{{"internal/item/change.go", "append(one.Compare, unmoved(s.Place(e.State.ID), rev))", "one.Compare[:0]"}},
	},
	{
		name: "dead letter that died anew, left behind", tests: "TestRedriveAllBesideAnother", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/dead.go", "if err == nil && !done {", "if err == nil && !done && len(f.ID) == 0 {"}},
	},
	{
		name: "enqueue that keeps silent about a dead letter", tests: "TestEnqueueOverDead", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/enqueuing.go", "		e.dead = append(e.dead, it)\n", ""}},
	},
	{
		name: "dead letter that stays beside the item in its place", tests: "TestEnqueueOverDead", of: "etcdclaims/queue", unseen: unused,
		edits: []edit{{
			"internal/item/change.go", "	return s.changes(append(ops, s.move(st, s.index(st, s.Now), Place{Verb: VerbReplace})...)...)\n",
			"	in := s.changes(append(ops, s.move(st, s.index(st, s.Now), Place{Verb: VerbReplace})...)...)\n	in.Success = in.Success[1:]\n	return in\n",
		}},
	},
	{
		name: "items in the order in which they were made", tests: "TestEnqueueAllInOrder", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/enqueue.go", "		items[i].seq = newSeq()\n", "		_ = i\n"}},
	},
	{
		name: "a verb of another holder taken for one's own", tests: "TestSameVerbOfTwoHolders", of: "etcdclaims/queue",
		edits: []edit{{"internal/item/ending.go", "end.By == h.By && end.Verb", "end.Verb"}},
	},
	{
		name: "attempts of the dead in the epoch of who recovers them", tests: "TestEpochRaised", of: "etcdclaims/queue",
		edits: []edit{{"internal/item/recover.go", "Rev: kv.ModRevision, Epoch: st.Epoch}", "Rev: kv.ModRevision, Epoch: st.Epoch + 1}"}},
	},
	{
		name: "pause not in the claiming transaction", tests: "TestPauseBeforeClaimArrives", of: "etcdclaims/queue",
		edits: []edit{{"internal/item/claim.go", "in := &pb.TxnRequest{Compare: []*pb.Compare{absent(s.Paused())}}", "in := &pb.TxnRequest{}"}},
	},
	{
		name: "queue noted as empty without the condition that it is", tests: "TestEnqueueBeforeDeactivationArrives", of: "etcdclaims/queue", unseen: unused,
		edits: []edit{{"internal/item/generation.go", "			txn.NoneUnder(k.Taken()),\n		},\n", "			txn.NoneUnder(k.Taken()),\n		}[:0],\n"}},
	},
	{
		name: "two believe that they have one item", tests: "TestChaos", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/verbs.go", "	l.leave()\n", ""}},
	},
	{
		name: "items claimed by a session whose context has ended", of: "etcdclaims/queue", tests: "TestItemsOfOutlivedSession",
		edits: []edit{{"etcdclaims/queue/session.go", "s.claim.Err() == nil && s.claim.Context().Err() == nil", "s.claim.Err() == nil"}},
	},
	{
		name: "generation that a restore has taken back", of: "etcdclaims/queue", tests: "TestRestoreOfEarlierGeneration",
		edits: []edit{{"etcdclaims/queue/session.go", "	if now < gen.Rev {", "	if now == 0 {"}},
	},
	{
		name: "deliveries that are not compared with etcd", of: "etcdclaims/queue", tests: "TestRestoreOfCompletedItem",
		edits: []edit{{"etcdclaims/queue/sessions.go", "				s.q.spawn(made.compareOften)\n", ""}},
	},
	{
		name: "batch told to be completed whatever came of it", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/want.go", "len(e.Unwrap()) > 0 {", "len(e.Unwrap()) > len(errs) {"}},
	},
	{
		name: "batch that waits for an item with another call", of: "etcdclaims/queue", tests: "TestCompleteAllBesideVerb",
		edits: []edit{{"etcdclaims/queue/delivery.go", "		crowd.Leave()\n", ""}},
	},
	{
		name: "items of a batch completed one by one", of: "etcdclaims/queue", tests: "TestCompleteAll",
		edits: []edit{{"etcdclaims/queue/verbs.go", "In: in, Crowd: crowd}", "In: in}"}},
	},
	{
		name: "result of an item without an id forgotten at once", of: "etcdclaims/queue", tests: "TestResult",
		edits: []edit{{"etcdclaims/queue/verbs.go", "(l.content.Given || l.Result() != nil)", "l.content.Given"}},
	},
	{
		name: "result lost when etcd has no space", of: "etcdclaims/queue", tests: "TestNoSpaceOfEachCall",
		edits: []edit{{"etcdclaims/queue/verbs.go", "l.by() != \"\" || l.Result() != nil }", "l.by() != \"\" }"}},
	},
	{
		name: "wait that misses what comes before its watch", of: "etcdclaims/queue", tests: "TestWaitBeforeWatch",
		edits: []edit{{"etcdclaims/queue/wait.go", "clientv3.WithRev(resp.Header.Revision + 1)", "clientv3.WithRev(0)"}},
	},
	{
		name: "wait that trusts a deaf watch", of: "etcdclaims/queue", tests: "TestWaitDeaf",
		edits: []edit{{"etcdclaims/queue/wait.go", "time.After(compareEvery - ", "time.After(24*compareEvery - "}},
	},
	{
		name: "cancelled item whose worker is not told", of: "etcdclaims/queue", tests: "TestCancelTaken",
		edits: []edit{{"etcdclaims/queue/listen.go", "		l.claimer.q.sessions.hear(resp.Events)\n", ""}},
	},
	{
		name: "late notice that ends the delivery of a later item", of: "etcdclaims/queue", tests: "TestCancelNoticeLate",
		edits: []edit{{"etcdclaims/queue/session.go", "held.Rev == rev {", "held.Rev >= rev {"}},
	},
	{
		name: "cancellation taken for a completion", of: "etcdclaims/queue", tests: "TestCancelTaken", unseen: unused,
		edits: []edit{{"internal/item/ending.go", "revision(notices) == s.Rev {", "revision(notices) < 0 {"}},
	},
	{
		name: "item cancelled that its worker has given back", of: "etcdclaims/queue", tests: "TestCancelTakenBesideWorker", unseen: unused,
		edits: []edit{{
			"internal/item/change.go", "	return h.ends(ops...)\n",
			"	in := h.ends(ops...)\n	in.Compare = nil\n	return in\n",
		}},
	},
	{
		name: "cancelled item of a worker keeps the turn", of: "internal/item", tests: "TestCancelTakenFreesTheLane", unseen: unused,
		edits: []edit{{"internal/item/change.go", "ops := append(s.leave(s.State),", "ops := append([]*pb.RequestOp{},"}},
	},
	{
		name: "unique item that is forgotten within its period", of: "etcdclaims/queue", tests: "TestUnique",
		edits: []edit{{"etcdclaims/queue/enqueue.go", "it.given || it.unique.asked", "it.given"}},
	},
	{
		name: "debounced item that never vests", of: "etcdclaims/queue", tests: "TestDebounceEnds", unseen: unused,
		edits: []edit{{"internal/item/change.go", "last.Before(st.Vesting) {", "last.IsZero() {"}},
	},
	{
		name: "debounced item that a worker has by now", of: "etcdclaims/queue", tests: "TestDebounceBesideClaim", unseen: unused,
		edits: []edit{{"internal/item/change.go", "	if to == s.Entry.Key() {\n", "	if in.Compare = nil; to == s.Entry.Key() {\n"}},
	},
	{
		name: "debounced item that is begun", of: "etcdclaims/queue", tests: "TestDebounceOfFailed",
		edits: []edit{{"etcdclaims/queue/enqueuing.go", "f.Where != Later || !f.Vesting.Equal(f.content.Vesting):", "f.Where != Later:"}},
	},
	{
		name: "waits that open a stream each", of: "etcdclaims/queue", tests: "TestWaitsShareAStream",
		edits: []edit{{"etcdclaims/queue/wait.go", "context.WithCancel(q.ctx)", "context.WithCancel(ctx)"}},
	},
}
