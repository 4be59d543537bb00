// Quickstart counts the lines, words and bytes of a tree of Go files. Three worker
// processes share the files through claims; one is killed, and one is frozen for
// longer than its claims last.
//
//	go run ./examples/quickstart                        # starts an etcd in this process
//	go run ./examples/quickstart -endpoints http://localhost:2379
//
// Each file is one piece of work. A worker runs it with work.Runner.Run, and ends it
// with Work.Complete, which stores the result in the same transaction. So each file
// has one result, whatever happens to the workers. worker.go has all that a program
// needs. The parent, in parent.go, kills and freezes workers, and checks the results.
//
// It exits with 0 only if the totals equal those of a plain count, every file has
// one result, work of a dead worker was taken over, and a late write of the frozen
// worker was refused.
package main

import (
	"flag"
	"time"

	"github.com/etcdclaims/claims/examples/demoproc"
)

func main() {
	demoproc.Program[job]{
		Name: "quickstart",
		Flags: func(flags *flag.FlagSet, j *job) {
			flags.StringVar(&j.Root, "root", "", "directory whose .go files are counted (default: the Go distribution's)")
			flags.IntVar(&j.Pace, "pace", 500, "files per second and worker, 0 for no limit")
		},
		Timeout: 90 * time.Second,
		Parent:  demonstrate,
		Worker:  runWorker,
	}.Main()
}
