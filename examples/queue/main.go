// Queue makes thumbnails of the pictures of the Go distribution with eight worker
// processes that share a queue. Two workers are killed and one is frozen for longer
// than its leases last; and one picture kills every worker that opens it.
//
//	go run ./examples/queue                        # starts an etcd in this process
//	go run ./examples/queue -dir ~/Pictures -out ~
//	go run ./examples/queue -endpoints http://localhost:2379
//
// worker.go has all that a program with real items needs. The parent, in parent.go,
// enqueues the pictures, kills and freezes workers, and checks the results.
//
// It exits with 0 only if every picture was enqueued once, and has either one
// thumbnail or a dead letter with its errors; if the items of killed workers were
// handled by others; if the frozen worker could not publish its thumbnail; and if
// the picture that kills workers is a dead letter that names them.
package main

import (
	"flag"
	"time"

	"github.com/etcdclaims/claims/examples/internal/demoproc"
)

func main() {
	demoproc.Program[job]{
		Name: "queue",
		Flags: func(flags *flag.FlagSet, j *job) {
			flags.StringVar(&j.Dir, "dir", "", "directory with PNG and JPEG files (default: the Go distribution)")
			flags.StringVar(&j.Out, "out", "", "directory in which a new directory is made for the thumbnails (default: the temporary one)")
		},
		Timeout: 2 * time.Minute,
		Parent:  demonstrate,
		Worker:  runWorker,
	}.Main()
}
