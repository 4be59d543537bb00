package sched_test

import (
	"context"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/sched"
)

// What the README shows: compiled, and not run, since it goes on for ever.
func Example_readme() {
	ctx := context.Background()
	var claims *etcdclaims.Client // of etcdclaims.New
	invoice := func(context.Context, sched.Tick) error { return nil }

	scheduler, err := sched.New(claims, sched.Config{Group: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	err = scheduler.Add(sched.Job{
		Name:     "invoices",
		Schedule: sched.Must(sched.Cron("30 2 * * *", sched.In("Europe/Berlin"))),
		Handler:  invoice, // func(ctx context.Context, tick sched.Tick) error; tick.ID() is the same for each attempt
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := scheduler.Run(ctx); err != nil { // in every process, until ctx ends
		log.Fatal(err)
	}
}
