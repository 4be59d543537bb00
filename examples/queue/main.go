// Queue makes thumbnails of the pictures of the Go distribution with eight worker
// processes that share a queue, and shows them on a contact sheet. Two producers enqueue
// all pictures at the same time. Two workers are killed and one is frozen for longer than
// its leases last; and one picture kills every worker that opens it.
//
//	go run ./examples/queue                        # starts an etcd in this process
//	go run ./examples/queue -dir ~/Pictures -out ~
//	go run ./examples/queue -endpoints http://localhost:2379
//
// worker.go has all that a program with real items needs. The parent, in parent.go,
// starts, kills and freezes processes, and results.go checks what they made.
//
// It exits with 0 only if every picture was enqueued once, and has either one thumbnail
// or a dead letter with its errors; if the items of killed workers were handled by
// others; if the frozen worker could not publish its thumbnail; if the picture that kills
// workers is a dead letter that names them; and if the contact sheet was written.
package main

import (
	"flag"
	"os"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/examples/demoproc"
)

func main() {
	demoproc.Program[job]{
		Name: "queue",
		Flags: func(flags *flag.FlagSet, j *job) {
			flags.StringVar(&j.Dir, "dir", "", "directory with PNG and JPEG files (default: the Go distribution)")
			flags.StringVar(&j.Out, "out", os.TempDir(), "directory in which a new directory is made for the thumbnails")
			flags.DurationVar(&j.TTL, "ttl", etcdclaims.MinTTL, "how long leases last without renewals, at least 2s")
		},
		Timeout: 2 * time.Minute,
		Parent:  demonstrate,
		Worker:  runProcess,
	}.Main()
}
