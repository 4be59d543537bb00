// Shards counts an event log with twelve worker processes that share its 256 partitions
// by a group. Workers join while others count. Two are killed, one is frozen for longer
// than its claims last, and one leaves in order.
//
//	go run ./examples/shards                  # a million events, in an etcd of its own
//	go run ./examples/shards -events 100000
//	go run ./examples/shards -endpoints http://localhost:2379
//
// worker.go has all that a program with real partitions needs. The parent, in parent.go,
// writes the log, starts, kills and freezes workers, and checks the totals. On a terminal
// it shows a matrix with a letter for the owner of each partition.
//
// It exits with 0 only if the totals of all partitions are those that one process counts;
// if others took over the partitions of the killed workers; and if the late write of the
// frozen worker was refused.
package main

import (
	"flag"
	"time"

	"github.com/etcdclaims/claims/examples/demoproc"
)

func main() {
	demoproc.Program[job]{
		Name: "shards",
		Flags: func(flags *flag.FlagSet, j *job) {
			flags.IntVar(&j.Events, "events", 1_000_000, "how many events the log has")
			flags.IntVar(&j.Batches, "batches", 30, "in how many steps a partition is counted")
		},
		Timeout: time.Minute,
		Parent:  demonstrate,
		Worker:  runWorker,
	}.Main()
}
