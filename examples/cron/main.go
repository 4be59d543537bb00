// Cron runs four jobs on schedules in four processes. Again and again a process is
// killed, frozen for longer than its claims last, or gets a wrong clock.
//
//	go run ./examples/cron             # 45 seconds, an etcd of its own
//	go run ./examples/cron -for 10m
//	go run ./examples/cron -endpoints http://localhost:2379
//
// jobs.go has the jobs, worker.go all that a program with real jobs needs. The
// parent, in parent.go, only kills, freezes and sets clocks. At the end, ledger.go
// compares what the handlers themselves wrote with the ticks that were due.
//
// It exits with 0 only if no tick ran twice, and none is unaccounted for.
package main

import (
	"flag"
	"time"

	"github.com/etcdclaims/claims/examples/demoproc"
)

func main() {
	demoproc.Program[setup]{
		Name: "cron",
		Flags: func(flags *flag.FlagSet, s *setup) {
			flags.DurationVar(&s.For, "for", 45*time.Second, "how long the jobs are due")
		},
		Parent: demonstrate,
		Worker: runWorker,
	}.Main()
}
