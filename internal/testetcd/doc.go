// Package testetcd gives tests a real etcd, never an imitation of one.
//
// There are four ways to have it, and a test should take the cheapest that
// shows what it wants to show:
//
//   - [Shared] is one member in this process for all tests of a package, which
//     stay apart by [Prefix]. It costs about 20 ms, once.
//   - [Start] and [StartCluster] give a test members of its own, in this
//     process, to stop, restart and move the leader of. One member costs about
//     20 ms, three cost half a second, and one more to stop the leader.
//   - [StartProcess] and [StartProcessCluster] run etcd as processes of their
//     own, to pause (SIGSTOP) and kill (SIGKILL). They cost one to two seconds
//     each, and the very first one a build of the binary, which is then kept
//     in the temporary directory. They alone can be of another version: see
//     [Binary]; and have a disk that stalls: see [StallableDisk].
//   - [StartVirtual] runs the same server inside a testing/synctest bubble,
//     where 20 minutes pass in 0.1 s. It costs about 10 ms. Server and clients talk
//     gRPC over a connection in memory, since a socket would stop the bubble's
//     clock. One member only, for the same reason.
//
// Clients are clientv3 clients throughout. In a bubble their watcher is the one
// of [NewWatcher], because clientv3's own waits on a channel made outside of
// every bubble, which keeps virtual time from ever advancing.
//
// Raft and lease timing are etcd's defaults everywhere (a heartbeat of 100 ms,
// an election timeout of 1 s, so leases of at least 2 s), and servers write to
// disk with fsync unless told otherwise by [NoSync]; virtual ones never do.
package testetcd
