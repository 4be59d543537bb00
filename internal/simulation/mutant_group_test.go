package simulation_test

// groupMutants break the plan of a group: which member claims which partition, and when it gives
// the partition up. The claims, not the plan, keep a partition from having two owners.
var groupMutants = []mutant{
	{
		name: "line that is not left", of: "etcdclaims/group", tests: "TestJoinMovesItsShare|TestCutOffAndBack|TestDeath|TestChurn|TestChaos",
		edits: []edit{{"etcdclaims/group/partitions.go", "\tm.leaveLines(plan.Target)\n\treturn", "\treturn"}},
	},
	{
		name: "partition given up before its successor waits", of: "etcdclaims/group", tests: "TestFrozenTargetGetsNothing",
		edits: []edit{{"etcdclaims/group/partitions.go", "\tfor key := range byKey {\n\t\tall", "\tfor key, r := range byKey {\n\t\tr.stop(errMoved)\n\t\tall"}},
	},
	{
		name: "moves beyond the budget", of: "etcdclaims/group", tests: "TestMoveBudget",
		edits: []edit{{"etcdclaims/group/partitions.go", "if room--; room < 0 {", "if room--; room < -maxPartitions {"}},
	},
	{
		name: "budget without a wait for one list", of: "etcdclaims/group", tests: "TestBudgetWaitsForOneList",
		edits: []edit{{"etcdclaims/group/partitions.go", "if wait := m.view.agreed(m.cfg.MoveInterval); wait > 0 {", "if wait := m.view.agreed(m.cfg.MoveInterval); wait > time.Hour {"}},
	},
	{
		name: "no cool-down", of: "etcdclaims/group", tests: "TestCooldown",
		edits: []edit{{"etcdclaims/group/cooldown.go", "wait := max(0, cooldown-age)", "wait := cooldown - max(age, cooldown)"}},
	},
	{
		name: "partition that its first owner got early, moved early again and again", of: "etcdclaims/group", tests: "TestPartitionMovesEarlyOnce",
		edits: []edit{{"etcdclaims/group/cooldown.go", "if t.passed || now", "if now"}},
	},
	{
		name: "first member watched over by all", of: "etcdclaims/group", tests: "TestEachMemberIsAskedByOne",
		edits: []edit{{"etcdclaims/group/successor.go", "case m.Name > name && (", "case m.Name < name && ("}},
	},
	{
		name: "partitions left to a member that is taken for dead", of: "etcdclaims/group", tests: "TestSuspectedMembersDie",
		edits: []edit{{"etcdclaims/group/successor.go", "m.force(ctx, claim, owned)\n", "m.force(ctx, claim, owned[:0])\n"}},
	},
	{
		name: "member that has given its claim up, taken for dead", of: "etcdclaims/group", tests: "TestWithdrawnMemberKeepsItsPartitions",
		edits: []edit{{"etcdclaims/group/successor.go", "err != nil || !suspected {", "err != nil || !suspected && m == nil {"}},
	},
	{
		name: "claim of a dead member released before its entry is removed", of: "etcdclaims/group", tests: "TestSuspectedMembersDie",
		edits: []edit{{"etcdclaims/group/successor.go", "\tdefer m.release(claim)\n", "\tm.release(claim)\n"}},
	},
	{
		name: "first member that waits for no other", of: "etcdclaims/group", tests: "TestMembersStartTogether",
		edits: []edit{{"etcdclaims/group/cooldown.go", "\tgatherTime = 100 * time.Millisecond", "\tgatherTime = 0 * time.Millisecond"}},
	},
	{
		name: "partitions reserved for a member that is away, given to others", of: "etcdclaims/group", tests: "TestRollingRestartMovesNothing",
		edits: []edit{{"etcdclaims/group/register.go", "\tthen = append(then, reserve...)\n", "\t_ = reserve\n"}},
	},
	{
		name: "partitions reserved by Leave, and not by Close of the client", of: "etcdclaims/group", tests: "TestClientClosedWhileAway",
		edits: []edit{{"etcdclaims/group/member.go", " && (errors.Is(err, ErrLeft) || errors.Is(err, etcdclaims.ErrClosed))", " && errors.Is(err, ErrLeft)"}},
	},
	{
		name: "join whose own limit reads as that of its caller", of: "etcdclaims/group", tests: "TestJoinNamesItsOwnLimit",
		edits: []edit{{"etcdclaims/group/register.go", "\tdefer func() { err = unanswered(caller, err) }()\n", ""}},
	},
	{
		name: "reservation without an end", of: "etcdclaims/group", tests: "TestAwayForTooLong",
		edits: []edit{{"etcdclaims/group/register.go", "encode(away), clientv3.WithLease(lease))", "encode(away))\n\t_ = lease"}},
	},
	{
		name: "reservation of a share instead of partitions", of: "etcdclaims/group", tests: "TestAwayWhileTheOthersRestart|TestAllAreAway",
		edits: []edit{{"etcdclaims/group/register.go", "away.Partitions = away.Partitions.with(partition)", "_ = partition"}},
	},
	{
		name: "member of a later version replaced", of: "etcdclaims/group", tests: "TestUpgrade",
		edits: []edit{{"etcdclaims/group/register.go", "\tcase newer(kv) != nil:\n", "\tcase newer(kv) != nil && m == nil:\n"}},
	},
	{
		name: "watch of the list that is waited for", of: "etcdclaims/group", tests: "TestDeafView",
		edits: []edit{{"etcdclaims/group/view.go", "v.claims.Etcd(), readTimeout, v.keys.root", "v.claims.Etcd(), 10000*time.Hour, v.keys.root"}},
	},
	{
		name: "watches stay on the stream that hangs", of: "etcdclaims/group", tests: "TestViewLeavesHungStream",
		edits: []edit{{"internal/feed/open.go", "\t\ts.replaced.CompareAndSwap(n, n+1)\n", ""}},
	},
	{
		name: "left over from the rounding, in the order of names", of: "etcdclaims/group", tests: "TestPlanIsExactAndMinimal|TestPlanIsStableUnderItsOwnMoves", unseen: moved,
		edits: []edit{{"etcdclaims/group/plan.go", "\t\tif has[i] > share[i] {\n\t\t\treturn 0\n\t\t}\n", ""}},
	},
	{
		name: "entry without its claim", of: "etcdclaims/group", tests: "TestLateEntry",
		edits: []edit{{"etcdclaims/group/register.go", "\tcmps := append(claim.Guard(), absent", "\tcmps := append([]clientv3.Cmp{}, absent"}},
	},
	{
		name: "entry put again over that of another process", of: "etcdclaims/group", tests: "TestNameIsTakenOver",
		edits: []edit{{"etcdclaims/group/register.go", "\tcase again && !mine:", "\tcase again && !mine && m == nil:"}},
	},
	{
		name: "evicted member that joins", of: "etcdclaims/group", tests: "TestEvict",
		edits: []edit{
			{"etcdclaims/group/register.go", "absent(m.keys.evicted(m.cfg.Name)), clientv3", "clientv3"},
			{"etcdclaims/group/register.go", "\t\tcase have.evicted != nil:", "\t\tcase have.evicted != nil && m == nil:"},
		},
	},
	{
		name: "failed join that leaves its entry", of: "etcdclaims/group", tests: "TestFailedJoinLeavesNoEntry",
		edits: []edit{{"etcdclaims/group/register.go", "\tif err != nil {\n\t\tm.erase(claim, !again, m.tried, m.entry)\n\t}\n\treturn err", "\treturn err"}},
	},
	{
		name: "join that is refused while an earlier one is undone", of: "etcdclaims/group", tests: "TestJoinAgainAfterFailure",
		edits: []edit{{"etcdclaims/group/member.go", "if !earlier.failed.Load() {", "if m != nil {"}},
	},
	{
		name: "join that does not wait for the claim of an earlier one", of: "etcdclaims/group", tests: "TestJoinAgainAfterFailure",
		edits: []edit{{"etcdclaims/group/register.go", "if errors.Is(err, etcdclaims.ErrHeld) && !again {", "if m == nil {"}},
	},
	{
		name: "view that routes by a former number of partitions", of: "etcdclaims/group", tests: "TestViewOfARemadeGroupRoutesNothing",
		edits: []edit{{"etcdclaims/group/assignment.go", "if now := v.list.spec.partitions; now != v.partitions {", "if now := v.list.spec.partitions; now < 0 {"}},
	},
	{
		name: "number of partitions chosen anew beside members", of: "etcdclaims/group", tests: "TestNumberOfPartitionDeletedByHand",
		edits: []edit{{"etcdclaims/group/register.go", "absent(key), absent(m.keys.root + dirMember).WithPrefix()", "absent(key)"}},
	},
	{
		name: "number of partitions that stays deleted", of: "etcdclaims/group", tests: "TestNumberOfPartitionDeletedByHand",
		edits: []edit{{"etcdclaims/group/partitions.go", "	if !spec {\n", "	if !spec && m == nil {\n"}},
	},
	{
		name: "lines of all keys read for those of a few", of: "etcdclaims/group", tests: "TestForeignLinesCostNothing",
		edits: []edit{{"etcdclaims/admin/lines.go", "if pages := len(keys) / (c.Store().MaxOps() / 2); pages > 0 {", "if pages := 1 << 30; pages > 0 {"}},
	},
	{
		name: "deaf member that stays on the list", of: "etcdclaims/group", tests: "TestDeafMember|TestDeafMemberInBudget",
		edits: []edit{{"etcdclaims/group/deaf.go", "\t\t\treturn true, rest\n", "\t\t\treturn false, rest\n"}},
	},
	{
		name: "member whose handler hangs that stays on the list", of: "etcdclaims/group", tests: "TestHandlerThatHangs",
		edits: []edit{{"etcdclaims/group/partitions.go", "	if hanging > 0 {\n", "	if hanging < 0 {\n"}},
	},
	{
		name: "member that joins again while its handler hangs", of: "etcdclaims/group", tests: "TestHandlerThatHangs",
		edits: []edit{{"etcdclaims/group/member.go", " || !m.untilMoving()", ""}},
	},
	{
		name: "member that withdraws the entry with which it has joined again", of: "etcdclaims/group", tests: "TestJoinsAgainWhileItWithdraws",
		edits: []edit{{"etcdclaims/group/deaf.go", "if m.claim != claim || claim.Err() != nil {", "if m.claim == nil {"}},
	},
	{
		name: "budget without partitions whose handlers do not stop", of: "etcdclaims/group", tests: "TestBudgetCountsPartitionGivenUpWithoutTheirHandlers",
		edits: []edit{{"etcdclaims/group/view.go", "if o.Token.Fence == 0 { // it is free", "if o.Instance == \"\" {"}},
	},
	{
		name: "restored entry taken for that of a later process", of: "etcdclaims/group", tests: "TestRestoreBeforeRestart",
		edits: []edit{{"etcdclaims/group/register.go", "restored := again && kv.ModRevision < m.since", "restored := again && kv.ModRevision < 0"}},
	},
	{
		name: "refusal after an unknown outcome", of: "etcdclaims/group", tests: "TestRefusedAfterUnknown",
		edits: []edit{{"etcdclaims/group/register.go", "err != nil && unsure && slices", "err != nil && !unsure && slices"}},
	},
	{
		name: "handler that keeps its partition for ever", of: "etcdclaims/group", tests: "TestHandlerThatDoesNotStop",
		edits: []edit{{"etcdclaims/group/partitions.go", "\tcase <-timer.C:\n\t\tm.log.Error(\"partition handler does", "\tcase <-(chan int)(nil):\n\t\tm.log.Error(\"partition handler does"}},
	},
	{
		name: "stale route admitted", of: "etcdclaims/group", tests: "TestCallIsRetriedOnce",
		edits: []edit{{"etcdclaims/group/member.go", "\tcase claim.Fence() != t.Fence:\n", "\tcase claim.Fence() == 0:\n"}},
	},
	{
		name: "route asked once", of: "etcdclaims/group", tests: "TestCallIsRetriedOnce",
		edits: []edit{{"etcdclaims/group/route.go", "\tif !errors.Is(err, fencing.ErrStale) {\n", "\tif err != nil || true {\n"}},
	},
	{
		name: "evicted member whose partitions are left to it", of: "etcdclaims/group", tests: "TestEvictGrayMember",
		edits: []edit{{"etcdclaims/group/operate.go", "\t\tif err := admin.ForceReleaseTerm(parts, v.claims, o.Token, reason); !errors.Is(err, etcdclaims.ErrRefused) {\n\t\t\terrs = append(errs, err)\n\t\t}\n", "\t\t_ = o\n"}},
	},
	{
		name: "lost event of a member, never noticed", of: "etcdclaims/group", tests: "TestDeafMember|TestEntryDeletedByHand|TestLostRequestsAndReplies|TestTwoViews|TestOutage",
		edits: []edit{{"etcdclaims/group/view.go", "\trelist      = 10 * time.Second", "\trelist      = 10000 * time.Hour"}},
	},
}
