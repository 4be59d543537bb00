package main

import (
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/compare/load"
)

// keySlots is how many may hold the one key of this workload.
const keySlots = 16

// slots is everybody acquiring one of the slots of one key, waiting for it, and releasing
// it. With as many waiters as slots nobody waits for long. Each row guarantees something
// else: claims that the slot's fence rises and the line is first in, first out; the
// semaphore of Consul that at most so many hold it, by their own count; that of Redis the
// same, by the clock of Redis, and waiters ask again and again.
func slots(o options) workload {
	w := workload{
		name: "slots", of: "waiters", compare: rate, rounds: o.lineRounds,
		title:   fmt.Sprintf("One key with %d slots, each waiter with a client of its own; ratios of rates to Consul's algorithm on etcd; requests to etcd and µs of CPU for each acquisition and release", keySlots),
		columns: []metric{rate, ratio, p50, p99, longest, requests, clientCPU, etcdCPU},
	}
	sizes := []int{keySlots, 64, 256}
	if o.quick {
		sizes = []int{keySlots, 64}
	}
	for _, n := range sizes {
		w.points = append(w.points, point{name: count(n, "waiter"), n: n, rows: []row{
			{name: "etcdclaims, Slots", open: handOverClaims(false, etcdclaims.Slots(keySlots))},
			{name: "etcdclaims, Slots, within one client", open: handOverClaims(true, etcdclaims.Slots(keySlots))},
			{name: "Consul's semaphore on etcd", reference: true, open: cycleSemaphores},
			{name: "sorted set, Redis fsync always", open: orderPeer(redisDurable, func(st *stage, n int) load.Order {
				return load.Order{Client: load.Semaphore, Shape: handOverShape(st, n), Slots: keySlots}
			})},
		}})
	}
	return w
}
