package simulation_test

// schedMutants break jobs that are defined in etcd: which version of a definition counts, who
// may change it, and which ticks are requested after another job.
var schedMutants = []mutant{
	{
		name: "ownership handed to a process that lacks a job", of: "sched", tests: "TestNoHandOverOfOtherJobs", unseen: unused,
		edits: []edit{{"internal/tick/heir.go", "includes(h.Jobs, jobs) && !includes(jobs, h.Jobs)", "!includes(jobs, h.Jobs)"}},
	},
	{
		name: "ownership handed over by a request to an owner before", of: "internal/tick", tests: "TestHeir", unseen: unused,
		edits: []edit{{"internal/tick/heir.go", "h.Term == term && ", ""}},
	},
	{
		name: "ownership handed to the first in line", of: "sched", tests: "TestHandOverInADeployment", unseen: unused,
		edits: []edit{{"internal/protocol/place.go", "h.Instance == heir {", "h.Instance == heir+\"?\" {"}},
	},
	{
		name: "run of a job that nobody has left for ever", tests: "TestRunOfAJobThatNobodyHas", of: "sched",
		edits: []edit{{"sched/orphan.go", "		if c == nil && specs[i] != 0 {\n", "		if c == nil && specs[i] < 0 {\n"}},
	},
	{
		name: "run of a job that is to be begun again settled without a deployment's time", tests: "TestRunOfAJobThatNobodyHas", of: "sched",
		edits: []edit{{"sched/unknown.go", "	after := unknownToRetry\n", "	after := unknownFor\n"}},
	},
	{
		name: "definition over a change of another process", of: "sched", tests: "TestDefineVersions",
		edits: []edit{{"sched/define.go", "return append(cmps, s.definedAs(d.Name, st.definitionRev)), ops, err", "return cmps, ops, err"}},
	},
	{
		name: "definition that stays without its notice", of: "sched", tests: "TestDefineAgainWithoutNotice",
		edits: []edit{{"sched/define.go", "[]clientv3.Cmp{absent(note)}, []clientv3.Op{tell}, nil)", "[]clientv3.Cmp{absent(note)}, nil, []clientv3.Op{tell})"}},
	},
	{
		name: "job registered after its definition was removed", of: "sched", tests: "TestUndefineWhileOwnerRegisters", unseen: unused,
		edits: []edit{{"internal/tick/operate.go", "\tif j.Defined == 0 {\n", "\tif j.Defined >= 0 {\n"}},
	},
	{
		name: "circle of two definitions that are stored at a time", of: "sched", tests: "TestDefineAfterCircle",
		edits: []edit{{"sched/followers.go", "\treturn []clientv3.Cmp{unchanged}, nil\n", "\t_ = unchanged\n\treturn nil, nil\n"}},
	},
	{
		name: "definition read before its notice, followed as before", of: "sched", tests: "TestDefineAfterChangedAtOnce",
		edits: []edit{{
			"sched/definitions.go", "\t\tc.setFollower(tick.Follower{Following: n.Following, Job: n.Job, Defined: is.Rev})\n\t\tif was",
			"\t\tif was == nil || was.rev != is.Rev {\n" +
				"\t\t\tc.setFollower(tick.Follower{Following: n.Following, Job: n.Job, Defined: is.Rev})\n\t\t}\n\t\tif was",
		}},
	},
	{
		name: "tick requested after a definition that is gone", of: "sched", tests: "TestDefineAfterRemoved", unseen: unused,
		edits: []edit{
			{"internal/tick/follow.go", "&pb.TxnRequest{Compare: []*pb.Compare{is}, Success:", "&pb.TxnRequest{Success:"},
			{"internal/tick/follow.go", "\t\t\tis := txn.Created", "\t\t\t_ = txn.Created"},
		},
	},
	{
		name: "run that is lost, not followed by the jobs that run after failure", of: "sched", tests: "TestAfterFailure", unseen: unused,
		edits: []edit{{"internal/tick/overlap.go", "s.Follow(s.Job.Name, s.Followers, all...)...)", "s.Follow(s.Job.Name, nil, all...)...)"}},
	},
	{
		name: "pause of many jobs of which the owner need not know", of: "sched", tests: "TestPauseTogetherOfDeafOwner", unseen: unused,
		edits: []edit{{"internal/tick/halt.go", "txn.NonePutAfter(k.Halts(), rev)", "txn.NonePutAfter(k.Halts(), rev+1<<40)"}},
	},
	{
		name: "job that begins in a pause as it is registered", of: "sched", tests: "TestStartOfDeafOwner", unseen: unused,
		edits: []edit{{"internal/tick/operate.go", "s.Paused(s.Job.Name))), s.Unhalted(s.Halted))\n\t\ts.put", "s.Paused(s.Job.Name))))\n\t\ts.put"}},
	},
	{
		name: "start forgotten if the pause ends in the registration", of: "sched",
		tests: "TestStartAfterPauseThatEndsInRegistration",
		edits: []edit{{"sched/register.go", "l.unpaused(c) // a pause may", "// a pause may"}},
	},
	{
		name: "ticks of a pause of many jobs, due when it ends", of: "sched", tests: "TestPauseTogether",
		edits: []edit{{"sched/jobstate.go", "return tick.Later(c.high, c.leftOut)", "return c.high"}},
	},
	{
		name: "job after several that runs when one of them has ended", of: "sched", tests: "TestAfterAll", unseen: unused,
		edits: []edit{{"internal/tick/follow.go", "complete = len(newest) == len(f.Jobs())", "complete = len(newest) > 0"}},
	},
	{
		name: "owner without jobs of this process, not noticed before they are due", of: "sched", tests: "TestTwoServicesInOneGroup",
		edits: []edit{{"sched/conflict.go", "|| !a.registered && a.job.defined == 0) {", "|| !a.registered && a.job.defined < 0) {"}},
	},
	{
		name: "requests that no owner serves, without a limit", of: "sched", tests: "TestRequestsThatNoOwnerServes|TestRequestsOfRemovedJobs",
		edits: []edit{{"sched/unserved.go", "\tif len(all) <= mostUnserved {", "\tif len(all) <= 1<<20 {"}},
	},
	{
		name: "definition with a calendar that programs without calendars run", of: "sched", tests: "TestDefinitionVersions",
		edits: []edit{{"sched/definition.go", "\t\treturn scheduledVersion\n", "\t\treturn valueVersion\n"}},
	},
	{
		name: "job without a next tick that counts as due", of: "sched", tests: "TestRestAfterLastTick",
		edits: []edit{{"sched/due.go", "return !c.at.IsZero() && !c.at.After(now)", "return !c.at.After(now)"}},
	},
	{
		name: "view that reads nothing until its watch has begun", of: "sched", tests: "TestDeafProcessHearsByReading",
		edits: []edit{{"internal/live/follow.go", "\twg.Go(func() {\n\t\tbegun <-", "\tfunc(f func()) { f() }(func() {\n\t\tbegun <-"}},
	},
	{
		name: "ticks that are decided, by a later version, ignored", of: "sched", tests: "TestUnreadableResetHoldsTicks",
		edits: []edit{{"sched/jobstate.go", "c.planning || c.held ||", "c.planning ||"}},
	},
	{
		name: "pause of a job that never ends", of: "sched", tests: "TestPauseEndsByItself",
		edits: []edit{{"sched/leadership.go", "l.register, l.endPauses,", "l.register,"}},
	},
	{
		name: "pause that ends although it was prolonged", of: "sched", tests: "TestPauseAtItsEnd", unseen: unused,
		edits: []edit{{"internal/tick/operate.go", "txn.ModifiedAt(paused, s.PauseRev), ", ""}},
	},
	{
		name: "pause that lasts until there is an owner", of: "sched", tests: "TestPauseEndsWithoutOwner",
		edits: []edit{{"internal/jobstate/pause.go", "		end = p.Until\n", "		end = now\n"}},
	},
	{
		name: "runs known by the revision of their claims alone", of: "sched", tests: "TestRunsThatBeganTogether",
		edits: []edit{
			{"internal/live/view.go", "delete(v.begun, hold{have.Run.Claim, have.Rev})", "delete(v.begun, hold{\"\", have.Rev})"},
			{"internal/live/view.go", "v.begun[hold{is.Run.Claim, is.Rev}] = key", "v.begun[hold{\"\", is.Rev}] = key"},
		},
	},
	{
		name: "tick that begins at once beside a run that must be settled", of: "sched", tests: "TestDeafOwnerBeginsNothing",
		edits: []edit{{"internal/tick/begin.go", "\t\tfor _, dir := range s.Before(s.Job) {", "\t\tfor _, dir := range s.Before(s.Job)[:0] {"}},
	},
	{
		name: "handler called although its run was cancelled while it began", of: "sched", tests: "TestRetryAfterCancel",
		edits: []edit{{"sched/runs.go", "\t\ta.cancelAsked(key, r.view.Get(key))\n", "\t\t_ = key\n"}},
	},
	{
		name: "tick that is tried at once for longer than it may start", of: "sched", tests: "TestBeginIsNotTriedForTooLong",
		edits: []edit{{"sched/starter.go", "context.WithoutCancel(ctx), t.until)", "context.WithoutCancel(ctx), t.until.Add(readTime))"}},
	},
	{
		name: "failures of one job that are counted side by side", of: "sched", tests: "TestFailuresAtTheSameTime",
		edits: []edit{{"sched/ending.go", "if e.Tallies() && e.Next == nil {", "if e.Tallies() && e.Began < 0 {"}},
	},
	{
		name: "tick whose retry is late or replaced, not counted as a failure", of: "sched", tests: "TestDroppedRetryIsAFailure", unseen: unused,
		edits: []edit{{"internal/tick/value.go", "\t\treturn p.Attempt > 0\n", "\t\treturn false\n"}},
	},
	{
		name: "tick that a newer one replaces as it fails, not counted", of: "sched", tests: "TestDroppedRetryIsAFailure", unseen: unused,
		edits: []edit{{"internal/tick/again.go", "w.pauses = t.add(&otherwise)", "w.pauses = t.add(new(txn.Branch))"}},
	},
	{
		name: "failures that the owner counts from what it knew", of: "sched", tests: "TestDroppedRetryAfterOthersCounted", unseen: unused,
		edits: []edit{{"internal/tick/tally.go", "\tt := Tally{Compare: []*pb.Compare{txn.ModifiedAt(key, f.Rev)}}", "\tt := Tally{Compare: []*pb.Compare{txn.NotModifiedAt(key, -1)}}"}},
	},
	{
		name: "mark that was put back, unheard by the owner", of: "sched", tests: "TestResetMarkOfNewJob",
		edits: []edit{{"sched/jobstate.go", "\tif c := l.jobs[job]; c != nil {\n", "\tif c := l.jobs[job]; c != nil && c.high.IsZero() {\n"}},
	},
	{
		name: "mark put back over ticks that may have run", of: "sched", tests: "TestResetMarkThatMayRepeat",
		edits: []edit{{"sched/resetmark.go", "if is.MayRepeat && !mayRepeat {", "if is.MayRepeat && !mayRepeat && job == \"\" {"}},
	},
	{
		name: "mark put back over ticks that ran", of: "sched", tests: "TestResetMark",
		edits: []edit{{"sched/resetmark.go", "Decided: is.Decided})", "Decided: nil})"}},
	},
	{
		name: "mark put back once more over ticks that ran before the first time", of: "sched", tests: "TestResetMarkTwice",
		edits: []edit{{"internal/jobstate/mark.go", "if nominal.After(now) {", "if nominal.IsZero() {"}},
	},
	{
		name: "late reply about a history taken for the newest", of: "internal/live", tests: "TestHistoryIgnoresLateReplies",
		edits: []edit{{"internal/live/histories.go", "(rev > is.rev || ", "(rev != is.rev || "}},
	},
	{
		name: "record of a clock that is right, trimmed before those of one that was ahead", of: "sched", tests: "TestHistoryAfterAClockAhead",
		edits: []edit{{"internal/live/histories.go", "cmp.Compare(a.CreateRevision, b.CreateRevision)", "cmp.Compare(a.Lease, b.Lease)"}},
	},
	{
		name: "history that only the owner trims", of: "sched", tests: "TestHistoryAfterLateReplies",
		edits: []edit{{"sched/ending.go", "\tif x.owning.Load() {\n", "\tif x.owning.Load() || len(a.job.Name) > 0 {\n"}},
	},
	{
		name: "ID of a tick that repeats after Forget", of: "sched", tests: "TestTickIDAfterForget",
		edits: []edit{{"sched/register.go", "uuid.NewString()", "uuid.Nil.String()"}},
	},
	{
		name: "handler called although its claim has ended", of: "sched", tests: "TestOwnerFrozenBeforeHandler",
		edits: []edit{{"sched/execute.go", "if err = a.claim.Check(); err == nil {", "if err == nil {"}},
	},
	{
		name: "text that cannot be parsed, parsed again and again", of: "sched", tests: "TestDefineICalThatFailsOnce",
		edits: []edit{{"sched/calendardata.go", "\tif known {\n", "\tif known && is.err == nil {\n"}},
	},
	{
		name: "tick that begins at once although its job was paused", of: "sched", tests: "TestDeafOwnerBeginsNothing",
		edits: []edit{{"internal/tick/begin.go", "append(s.Mark.unmoved(s.Keys, s.Job.Name, s.Plan), s.Guard", "append(s.Mark.unmoved(s.Keys, s.Job.Name, s.Plan)[:2], s.Guard"}},
	},
	{
		name: "tick that begins at once under an owner of before", of: "sched", tests: "TestOwnerOfBeforeBeginsNothing",
		edits: []edit{{"internal/tick/begin.go", "append(s.Mark.unmoved(s.Keys, s.Job.Name, s.Plan), s.Guard...)", "s.Mark.unmoved(s.Keys, s.Job.Name, s.Plan)"}},
	},
	{
		name: "slot taken although another run has taken it meanwhile", of: "internal/tick", tests: "TestSlot",
		edits: []edit{{"internal/tick/slot.go", "append(all, txn.ModifiedAt([]byte(s.Key), s.Rev))", "append(all, txn.CreatedAfter([]byte(s.Key), -1))"}},
	},
	{
		name: "slot taken from a run in progress", of: "internal/tick", tests: "TestSlot", unseen: together,
		edits: []edit{{"internal/tick/slot.go", "\t\tif s.Rev > 0 {", "\t\tif s.Rev < 0 {"}},
	},
	{
		name: "slot that stays when its run has ended", of: "sched", tests: "TestLimits",
		edits: []edit{{"internal/tick/slot.go", "append(k.Frees(r, rev), txn", "append(k.Frees(Run{}, rev), txn"}},
	},
	{
		name: "slot of another run, freed by the end of one that has lost it", of: "internal/tick", tests: "TestSlot", unseen: together,
		edits: []edit{{"internal/tick/slot.go", "ModifiedAt([]byte(key), rev)", "NotModifiedAt([]byte(key), -1)"}},
	},
	{
		name: "job run by a process without its labels", of: "sched", tests: "TestRunsOn",
		edits: []edit{{"sched/first.go", "if !ok || !j.runsOn(b.cfg.Labels) {", "if !ok {"}},
	},
	{
		name: "outage that the scheduler logs as well", of: "sched", tests: "TestOutageInTheLog",
		edits: []edit{{"internal/oplog/oplog.go", "\tcase away:\n", "\tcase away && now.IsZero():\n"}},
	},
	{
		name: "deleted key that a late reply brings back", of: "internal/live", tests: "TestLateRepliesBringNothingBack",
		edits: []edit{{"internal/live/view.go", "!ok && newest < v.listed", "!ok && newest < 0"}},
	},
	{
		name: "tick that begins after its StartDeadline, since etcd answered late", of: "sched", tests: "TestBeginIsAnsweredTooLate",
		edits: []edit{{"sched/starter.go", "	if t.run.job.tooLate(is.Ready, b.now()) {", "	if t.waits == nil {"}},
	},
}
