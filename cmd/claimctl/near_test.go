package main

import (
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
)

// A key that nobody ever had is answered by names like it, each with the command that shows it.
func TestExplainNearNames(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	w.fails(exitFailure, "; claimctl ls lists the keys that are held", "explain", "orders/24")
	c := w.client("a")
	for _, key := range []string{"orders/42", "orders/421", "users/1"} {
		w.claim(c, key)
	}
	q, err := queue.New(c, queue.Config{Name: "mail"})
	w.noErr(err)
	_, err = q.Enqueue(t.Context(), queue.NewItem(nil))
	w.noErr(err)
	defer (&stage{world: w, a: c}).runs("billing")()
	s, err := sched.New(c, sched.Config{Group: "billing"})
	w.noErr(err)
	_, err = s.Define(t.Context(), sched.Definition{Name: "invoices", Schedule: "@every 1h", Kind: "k"})
	w.noErr(err)
	ctl := w.command("claimctl")
	w.fails(exitFailure, "near names: "+ctl+" explain orders/42; "+ctl+" explain orders/421", "explain", "orders/24")
	w.fails(exitFailure, "near names: "+ctl+" explain orders/42; "+ctl+" explain orders/421\n", "explain", "ORDERS")
	w.fails(exitFailure, "near names: "+ctl+" queue stats mail\n", "explain", "mial")
	w.fails(exitFailure, "near names: "+ctl+" sched show -g billing invoices\n", "explain", "invoice")
	w.fails(exitFailure, "; claimctl ls lists", "explain", "zzzzzz")
}
