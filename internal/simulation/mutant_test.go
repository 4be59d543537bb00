package simulation_test

import "path/filepath"

// A mutant is a deliberate fault of the protocol: the same source with some
// lines changed. The compiler is shown the changed files in place of the real
// ones (go build -overlay), so that the code that users run has no switches for
// faults in it, and a mutant whose lines are gone fails the test.
type mutant struct {
	name  string
	edits []edit
	// seeds is within how many, from the first on, the simulation must find it.
	seeds int
	// queue says that each of these runs has a queue.
	queue bool
	// tests name the regular tests that must find it instead, by a regular
	// expression for go test -run, where the simulation is not the natural place:
	// one of them must fail.
	tests string
	// of is the package of these tests, from the root of the module. Default:
	// etcdclaims.
	of string
	// unseen is why the explorer does not find it, although it runs the changed files. See explored.
	unseen string
}

// home is the folder of the tests that must find the mutant.
func (m mutant) home() string {
	if m.of == "" {
		return "etcdclaims"
	}
	return m.of
}

// edit changes one place of a file. A file without a folder is one of package
// etcdclaims; another is named by its path from the root of the module.
type edit struct{ file, from, to string }

// path returns the file's path from the folder of this package.
func (e edit) path() string {
	if filepath.Dir(e.file) == "." {
		return filepath.Join("..", "..", "etcdclaims", e.file)
	}
	return filepath.Join("..", "..", e.file)
}

// Two faults are left out because other code makes up for them: a notice that is
// believed though it is older than the last verification, and a verification that does
// not read notices. The first in line sees its own claim by another watch after 200 ms,
// and the others ask after 900 ms at most, so hardly any notice is that old.
var mutants = []mutant{
	{
		name: "deadline dated from the reply", seeds: 100,
		edits: []edit{{"internal/lease/renew.go", "s.adopt(t0, ttl)", "s.adopt(s.Now(), ttl)"}},
	},
	{
		name: "no timeout per attempt", seeds: 100,
		edits: []edit{{"internal/lease/renew.go", "s.p.cfg.Store.KeepAlive(inTime, s.id, g.Attempt)", "s.p.cfg.Store.KeepAlive(inTime, s.id, g.Hard)"}},
	},
	{
		name: "login before each renewal", tests: "TestFarRenewalWithPassword",
		edits: []edit{{"internal/store/lease.go", "if logsIn && conn != nil {", "if logsIn && conn == nil {"}},
	},
	{
		name: "login that takes from the time of the renewal", tests: "TestFarRenewalWithPassword",
		edits: []edit{{"internal/store/lease.go", "limit *= 2 //", "limit *= 1 //"}},
	},
	{
		name: "first renewal counted from the end of the opening", tests: "TestFarWaiterRenewsItsLeaseInTime",
		edits: []edit{{"internal/lease/renew.go", "max(g.Renew-age-g.Renew/16*", "max(g.Renew-0*age-g.Renew/16*"}},
	},
	{
		name: "renewal that does not verify", seeds: 100,
		edits: []edit{{"internal/lease/renew.go", "err := s.verify(ctx, all)", "err := ctx.Err()"}},
	},
	{
		name: "sentinel's deletion ignored", seeds: 100,
		edits: []edit{{"internal/lease/notices.go", "n.Pool.sentinelGone(of)", "_ = of"}},
	},
	{
		name: "release without its guard", seeds: 100,
		edits: []edit{{
			"internal/protocol/release.go", "s.has(in.Compare, own), append(in.Success",
			"append(in.Compare, txn.CreatedAfter(own, -1), txn.CreatedAfter(own, -1)), append(in.Success",
		}},
	},
	{
		name: "guard without the lease compare", of: "internal/protocol", tests: "TestGuard",
		edits: []edit{
			{"internal/protocol/held.go", "txn.ModifiedAt(own, keyspace.Revision(h.Fence)), txn.OnLease(own, h.Lease))", "txn.ModifiedAt(own, keyspace.Revision(h.Fence)), txn.CreatedAfter(own, -1))"},
			{"internal/protocol/verify.go", ", txn.OnLease(own, h.Lease))\n", ")\n"},
		},
	},
	{
		name: "attempt that ends in doubt, and is not undone", of: "internal/protocol", tests: "TestOrders",
		edits: []edit{{"internal/protocol/doubt.go", "Why: ev.Err, Undo: true}", "Why: ev.Err}"}},
	},
	{
		name: "attempt that ends in line, and keeps its place", of: "internal/protocol", tests: "TestOrders",
		edits: []edit{{"internal/protocol/acquisition.go", "with.Undo || a.placed && how != AnswerWon", "with.Undo"}},
	},
	{
		name: "unknown outcome taken for a refusal", of: "internal/protocol", tests: "TestOrders",
		edits: []edit{{"internal/protocol/doubt.go", "	case Unknown, NoSpace:\n", "	case NoSpace:\n"}},
	},
	{
		name: "copy of a request that was found to be carried out", of: "internal/explore/world", tests: "TestScopes",
		edits: []edit{{"internal/txn/send.go", "Success: append(slices.Clip(in.Success), void)", "Success: in.Success"}},
	},
	{
		name: "end that was carried out twice, taken for a loss", of: "internal/explore/world", tests: "TestScopes",
		edits: []edit{{"internal/protocol/endrefusal.go", "case e.Ops != nil && gone &&", "case e.Ops != nil && e.sent && gone &&"}},
	},
	{
		name: "absent key taken for the end of a request that was sent once", of: "internal/protocol", tests: "TestEndingWithOps", unseen: unused,
		edits: []edit{{"internal/protocol/endops.go", "kv == nil && e.sent:", "kv == nil:"}},
	},
	{
		name: "reader in line twice", of: "internal/explore/world", tests: "TestScopes",
		edits: []edit{{"internal/protocol/join.go", `case keys.Mark != "" || s.Over != nil:`, `case s.Over != nil:`}},
	},
	{
		name: "place of one that supersedes, left in the line", of: "internal/protocol", tests: "TestSupersededFromTheLine", unseen: unused,
		edits: []edit{{"internal/protocol/join.go", `case keys.Mark != "" || s.Over != nil:`, `case keys.Mark != "":`}},
	},
	{
		name: "two slots for one caller", of: "internal/explore/world", tests: "TestScopes",
		edits: []edit{{"internal/protocol/join.go", `case keys.First != "": // that was`, `case keys.First == "?": // that was`}},
	},
	{
		name: "notice of a claim that was taken away", of: "internal/explore/world", tests: "TestScopes",
		edits: []edit{{
			"internal/protocol/undo.go", "in.Failure, txn.Delete([]byte(s.PlaceKey())), txn.Delete([]byte(s.Notice(s.Instance, s.ID))))",
			"in.Failure, txn.Delete([]byte(s.PlaceKey())))",
		}},
	},
	{
		name: "claim of a place that was there by mistake", of: "internal/explore/world", tests: "TestScopes",
		edits: []edit{{"internal/protocol/undo.go", `if keys.First == "" { // else the reply`, `if keys.First == "?" { // else the reply`}},
	},
	{
		name: "place behind the own claim that stays", of: "internal/protocol", tests: "TestOrders",
		edits: []edit{{"internal/protocol/doubt.go", "if a.claims == Joining {", "if a.claims == phases {"}},
	},
	{
		name: "model that evaluates nested conditions after earlier operations", of: "internal/explore/etcdmodel", tests: "TestModelIsEtcd",
		edits: []edit{{"internal/explore/etcdmodel/txn.go", "!w.begin.Holds(in.Compare)", "!w.Holds(in.Compare)"}},
	},
	{
		name: "model with a revision for each write of a transaction", of: "internal/explore/etcdmodel", tests: "TestModelIsEtcd",
		edits: []edit{{"internal/explore/etcdmodel/txn.go", "	if w.rev == w.begin.rev {\n", "	if w.rev >= w.begin.rev {\n"}},
	},
	{
		name: "model that changes a key twice in a transaction", of: "internal/explore/etcdmodel", tests: "TestModelIsEtcd",
		edits: []edit{{"internal/explore/etcdmodel/txn.go", "if c.Name == k.Name {", "if c.Name == k.Name && c.Created == 0 {"}},
	},
	{
		name: "model whose failed transaction leaves what it had put", of: "internal/explore/etcdmodel", tests: "TestModelIsEtcd",
		edits: []edit{{"internal/explore/etcdmodel/txn.go", "	if err != nil {\n		return s, nil, err\n	}\n	resp.Header", "	if err != nil {\n		return w.State, nil, err\n	}\n	resp.Header"}},
	},
	{
		name: "model whose keys stay on the lease of an earlier put", of: "internal/explore/etcdmodel", tests: "TestModelIsEtcd",
		edits: []edit{{"internal/explore/etcdmodel/txn.go", "	if k.Modified = w.rev; put {\n", "	if k.Modified = w.rev; put {\n		k.Lease = max(k.Lease, w.log.before.Lease)\n"}},
	},
	{
		name: "model that limits before it filters", of: "internal/explore/etcdmodel", tests: "TestModelIsEtcd",
		edits: []edit{{"internal/explore/etcdmodel/read.go", "slices.Clone(keys), func", "slices.Clone(keys[:min(len(keys), int(cmp.Or(r.Limit, 1000))+1)]), func"}},
	},
	{
		name: "model that evaluates a range condition on one key", of: "internal/explore/etcdmodel", tests: "TestModelIsEtcd",
		edits: []edit{{"internal/explore/etcdmodel/read.go", "none || slices.ContainsFunc(keys, func", "none || slices.ContainsFunc(keys[:min(1, len(keys))], func"}},
	},
	{
		name: "world that exchanges names, and not what is on whose lease", of: "internal/explore/world", tests: "TestOtherNames",
		edits: []edit{{"internal/explore/world/encode.go", "append(b, 0xff, byte(letter))", "append(b, 0xff, byte(letter)|0x80)"}},
	},
	{
		name: "model that reads the revision before the past one", of: "internal/explore/etcdmodel", tests: "TestModelIsEtcd",
		edits: []edit{{"internal/explore/etcdmodel/read.go", "c != nil && c.Modified > r.Revision; c", "c != nil && c.Modified >= r.Revision; c"}},
	},
	{
		name: "model that changes the state it came from", of: "internal/explore/etcdmodel", tests: "TestStatesNeverChange",
		edits: []edit{{"internal/explore/etcdmodel/txn.go", "		w.keys = append(make([]*Key, 0, len(w.keys)+4), w.keys...)\n", ""}},
	},
	{
		name: "model that forgets a lease in what it appends", of: "internal/explore/etcdmodel", tests: "TestBytesAreTheState",
		edits: []edit{{"internal/explore/etcdmodel/state.go", "		to.Int(id)\n", "		_ = id\n"}},
	},
	{
		name: "undo of a lost acquire left out", seeds: 100,
		edits: []edit{{"internal/acquire/undo.go", "func (a *Attempt) Undo() {\n", "func (a *Attempt) Undo() {\n	if a != nil {\n		return\n	}\n"}},
	},
	{
		name: "unknown taken for failure", seeds: 100, unseen: mirrored,
		edits: []edit{{"internal/txn/outcome.go", "if !MayBeDone(err) {", "if !MayBeDone(err) || err != nil {"}},
	},
	{
		name: "unknown taken for success", seeds: 100,
		edits: []edit{{
			"internal/term/check.go",
			"	case errors.Is(err, claimerr.ErrClosed), errors.Is(err, claimerr.ErrLost):\n",
			"	case errors.Is(err, txn.ErrUnknown):\n		return &clientv3.TxnResponse{Succeeded: true}, nil\n	case errors.Is(err, claimerr.ErrClosed), errors.Is(err, claimerr.ErrLost):\n",
		}},
	},
	{
		name: "blind retry of an acquire", seeds: 100,
		edits: []edit{{"internal/acquire/drive.go", "		return protocol.Unknown\n", "		return protocol.Transient\n"}},
	},
	{
		name: "re-grant under a handler", seeds: 100,
		edits: []edit{
			{
				"internal/term/term.go", "	case protocol.Deleted:\n		t.TakeAway(claimerr.Loss{Reason: claimerr.Deleted})\n",
				"	case protocol.Deleted:\n		if t.regrant() {\n			return true\n		}\n		t.TakeAway(claimerr.Loss{Reason: claimerr.Deleted})\n",
			},
			{
				"internal/term/term.go", "	\"github.com/etcdclaims/claims/internal/registry\"\n",
				"	\"github.com/etcdclaims/claims/internal/registry\"\n	\"github.com/etcdclaims/claims/internal/txn\"\n",
			},
			{
				"internal/term/term.go", "var errEpochRaised =", `func (t *Term) regrant() bool {
	own := t.Own(t.Key)
	value := protocol.Holder{Claim: t.ID, Owner: t.terms.Owner, Instance: t.Instance, Epoch: t.epoch()}.Encode()
	resp, err := t.terms.Store.Do(t.terms.Life.IO, txn.Request{In: txn.Of(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(own), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(own, value, clientv3.WithLease(t.s.ID()))}, nil,
	)})
	return err == nil && resp.Succeeded
}

var errEpochRaised =`,
			},
		},
	},
	{
		name: "owner matched by name", of: "internal/protocol", tests: "TestTake",
		edits: []edit{{
			"internal/protocol/try.go", "	return kv != nil && kv.Lease == t.Lease && string(kv.Value) == t.Value\n",
			"	if kv == nil {\n		return false\n	}\n	h, err := DecodeHolder(kv.Value)\n	own, _ := DecodeHolder([]byte(t.Value))\n	return err == nil && h.Owner == own.Owner\n",
		}},
	},
	{
		name: "waiter that ignores its own lease", seeds: 100,
		edits: []edit{
			{"internal/lease/room.go", "	if s.cause != nil || !admit() {\n", "	if handed := m.(interface{ Handed() bool }).Handed(); s.cause != nil && !handed || !admit() {\n"},
			{"internal/term/term.go", "// Queue returns", "func (t *Term) Handed() bool { return t.Noticed }\n\n// Queue returns"},
			{"internal/acquire/acquire.go", "late := !a.S.Fresh() || a.HandedAt > 0 && a.HandedAt <= a.S.VerifiedAt()\n", "late := a.HandedAt == 0 && !a.S.Fresh()\n"},
			{"internal/line/await.go", "		case <-a.S.Dead():\n", "		case <-(chan struct{})(nil):\n"},
		},
	},
	{
		name: "watch resumed one revision late", seeds: 100,
		edits: []edit{
			{"internal/lease/notices.go", "clientv3.WithRev(rev+1)", "clientv3.WithRev(rev+2)"},
			{"internal/watch/watch.go", "w.cfg.Begin(ctx, own+w.cfg.Prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1))", "w.cfg.Begin(ctx, own+w.cfg.Prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+2))"},
		},
	},
	{
		name: "no relist after compaction", seeds: 300,
		edits: []edit{{"internal/lease/notices.go", "read, err := n.Read()", "read, err := rev, error(nil)"}},
	},
	{
		name: "regress of the revision ignored", seeds: 100,
		edits: []edit{{"internal/store/rewind.go", "	if rev >= sent.floor {\n		return nil\n	}\n", "	if rev >= 0 {\n		return nil\n	}\n"}},
	},
	{
		name: "newcomer that passes the line", of: "internal/protocol", tests: "TestTake",
		edits: []edit{{"internal/protocol/try.go", "	if t.Over == nil || t.Over.Yields {\n		keys := t.Mode.Keys()\n", "	if t.Over != nil {\n		keys := t.Mode.Keys()\n"}},
	},
	{
		name: "waiter that passes those before it", seeds: 100,
		edits: []edit{{"internal/protocol/join.go", "		in.Compare = append(in.Compare, turn)\n", ""}},
	},
	{
		name: "waiter that is never woken", seeds: 100,
		edits: []edit{
			{"internal/line/await.go", "		case resp, ok := <-before:\n", "		case resp, ok := <-before:\n			if ok && resp.Err() == nil {\n				continue\n			}\n"},
			{"internal/term/verify.go", "	waits := k.ts.Waiters.Of(k.s)\n", "	waits := k.ts.Waiters.Of(k.s)[:0]\n"},
		},
	},
	{
		name: "condition of the caller's left out", seeds: 100,
		edits: []edit{{"internal/protocol/try.go", "append(append(in.Compare, conditions...), t.Ask.If...)", "append(in.Compare, conditions...)"}},
	},
	{
		name: "guard without the epoch", seeds: 100,
		edits: []edit{{"internal/protocol/held.go", "txn.ModifiedAt([]byte(h.Layout.Epoch()), h.EpochRev))", "txn.CreatedAfter([]byte(h.Layout.Epoch()), -1))"}},
	},
	{
		name: "zombie whose key is soon free", seeds: 100,
		edits: []edit{{"internal/term/move.go", "t.move(protocol.KindZombie, t.s.Grant().TTL)", "t.move(protocol.KindZombie, time.Second)"}},
	},
	{
		name: "lower epoch found without a word", tests: "TestEpochDeletedByHand",
		edits: []edit{{"internal/store/epoch.go", "			s.seeLower(have, e)\n", ""}},
	},
	{
		name: "lower epoch that Health does not see", tests: "TestEpochDeletedByHand",
		edits: []edit{{"health.go", "c.store.EpochIsLower() || !c.outage", "!c.outage"}},
	},
	{
		name: "Supersede refused by what is being released", of: "etcdclaims/work", tests: "TestSupersedeWhatIsBeingReleased",
		edits: []edit{{"internal/acquire/acquire.go", "if o.Supersede && r.Next == Stop && ac.supersedable(r.Err, key) {\n		r = RetryIf(true, r.Err)\n", "if o.Supersede && ac.supersedable(r.Err, key) {\n		r = RetryIf(false, r.Err)\n"}},
	},
	{
		name: "lock whose lease is not renewed", seeds: 100,
		edits: []edit{{"etcdclaims/locks/locks.go", "err = c.Leases().KeepAlive(ctx, lease)", "_, err = lease, ctx.Err()"}},
	},
	{
		name: "shared round trip without its ticket", tests: "TestLateCoalescedIsVoidForThoseWhoLeft|TestCallerLeavesBatch", unseen: alone,
		edits: []edit{{"internal/txn/batch.go", "	in := &pb.TxnRequest{Compare: b.cfg.shared(tickets, epoch)}\n", "	_ = tickets\n	in := &pb.TxnRequest{Compare: b.cfg.shared(nil, epoch)}\n"}},
	},
	{
		name: "shared round trip without its epoch", seeds: 100, unseen: alone,
		edits: []edit{{"internal/txn/batch.go", "	in := &pb.TxnRequest{Compare: b.cfg.shared(tickets, epoch)}\n", "	_ = epoch\n	in := &pb.TxnRequest{Compare: b.cfg.shared(tickets, nil)}\n"}},
	},
	{
		name: "replies of a shared round trip given to the neighbour", seeds: 100, unseen: alone,
		edits: []edit{{"internal/txn/send.go", "		refused := g.settle(resp.Responses[i], resp.Header)\n", `		at := i
		if o := i ^ 1; o < len(groups) && len(g.calls)+len(groups[o].calls) == 2 {
			if c, other := g.calls[0], groups[o].calls[0]; len(c.Also)+len(other.Also) == 0 && len(c.In.Failure) == len(other.In.Failure) {
				at = o
			}
		}
		refused := g.settle(resp.Responses[at], resp.Header)
`}},
	},
	{
		name: "joint group without the conditions of its calls", seeds: 100, unseen: alone,
		edits: []edit{{"internal/txn/group.go", "in.Compare, in.Success = append(in.Compare, c.In.Compare...), append(", "in.Success = append("}},
	},
	{
		name: "joint group whose replies are counted by calls", of: "internal/txn", tests: "TestJointGroups", unseen: alone,
		edits: []edit{{"internal/txn/group.go", "			at += n\n", "			at++\n"}},
	},
	{
		name: "void in a joint group", of: "internal/txn", tests: "TestWhatIsNotJoined", unseen: alone,
		edits: []edit{{"internal/txn/group.go", "if r.Nested || r.Void != nil {", "if r.Nested {"}},
	},
	{
		name: "refusal of a joint group given to each of its calls", of: "internal/txn", tests: "TestJointGroups", unseen: alone,
		edits: []edit{{"internal/txn/group.go", "		return true\n	default:", `		for _, c := range g.calls {
			c.resp = &clientv3.TxnResponse{Header: header}
			close(c.settled)
		}
	default:`}},
	},
	{
		name: "joint groups that go on although they are refused", of: "internal/txn", tests: "TestRefusedGroupsArePaused", unseen: alone,
		edits: []edit{{"internal/txn/joint.go", "		d.left = d.length\n", ""}},
	},
	{
		name: "refusal of one call's lease given to all", seeds: 100, unseen: alone,
		edits: []edit{{"internal/txn/send.go", "if len(groups) == 1 && calls[0].lease != severalLeases {", "if len(groups) > 0 {"}},
	},
	{
		name: "hand-over to a place that is gone", seeds: 100,
		edits: []edit{{"internal/protocol/release.go", "	in.Compare = append(in.Compare, txn.ModifiedAt(name, first.Rev))\n", ""}},
	},
	{
		name: "hand-over that leaves the place", of: "internal/protocol", tests: "TestRelease|TestNoticeHasTheNext",
		edits: []edit{{"internal/protocol/release.go", "in.Success = append(in.Success, txn.Delete(name), txn.Put(", "in.Success = append(in.Success, txn.Put("}},
	},
	{
		name: "verification that takes no for an answer", seeds: 100,
		edits: []edit{{"internal/term/verify.go", "		if !resp.Succeeded {\n", "		if resp == nil {\n"}},
	},
}
