package testetcd

import (
	"math"
	_ "unsafe" // for go:linkname

	_ "go.etcd.io/etcd/server/v3/storage/mvcc" // whose variables these are
)

// A server lets watchers that are behind catch up in rounds: some of them at a
// time, by some revisions at a time. When a round was not enough for all, it rests
// for as long as the round took. In a bubble a round takes no time, and a ticker of
// no interval panics (syncWatchersLoop in etcd 3.7.3). With these bounds lifted, one
// round is always enough.
//
//go:linkname maxWatchersPerSync go.etcd.io/etcd/server/v3/storage/mvcc.maxWatchersPerSync
var maxWatchersPerSync int

//go:linkname watchBatchMaxRevs go.etcd.io/etcd/server/v3/storage/mvcc.watchBatchMaxRevs
var watchBatchMaxRevs int

func init() {
	// Before any server runs, and so also for those in real time of the same
	// process. Members that are processes of their own keep etcd's bounds.
	maxWatchersPerSync = math.MaxInt
	watchBatchMaxRevs = math.MaxInt
}
