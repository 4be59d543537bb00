package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
)

// slotsKey is a key with slots.
const (
	slotsKey   = "slots"
	slotNumber = 3
)

// slotMark stands between such a key and the number of a slot.
var slotMark = strings.TrimSuffix(etcdclaims.SlotKey("", 0), "0")

// slotOwner returns the key that a claim's key is a slot of.
func slotOwner(key string) (whole string, ok bool) {
	whole, _, ok = strings.Cut(key, slotMark)
	return whole, ok
}

// takeSlot takes a slot, at once or in line, and has some effects under it.
func (w *worker) takeSlot(ctx context.Context, r *rand.Rand) error {
	h, err := w.acquireOne(ctx, r, slotsKey, []etcdclaims.AcquireOption{etcdclaims.Slots(slotNumber)})
	if err != nil {
		return err
	}
	w.journal.write(entry{Op: opGranted, Key: h.token.Key, Fence: h.token.Fence})
	return w.useAndGiveUp(ctx, r, h)
}

// acquireOne acquires a key that several can hold.
func (w *worker) acquireOne(ctx context.Context, r *rand.Rand, key string, opts []etcdclaims.AcquireOption) (holding, error) {
	ctx, cancel := context.WithTimeout(ctx, between(r, 2*w.TTL, 6*w.TTL))
	defer cancel()
	manual := r.IntN(10) == 0
	if manual {
		opts = append(opts, etcdclaims.Manual())
	}
	acquire := w.claims.Acquire
	if r.IntN(5) == 0 {
		acquire = w.claims.TryAcquire
	}
	claim, err := acquire(ctx, key, opts...)
	if err != nil {
		return holding{}, err
	}
	return holdingOf(claim, manual), nil
}

// useAndGiveUp has some effects under the claim, by a handler or without one, and gives it
// up.
func (w *worker) useAndGiveUp(ctx context.Context, r *rand.Rand, h holding) error {
	if h.manual || r.IntN(2) == 0 {
		err := w.term(h.Context(), r, h)
		w.giveUp(ctx, r, h)
		return err
	}
	return h.Run(ctx, func(ctx context.Context) error {
		if r.IntN(20) == 0 {
			ctx = context.WithoutCancel(ctx) // does not stop when it is told to
		}
		return w.term(ctx, r, h)
	})
}

// judgeSlots counts the slots that are taken at each revision, and compares what workers
// were granted with what etcd has.
func (v *verdict) judgeSlots(ev *evidence) {
	type change struct {
		rev int64
		by  int
	}
	var changes []change
	for key, terms := range ev.terms {
		if _, ok := slotOwner(key); !ok {
			continue
		}
		for i, t := range terms {
			if t.kind == "" {
				v.slots.add(terms, i)
			}
			changes = append(changes, change{t.fence, 1})
			if end := ev.stoodUntil(t); end > 0 {
				changes = append(changes, change{end, -1})
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.rev, b.rev), cmp.Compare(a.by, b.by)) })
	taken := 0
	for _, c := range changes {
		if taken += c.by; c.by > 0 && taken > slotNumber {
			v.stale = append(v.stale, fmt.Sprintf("%d slots of %s are taken at revision %d; it has %d", taken, slotsKey, c.rev, slotNumber))
			break
		}
	}
	for _, e := range ev.journals {
		if _, ok := slotOwner(e.Key); ok && e.Op == opGranted && ev.term(e.Key, e.Fence) == nil && !ev.inGap(e.Fence) {
			v.answers = append(v.answers, fmt.Sprintf("%s was granted at revision %d, and etcd has not had that", e.Key, e.Fence))
		}
	}
}
