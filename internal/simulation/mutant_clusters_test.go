package simulation_test

// clusterMutants are about families of keys that move between clusters.
var clusterMutants = []mutant{
	{
		name: "seal that keeps the epoch", tests: "TestMove|TestMoves", of: "internal/clusters",
		edits: []edit{{
			"internal/clusters/record.go", "clientv3.OpPut(epochKey, strconv.FormatInt(epoch, 10)),",
			"clientv3.OpPut(epochKey+map[bool]string{true: \"-\"}[r.MovedTo != \"\"], strconv.FormatInt(epoch, 10)),",
		}},
	},
	{
		name: "new home that keeps its epoch", tests: "TestMove|TestMoves", of: "internal/clusters",
		edits: []edit{{"internal/clusters/record.go", "max(generation, s.epoch+1))", "max(s.epoch, 1))"}},
	},
	{
		name: "claims that do not depend on the home", tests: "TestMove|TestMoves", of: "internal/clusters",
		edits: []edit{{"internal/clusters/families.go", `"=", p.raw)`, `"!=", p.raw+"?")`}},
	},
	{
		name: "family born where it is looked for", tests: "TestMove|TestMoves|TestWrongHint", of: "internal/clusters",
		edits: []edit{{"internal/clusters/families.go", "case at != birthplace:", "case at == \"\":"}},
	},
	{
		name: "home that is opened anew", tests: "TestLateOpening", of: "internal/clusters",
		edits: []edit{{
			"internal/clusters/record.go",
			"		clientv3.Compare(clientv3.ModRevision(record), \"=\", s.recordRev),\n		clientv3.Compare(clientv3.ModRevision(epochKey), \"=\", s.epochRev),\n",
			"",
		}},
	},
}
