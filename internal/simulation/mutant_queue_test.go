package simulation_test

// queueMutants are about queues. They are looked for in runs that have one.
var queueMutants = []mutant{
	{
		name: "verb without the item's fence", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/verbs.go", "		cmps = append(cmps, unmoved(key, rev))\n", ""}},
	},
	{
		name: "items taken from a session that lives", seeds: 100, queue: true,
		edits: []edit{
			{"etcdclaims/queue/recover.go", "answers.Count(claims[i]) > 0 {\n				alive++\n", "answers.Count(claims[i]) > 1 {\n				alive++\n"},
			{"etcdclaims/queue/recover.go", "via.claim.Txn(ctx).If(absent(own)).Then(ops...)", "via.claim.Txn(ctx).Then(ops...)"},
		},
	},
	{
		name: "attempt not counted when a worker dies", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/recover.go", "	if st.Attempts >= st.Max {\n", "	st.Attempts--\n	if st.Attempts >= st.Max {\n"}},
	},
	{
		name: "enqueue without the condition that the item is not there", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/enqueue.go", "	return clientv3.OpTxn([]clientv3.Cmp{absent(key)},\n", "	return clientv3.OpTxn(nil,\n"}},
	},
	{
		name: "limit not in the claiming transaction", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/claim.go", "			cmps = append(cmps, absent(q.keys.slot(p.st.Slot)))\n", ""}},
	},
	{
		name: "claim of an item that has moved", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/claim.go", "[]clientv3.Cmp{unmoved(string(p.kv.Key), p.kv.ModRevision)}", "[]clientv3.Cmp{}"}},
	},
	{
		name: "vested item moved from where it is not", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/head.go", "clientv3.OpTxn([]clientv3.Cmp{unmoved(string(kv.Key), kv.ModRevision)}, then, nil)", "clientv3.OpTxn(nil, then, nil)"}},
	},
	{
		name: "release that drops the payload", seeds: 100, queue: true,
		edits: []edit{{
			"etcdclaims/queue/verbs.go", "		return l.q.uncover(st, l.place(\"release\", rev), now)\n",
			"		return append(l.q.uncover(st, l.place(\"release\", rev), now), clientv3.OpDelete(l.q.keys.item(st.ID)))\n",
		}},
	},
	{
		name: "belief that outlasts a verb", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/verbs.go", "	l.leave()\n", ""}},
	},
	{
		name: "another's item taken for one's own", seeds: 200, queue: true,
		edits: []edit{{"etcdclaims/queue/enqueue.go", "c.Seq == it.seq", "c.Seq != \"\""}},
	},
	{
		name: "one attempt too many", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/verbs.go", "if st.Attempts >= st.Max ||", "if st.Attempts > st.Max ||"}},
	},
	{
		name: "what comes before the items that were read ahead is passed", seeds: 100, queue: true,
		edits: []edit{{"etcdclaims/queue/arrivals.go", "case p.at <= a.edge:", "case p.at < \"\":"}},
	},
	// The rest is found by tests of the queue itself. In a run of the simulation these
	// faults are rare: a process takes back what it claimed unknowingly within
	// milliseconds, a request is seldom late by a whole call, and a queue seldom full.
	{
		name: "bounds changed while a process uses the queue", tests: "TestReconfigure", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/reconfigure.go", "unused := []string{q.keys.workers(), q.keys.taken()}", "unused := []string{}"}},
	},
	{
		name: "bounds whose second request is refused after the first", tests: "TestReconfigureUnderFaults", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/reconfigure.go", "err != nil || now != want", "err != nil || now == want"}},
	},
	{
		name: "session made under a spec that was changed", tests: "TestReconfigureBesideFirstUse", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/sessions.go", "			etcdclaims.If(unmoved(q.keys.spec(), rev)),\n", "			etcdclaims.If([]clientv3.Cmp{unmoved(q.keys.spec(), rev)}[:0]...),\n"}},
	},
	{
		name: "queue of WorkMany that ends before WorkMany", tests: "TestManyQueuesStopWithClient", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/many.go", "name, m.cfg.Logger\n	return newUnattached(", "name, m.cfg.Logger\n	return New("}},
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
		edits: []edit{{"etcdclaims/queue/claim.go", "		case st.Nonce != nonce:\n", "		case st.Nonce == nonce:\n			return nil, nil\n		case st.Nonce != nonce:\n"}},
	},
	{
		name: "late request without the session's generation", tests: "TestClaimUnderFaults|TestEnqueueUnderFaults", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/session.go", "append(slices.Clip(cmps), unmoved(key, gen)),", "append(slices.Clip(cmps), clientv3.Compare(clientv3.CreateRevision(key), \">\", 0)),"}},
	},
	{
		name: "claim that leaves dead workers to others", tests: "TestFirstClaimAfterDeath", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/round.go", "recovered, err = c.q.recoverEnded(c.q.ctx, v.taken); err != nil", "recovered, err = false, nil; err != nil"}},
	},
	{
		name: "callers that enqueue one by one", tests: "TestEnqueuesShareRoundTrips", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/enqueue.go", "	if len(items) == 1 && full == nil {\n", "	if len(items) == 0 {\n"}},
	},
	{
		name: "a repeated verb told by its own arguments", tests: "TestVerbCalledAgain", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/verbs.go", "if verb == \"fail\" || verb == \"snooze\" {", "if verb == \"\" {"}},
	},
	{
		name: "room not checked in the transaction", tests: "TestMaxWaitingAcrossProcesses", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/enqueue.go", "s.commit(ctx, full, ops, nil)", "s.commit(ctx, full[:0], ops, nil)"}},
	},
	{
		name: "pause refused after an unknown outcome", tests: "TestPauseRefusedAfterUnknown", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/manage.go", "			return unsureOr(unsure, err)\n		}\n		if", "			return err\n		}\n		if"}},
	},
	{
		name: "keys deleted by hand taken for a verb", tests: "TestDeletedUnderWorker", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/ending.go", "txn.Count(resp, 2) > 0 && txn.Count(resp, 3) > 0 {", "len(resp.Responses) > 0 {"}},
	},
	{
		name: "spec made anew beside sessions that have another", tests: "TestSpecDeleted", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/spec.go", "		case !there:\n			have = want\n		}\n", "		default:\n			have = want\n		}\n"}},
	},
	{
		name: "recovered item that vests anew by another clock", tests: "TestVisibleByAnotherClock", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/verbs.go", "	if st.Vesting.After(now) {\n", "	if st.Vesting.Before(now) {\n"}},
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
		name: "redrive of all that overwrites a place of a later version", of: "cmd/claimctl", tests: "TestDeadCountedInError",
		edits: []edit{{"etcdclaims/queue/redrive.go", "unmoved(f.key, f.rev), unmoved(q.keys.place(f.ID), f.rev),\n", "unmoved(f.key, f.rev),\n"}},
	},
	{
		name: "dead letter whose redrive is not known, and not looked up", tests: "TestRedriveAllCosts", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/redrive.go", "done, verr := q.changed(ctx, s, some[i], \"redrive\")", "done, verr := false, error(nil)"}},
	},
	{
		name: "dead letter that two redrive, moved twice", tests: "TestRedriveAllBesideAnother", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/redrive.go", "unmoved(f.key, f.rev), unmoved(q.keys.place(f.ID), f.rev),\n", "\n"}},
	},
	{
		name: "dead letter that died anew, left behind", tests: "TestRedriveAllBesideAnother", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/redrive.go", "if err == nil && !done {", "if err == nil && !done && len(f.ID) == 0 {"}},
	},
	{
		name: "enqueue that keeps silent about a dead letter", tests: "TestEnqueueOverDead", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/overdead.go", "			e.dead = append(e.dead, it)\n", ""}},
	},
	{
		name: "dead letter that stays beside the item in its place", tests: "TestEnqueueOverDead", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/overdead.go", "q.activate(), clientv3.OpDelete(f.key), ", "q.activate(), "}},
	},
	{
		name: "note that is tried again without space", tests: "TestNoSpaceOfEachCall", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/note.go", "		case errors.Is(err, rpctypes.ErrNoSpace):\n", "		case errors.Is(err, rpctypes.ErrNoSpace) && len(b) < 0:\n"}},
	},
	{
		name: "items in the order in which they were made", tests: "TestEnqueueAllInOrder", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/enqueue.go", "		items[i].seq = newSeq()\n", "		_ = i\n"}},
	},
	{
		name: "a verb of another holder taken for one's own", tests: "TestSameVerbOfTwoHolders", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/verbs.go", "mine := end.by == l.by && end.verb", "mine := end.verb"}},
	},
	{
		name: "attempts of the dead in the epoch of who recovers them", tests: "TestEpochRaised", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/recover.go", "	fence := keyspace.Fence(st.Epoch, kv.ModRevision)\n	st.ended", "	fence := keyspace.Fence(keyspace.Epoch(q.sessions.byTTL[q.cfg.TTL].claim.Fence()), kv.ModRevision)\n	st.ended"}},
	},
	{
		name: "pause not in the claiming transaction", tests: "TestPauseBeforeClaimArrives", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/claim.go", "s.commit(ctx, []clientv3.Cmp{absent(q.keys.paused())}, ops, nil)", "s.commit(ctx, nil, ops, nil)"}},
	},
	{
		name: "queue noted as empty without the condition that it is", tests: "TestEnqueueBeforeDeactivationArrives", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/keeper.go", "		If(absent(q.keys.ready()).WithPrefix(), absent(q.keys.later()).WithPrefix(), absent(q.keys.taken()).WithPrefix()).\n", ""}},
	},
	{
		name: "two believe that they have one item", tests: "TestChaos", of: "etcdclaims/queue",
		edits: []edit{{"etcdclaims/queue/verbs.go", "	l.leave()\n", ""}},
	},
}
