// Package claimtest tests code that uses claims against the real etcd: under
// lost replies, cut networks, lapsed and revoked leases, restarts and restores,
// with hours of lease time in a second and no server to run.
//
//	func TestJob(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			server := claimtest.Start(t)
//			host := server.Host(t)
//			claims := claimtest.NewClient(t, host, etcdclaims.Config{})
//
//			host.Inject(claimtest.Fault{On: claimtest.Acquire, LoseReply: true})
//			claim, err := claims.TryAcquire(t.Context(), "job") // done, though its reply was lost
//			...
//			host.Cut()
//			time.Sleep(time.Minute) // of the bubble: no time at all
//			// claim.Err() is ErrLost, and was before anybody else could have the key
//		})
//	}
//
// [Start] gives one member. Inside a testing/synctest bubble it lives in the
// bubble's time: leases expire as the test sleeps. Outside it lives in real time.
// [Cluster] gives members in real time, whose leader can move, and [Processes]
// members that are processes, to pause and to kill: sockets stop a bubble's
// clock, so there is neither in virtual time.
//
// A [Host] is the machine that clients run on. Faults are injected between it
// and etcd, for all requests or for those of one [Kind]. What happens to etcd
// itself is done with the methods of [Server], [Members] and [Operator].
//
// [History] records what clients were told, and checks that no two owned a key
// at a time, that fences rose, and that each accepted write was its owner's.
// [TestClaims] is the contract of a client as a suite, for servers and
// configurations of one's own.
//
// # What it is
//
// The server is go.etcd.io/etcd/server/v3, its log and backend on disk without
// fsync if virtual, and clients are those of go.etcd.io/etcd/client/v3; nothing
// is imitated. One thing is replaced: in a bubble clients have another watcher,
// since clientv3's own waits on a channel made outside of every bubble, which
// stops virtual time. It resumes, fragments and fails as clientv3's does; both
// pass the same tests.
//
// # What it costs
//
// A virtual member starts in 3 to 10 ms and needs 3 MB of heap, the next ones a
// tenth of that; ten simulated minutes of a held claim take 45 ms. A member in
// real time starts in 20 ms, three in half a second, three processes in two
// seconds, and the first time etcd is built, which takes some more. (Two cores,
// etcd 3.7.3.) The package links the server and porcupine: 62 modules instead of
// 18, and 15 MB more in a test binary. Who imports etcdclaims alone links none
// of it.
//
// # What it does not show
//
// Time in a bubble passes only while everybody waits, so how long computing
// takes is not part of a test. Disks do not fail. The order of goroutines is not
// fixed: a seed repeats a test's inputs, not its interleaving.
package claimtest
