// Package contract has the contracts of a client and of a queue, about a hundred
// promises, as tests. They run on any etcd: of another version or configuration,
// behind a proxy, in a namespace, or with clients of special settings.
package contract

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
)

// TestClaims tests the contract of claims on an etcd, with a subtest for each of
// [Cases].
//
// It only needs clients that reach etcd, whose user may read and write below
// /claimtest/. It stores everything below a random prefix there, removes its
// claims, leaves the rest behind, and changes nothing else.
//
// It takes about twenty seconds of real time. Several subtests run at once, whatever
// -parallel is, and some wait for leases of five seconds to end. An
// etcd that occasionally takes some seconds to answer fails it. It must not be
// called inside a bubble, which has no subtests: see [Cases].
func TestClaims(t *testing.T, etcd claimtest.Etcd) {
	t.Helper()
	if inBubble() {
		t.Fatal("contract: TestClaims: a bubble has no subtests: run each of Cases in a bubble of its own")
	}
	// One group after the other: the cases that wait must also renew in time, for
	// which the others might leave too little CPU.
	runCasesAtOnce(t, etcd, waitCases, len(waitCases))
	runCasesAtOnce(t, etcd, quickCases(), 8)
}

// runCasesAtOnce runs up to most cases at a time. t.Parallel would run no more of
// them than there are processors, although most of the time they wait.
func runCasesAtOnce(t *testing.T, etcd claimtest.Etcd, cases []Case, most int) {
	t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, most)
	for _, c := range cases {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			t.Run(c.Name, func(t *testing.T) { c.Run(t, etcd) })
		})
	}
}

// A Case is one promise of the contract, as a test.
type Case struct {
	Name string
	run  func(t *trial)
}

// Run tests the promise on an etcd. Inside a bubble it uses the bubble's time. It
// must be called on the test's own goroutine.
func (c Case) Run(tb testing.TB, etcd claimtest.Etcd) {
	tb.Helper()
	c.run(newTrial(tb, etcd))
}

// Cases returns the cases that [TestClaims] runs, for tests that run only some of
// them, or run them in virtual time.
//
//	for _, c := range contract.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			synctest.Test(t, func(t *testing.T) { c.Run(t, claimtest.Start(t)) })
//		})
//	}
func Cases() []Case { return slices.Concat(waitCases, quickCases()) }

func quickCases() []Case {
	return slices.Concat(
		exclusionCases, optionCases, fenceCases, lineCases, writeCases, lossCases,
		runCases, workCases, attemptCases, viewCases, lockCases, endCases, inputCases,
	)
}

// inBubble reports whether it is called in a bubble, whose clock begins in 2000.
func inBubble() bool { return time.Now().Year() < 2020 }
