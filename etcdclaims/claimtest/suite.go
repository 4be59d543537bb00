package claimtest

import (
	"slices"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestClaims tests that claims keep their promises on this etcd, as one subtest
// for each of [ClaimCases]: on a version, a configuration, a proxy, or through
// clients that are configured in some way.
//
//	func TestOurEtcd(t *testing.T) {
//		claimtest.TestClaims(t, claimtest.EtcdFunc(func(tb testing.TB) *clientv3.Client {
//			c, err := clientv3.New(ourConfig)
//			if err != nil {
//				tb.Fatal(err)
//			}
//			tb.Cleanup(func() { c.Close() })
//			return c
//		}))
//	}
//
// It asks for nothing but that clients reach etcd: what else is stored there
// stays as it is, and what the cases store is below /claimtest/, with a part
// that is random, and is left behind where it is not a claim's. A user of etcd
// needs permission to read and write there, no more.
//
// It takes about twenty seconds of real time, in which several subtests run at
// once, whatever -parallel says: some wait for leases of five seconds to end. So
// an etcd that now and then takes some seconds to answer fails it. Inside a bubble
// there are no subtests: run the cases there one by one, as ClaimCases shows.
func TestClaims(t *testing.T, etcd Etcd) {
	t.Helper()
	if inBubble() {
		t.Fatal("claimtest: TestClaims: a bubble has no subtests: use ClaimCases, each in a bubble of its own")
	}
	// One after the other, since those that wait also renew in time, for which
	// the others may leave too little of the machine.
	runCasesAtOnce(t, etcd, waitCases, len(waitCases))
	runCasesAtOnce(t, etcd, quickCases(), 8)
}

// runCasesAtOnce runs so many cases at a time. That is not left to t.Parallel,
// which runs no more of them than there are processors, though they wait.
func runCasesAtOnce(t *testing.T, etcd Etcd, cases []Case, most int) {
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

// EtcdFunc is a function as an [Etcd]: it is called for each client, which are
// two or three in a case, and closes what it returns when the test ends. It may
// return the same client each time.
type EtcdFunc func(tb testing.TB) *clientv3.Client

// Etcd implements [Etcd].
func (f EtcdFunc) Etcd(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return f(tb)
}

// A Case is one promise of claims, as a test.
type Case struct {
	Name string
	run  func(t *trial)
}

// Run tests the promise on an etcd, in the time of the bubble if it is called in
// one. It must be called on the test's own goroutine.
func (c Case) Run(tb testing.TB, etcd Etcd) {
	tb.Helper()
	c.run(newTrial(tb, etcd))
}

// ClaimCases returns what [TestClaims] runs, to be run in another way: only some
// of it, or in virtual time.
//
//	for _, c := range claimtest.ClaimCases() {
//		t.Run(c.Name, func(t *testing.T) {
//			synctest.Test(t, func(t *testing.T) { c.Run(t, claimtest.Start(t)) })
//		})
//	}
func ClaimCases() []Case { return slices.Concat(waitCases, quickCases()) }

func quickCases() []Case {
	return slices.Concat(
		exclusionCases, optionCases, fenceCases, lineCases, writeCases, lossCases,
		runCases, workCases, attemptCases, viewCases, lockCases, endCases, inputCases,
	)
}
