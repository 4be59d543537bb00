package simulation_test

// lazyMutants are about releases that nobody waits for.
var lazyMutants = []mutant{
	{
		name: "delayed release that only another request sends", seeds: 100, unseen: alone,
		edits: []edit{{"internal/txn/later.go", "		d.timer = time.AfterFunc(Lag, b.Hurry)\n", "		d.timer = time.AfterFunc(1000*Lag, b.Hurry)\n"}},
	},
	{
		name: "claim of a delayed release that is taken over before those in line", seeds: 100,
		edits: []edit{{"internal/protocol/over.go", "	over.Yields = true\n", "	over.Yields = false\n"}},
	},
	{
		name: "request that overtakes the delayed release of its key", tests: "TestLazyReleaseIsFreeForItsClient", unseen: alone,
		edits: []edit{{"internal/txn/batch.go", "	if t.b.delays.before(&c.Request) != nil {\n", "	if t.b.delays.before(&c.Request) == c {\n"}},
	},
	{
		name: "delayed release that is forgotten when the key is not taken over", seeds: 100,
		edits: []edit{{"internal/term/part.go", "		p.request.Resume()\n", "		p.request.Drop()\n"}},
	},
}
