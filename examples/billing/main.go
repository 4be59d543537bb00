// Billing takes over a service on Postgres that was written for one process: its
// router is chi, its queries are methods as sqlc writes them, its driver is pgx. Three
// processes then share the work. Customers order, and the processes charge accounts,
// each under a claim. A charge reads, calls a payment provider, and writes what it has
// computed.
//
//	go -C examples/billing run .
//	go -C examples/billing run . -guarded=false    # an account may be charged twice
//
// The program starts Postgres, and an etcd with TLS and permissions. It kills one
// process and freezes another in the middle of a charge, and restarts etcd and Postgres.
// It exits with 0 only if at the end no money is gone and each invoice was charged once.
//
// The take-over added billing.go, where charge was before without a claim and a token.
// The API, the schema and the queries stay as they were.
package main

import (
	"flag"
	"time"

	"github.com/etcdclaims/claims/examples/demoproc"
)

// setup is the job of a process.
type setup struct {
	Name, Etcd, Certificates, Postgres string
	Guarded                            bool
}

// event is what a process tells its parent.
type event struct {
	Process, Kind, Account, Addr string
}

const (
	listening = "listening" // at Addr
	charging  = "charging"  // Account: it has read, and is about to write
	refused   = "refused"   // its charge of Account came after another owner's
)

func main() {
	demoproc.Program[setup]{
		Name: "billing",
		Flags: func(flags *flag.FlagSet, s *setup) {
			flags.BoolVar(&s.Guarded, "guarded", true, "check the fence in each transaction")
		},
		Timeout: 90 * time.Second,
		Parent:  demonstrate,
		Worker:  serve,
	}.Main()
}
