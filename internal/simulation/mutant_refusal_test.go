package simulation_test

// refusalMutants are about how refusals and limits of etcd are met.
var refusalMutants = []mutant{
	{
		name: "release that is refused and tries again without a pause", of: "internal/scenarios", tests: "TestRefusedReleaseEnds", unseen: timeless,
		edits: []edit{{"internal/protocol/endrefusal.go", "	case e.to != \"\":\n", "	case e.to != \"\" || ev.Kind == EndNoLease:\n"}},
	},
	{
		name: "notices of a client read in one reply", tests: "TestNoticesAreReadInPages",
		edits: []edit{{"internal/lease/notices.go", "clientv3.WithPrefix()), 256, 1024, n.readPage)", "clientv3.WithPrefix()), 1024, 1024, func(clientv3.Op) (*clientv3.GetResponse, error) {\n\t\t\treturn p.cfg.Etcd.Get(p.cfg.Life.IO, prefix, clientv3.WithPrefix())\n\t\t})"}},
	},
	{
		name: "batch kept together after a refusal of one call", of: "fencing/etcdguard", tests: "TestBatchIsTakenApartAfterFinalRefusals",
		edits: []edit{{"fencing/etcdguard/batcher.go", "txn.Judge(err) == txn.Final\n", "txn.Judge(err) == txn.Lasting\n"}},
	},
	{
		name: "eviction that is refused while no lease is granted", of: "internal/scenarios", tests: "TestEvictionOutlivesRefusals",
		edits: []edit{{
			"etcdclaims/group/operate.go",
			"retry.Within(ctx, readTimeout, func(ctx context.Context) (clientv3.LeaseID, error) {\n\t\treturn core.Of(v.claims).GrantLease(ctx, d)\n\t})",
			"core.Of(v.claims).GrantLease(ctx, d)\n\t_ = retry.Within[clientv3.LeaseID]",
		}},
	},
}
