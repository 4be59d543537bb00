package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// slottedKey is a key with slots, of which every process may have several. The trace judges
// each slot as a key of its own, and their number and their line.
const slottedKey = "slotted"

// mostSlots is how many the key has at most.
const mostSlots = 4

// slotted claims a slot, changes how many there are, or takes one away.
func (p *process) slotted(rng *rand.Rand) {
	switch n := rng.IntN(12); {
	case n == 0:
		p.resize(rng)
	case n == 1:
		p.forceSlot(rng)
	case n < 5:
		its := split(rng)
		p.wg.Go(func() { p.claimSlot(its) })
	default:
		p.claimSlot(rng)
	}
}

// resize changes how many slots there are.
func (p *process) resize(rng *rand.Rand) {
	n := 1 + rng.IntN(mostSlots)
	if p.ask(rng, 5*time.Second, "resize", func(ctx context.Context) error { return admin.Resize(ctx, p.client, slottedKey, n) }) == nil {
		p.w.slotCount.Store(int64(n))
		p.w.count("slots resized")
	}
}

// forceSlot takes a slot away from its holder.
func (p *process) forceSlot(rng *rand.Rand) {
	ctx, cancel := p.within(rng, 5*time.Second)
	defer cancel()
	_ = p.force(ctx, etcdclaims.SlotKey(slottedKey, rng.IntN(mostSlots)))
}

// claimSlot claims one slot, at once or in line, and holds it for a while.
func (p *process) claimSlot(rng *rand.Rand) {
	cl, err := p.claimSome(rng, slottedKey, 5, (*etcdclaims.Claim).Token, etcdclaims.Slots(int(p.w.slotCount.Load())))
	if errors.Is(err, etcdclaims.ErrSlots) {
		if info, err := p.client.Lookup(p.ctx, slottedKey); err == nil && info.Slots > 0 {
			p.w.slotCount.Store(int64(info.Slots))
		}
	}
	if err == nil {
		p.w.count("slots granted")
		p.useSome(rng, cl, cl.Token(), 4*time.Second, 4*time.Second)
	}
}

// forgetSlots removes the number of slots: none may be held, and nobody wait.
func (w *world) forgetSlots(ctx context.Context) {
	if w.slotCount.Load() == 0 {
		return
	}
	if err := admin.Resize(ctx, w.slots[0].client, slottedKey, 0); err != nil {
		w.fault("after quiet: %v", err)
	}
}

// slotOf returns which slot a claim's key is of.
func slotOf(key string) (n int, ok bool) {
	text, ok := strings.CutPrefix(key, etcdclaims.SlotKey(slottedKey, 0)[:len(slottedKey)+len("#slot-")])
	n, err := strconv.Atoi(text)
	return n, ok && err == nil
}

// lineFor returns the line for a claim's key, or nil.
func (r *replay) lineFor(key string) *line {
	if _, ok := slotOf(key); ok || key == slottedKey {
		key = keyspace.SlotFamily(slottedKey)
	}
	if strings.HasPrefix(key, sharedKey+"#") {
		key = sharedKey
	}
	return r.lines[keyspace.Digest(key)]
}

// slotsNow returns how many slots there are; none while somebody has put something else
// in the place of their number.
func (r *replay) slotsNow() (n int, there bool) {
	record, there := r.own[prefix+"own/"+slottedKey]
	var v struct{ Slots int }
	_ = json.Unmarshal([]byte(record.value), &v)
	return v.Slots, there
}

// busy reports whether nobody in line can have the key, or one of its slots.
func (r *replay) busy(l *line) bool {
	if l.key == sharedKey {
		return r.sharedBusy(l)
	}
	if l.key != slottedKey {
		_, held := r.own[prefix+"own/"+l.key]
		return held
	}
	n, there := r.slotsNow()
	if !there {
		n = mostSlots
	}
	held := 0
	for i := range n {
		if _, ok := r.own[prefix+"own/"+etcdclaims.SlotKey(slottedKey, i)]; ok {
			held++
		}
	}
	// If somebody has deleted the record, each waiter goes by the number that it knows, which
	// may be one, until a slot is free.
	return there && held == n || !there && held > 0
}

// slotBegins checks that a slot that is claimed, or handed over, is one that there is:
// so there are never more holders than slots, but those of surplus slots.
func (r *replay) slotBegins(c change, key string) {
	i, ok := slotOf(key)
	if !ok {
		return
	}
	r.t.w.count("judged: terms of slots")
	if n, _ := r.slotsNow(); i >= n {
		r.fault("a slot was claimed of %d that there are: %v", n, c)
	}
}
