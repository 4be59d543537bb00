package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
)

// Two keys with slots. Of slotsKey each caller takes one slot; of weightedKey some take
// several.
const (
	slotsKey    = "slots"
	weightedKey = "weighted"
)

// slotNumbers is how many slots these keys have.
var slotNumbers = map[string]int{slotsKey: 3, weightedKey: 4}

// slotMark stands between such a key and the number of a slot.
var slotMark = strings.TrimSuffix(etcdclaims.SlotKey("", 0), "0")

// slotOwner returns the key that a claim's key is a slot of.
func slotOwner(key string) (whole string, ok bool) {
	whole, _, ok = strings.Cut(key, slotMark)
	return whole, ok
}

func (w *worker) takeSlot(ctx context.Context, r *rand.Rand) error {
	return w.takeSlots(ctx, r, slotsKey, 1)
}

// takeWeight takes several slots half of the times.
func (w *worker) takeWeight(ctx context.Context, r *rand.Rand) error {
	weight := 1
	if r.IntN(2) == 0 {
		weight = 2 + r.IntN(slotNumbers[weightedKey]-1)
	}
	return w.takeSlots(ctx, r, weightedKey, weight)
}

// takeSlots takes slots, at once or in line, and has some effects under them.
func (w *worker) takeSlots(ctx context.Context, r *rand.Rand, key string, weight int) error {
	opts := []etcdclaims.AcquireOption{etcdclaims.Slots(slotNumbers[key])}
	if weight > 1 {
		opts = append(opts, etcdclaims.Weight(weight))
	}
	h, err := w.acquireOne(ctx, r, key, opts)
	if err != nil {
		return err
	}
	numbers, err := json.Marshal(h.Slots())
	if err != nil {
		return err
	}
	w.journal.write(entry{Op: opGranted, Key: h.token.Key, Fence: h.token.Fence, Want: weight, Note: string(numbers)})
	h.files = nil
	for _, i := range h.Slots() {
		h.files = append(h.files, etcdclaims.SlotKey(key, i))
	}
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
// were granted with what etcd has: all slots that they asked for, in one transaction.
func (v *verdict) judgeSlots(ev *evidence) {
	type change struct {
		rev int64
		by  int
	}
	changes, together := map[string][]change{}, map[claimed]int{}
	for key, terms := range ev.terms {
		whole, ok := slotOwner(key)
		if !ok {
			continue
		}
		for _, t := range terms {
			together[claimed{t.claim, t.fence}]++
			changes[whole] = append(changes[whole], change{t.fence, 1})
			if end := ev.stoodUntil(t); end > 0 {
				changes[whole] = append(changes[whole], change{end, -1})
			}
		}
	}
	for key, all := range changes {
		slices.SortFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.rev, b.rev), cmp.Compare(a.by, b.by)) })
		taken := 0
		for _, c := range all {
			if taken += c.by; c.by > 0 && taken > slotNumbers[key] {
				v.stale = append(v.stale, fmt.Sprintf("%d slots of %s are taken at revision %d; it has %d", taken, key, c.rev, slotNumbers[key]))
				break
			}
		}
	}
	v.judgeWhole(ev, together)
	for _, e := range ev.journals {
		if _, ok := slotOwner(e.Key); ok && e.Op == opGranted {
			v.judgeGrantedSlots(ev, e)
		}
	}
}

// claimed names what one transaction has put for a claim.
type claimed struct {
	claim string
	fence int64
}

// judgeWhole checks that a claim has as many slots as its value says.
func (v *verdict) judgeWhole(ev *evidence, together map[claimed]int) {
	for key, terms := range ev.terms {
		if _, ok := slotOwner(key); !ok {
			continue
		}
		for i, t := range terms {
			if t.kind != "" {
				continue // each slot of a zombie is put by itself
			}
			v.slots.add(terms, i)
			if t.weight > 1 {
				v.heavySlots++
			}
			if n := together[claimed{t.claim, t.fence}]; n != max(1, t.weight) && !ev.inGap(t.fence) {
				v.stale = append(v.stale, fmt.Sprintf("%s was claimed at revision %d by a claim of %d slots that has %d", key, t.fence, max(1, t.weight), n))
			}
		}
	}
}

// judgeGrantedSlots checks that etcd has what a worker was granted.
func (v *verdict) judgeGrantedSlots(ev *evidence, e entry) {
	whole, _ := slotOwner(e.Key)
	var numbers []int
	if err := json.Unmarshal([]byte(e.Note), &numbers); err != nil || len(numbers) != e.Want {
		v.answers = append(v.answers, fmt.Sprintf("%s@%d: %d slots were asked for, and granted: %s", e.Key, e.Fence, e.Want, e.Note))
	}
	if e.Want > 1 {
		v.heavyClaims++
	}
	for _, i := range numbers {
		if key := etcdclaims.SlotKey(whole, i); ev.term(key, e.Fence) == nil && !ev.inGap(e.Fence) {
			v.answers = append(v.answers, fmt.Sprintf("%s was granted at revision %d, and etcd has not had that", key, e.Fence))
		}
	}
}
