// Package claimtest tests code that uses claims against a real etcd, under lost
// replies, cut networks, expired and revoked leases, restarts and restores. Hours
// of lease time pass in a second, and no server needs to be installed.
//
//	func TestJob(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			server := claimtest.Start(t)
//			host := server.Host(t)
//			claims := claimtest.NewClient(t, host, etcdclaims.Config{})
//
//			host.Inject(claimtest.Fault{On: claimtest.Acquire, LoseReply: true})
//			claim, err := claims.TryAcquire(t.Context(), "job") // succeeds: the client finds out that etcd has carried it out
//			...
//			host.Cut()
//			time.Sleep(time.Minute) // virtual: takes no real time
//			// claim.Err() matches ErrLost, and did before any other client could acquire the key
//		})
//	}
//
// [Start] starts one member. Inside a testing/synctest bubble it uses the
// bubble's time: leases expire as the test sleeps. Outside it uses real time.
// [Cluster] starts several members whose leader can move. [Processes] starts
// members that are processes, which can be paused and killed. Both use real time
// only, because sockets stop a bubble's clock.
//
// A [Host] is the machine that clients run on. Faults are injected between a host
// and etcd, for all requests or for those of one [Kind]. The methods of [Server] and
// [Members] change etcd itself, as its operators do.
//
// # What it is
//
// The server is go.etcd.io/etcd/server/v3. The clients are those of
// go.etcd.io/etcd/client/v3. Nothing is a mock, with one exception: in a bubble,
// clients have another watcher, because clientv3's own waits on a channel from
// outside the bubble, which stops virtual time. The other watcher resumes,
// fragments and fails as clientv3's does; both pass the same tests. In virtual time the
// server's log and backend are on disk without fsync.
//
// # What it costs
//
// A virtual member starts in 3 to 10 ms and needs 3 MB of heap; each further one
// 0.3 MB. Ten simulated minutes of a held claim take 45 ms. A
// member in real time starts in 20 ms, three members in half a second, and three
// processes in two seconds. The first use of processes also builds etcd. (Two
// cores, etcd 3.7.3.) The package links the server: 61 modules instead of 18, and
// 15 MB more in a test binary. A program that imports only etcdclaims does not link
// them.
//
// # What it does not show
//
// Computing takes no virtual time. Disks do not fail. The order of goroutines is
// not fixed: a seed repeats a test's inputs, not its interleaving.
//
// Under -race a test binary with bubbles may crash inside the race detector, with a
// ThreadSanitizer CHECK or SIGSEGV: goroutines of a bubble share a timer context there
// (https://go.dev/issue/78156). With -cpu 1 it does not. Races
// are still found with it: the detector looks at the order of accesses, not at their
// time.
package claimtest
