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
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// slottedKey is a key with slots, of which every process may have several. These calls
// are not in the history, whose check knows one owner of a key: the trace judges each
// slot as a key of its own, and their number and their line.
const slottedKey = "slotted"

// mostSlots is how many the key has at most.
const mostSlots = 4

// slotRuns is of how many runs one has that key.
const slotRuns = 3

// slotted claims slots until the process ends.
func (p *process) slotted(rng *rand.Rand) {
	for p.ctx.Err() == nil {
		p.pause(between(rng, 10*time.Millisecond, 8*time.Second))
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
}

// resize changes how many slots there are.
func (p *process) resize(rng *rand.Rand) {
	n := 1 + rng.IntN(mostSlots)
	ctx, cancel := p.within(rng, 5*time.Second)
	defer cancel()
	err := admin.Resize(ctx, p.client, slottedKey, n)
	p.class("resize", err)
	if err == nil {
		p.w.slotCount.Store(int64(n))
		p.w.count(countResized)
	}
}

// forceSlot takes a slot away from its holder.
func (p *process) forceSlot(rng *rand.Rand) {
	ctx, cancel := p.within(rng, 5*time.Second)
	defer cancel()
	_ = p.force(ctx, etcdclaims.SlotKey(slottedKey, rng.IntN(mostSlots)))
}

// acquireSome acquires a key that several can hold, at once or in line.
func (p *process) acquireSome(rng *rand.Rand, key string, opts []etcdclaims.AcquireOption) (*etcdclaims.Claim, error) {
	method, most := p.client.TryAcquire, 8*time.Second
	if rng.IntN(3) > 0 {
		method, most = p.client.Acquire, 40*time.Second
	}
	ctx, cancel := p.within(rng, most)
	defer cancel()
	cl, err := method(ctx, key, opts...)
	p.class("acquire", err)
	return cl, err
}

// claimSlot claims one slot, at once or in line, and holds it for a while.
func (p *process) claimSlot(rng *rand.Rand) {
	opts := []etcdclaims.AcquireOption{etcdclaims.Slots(int(p.w.slotCount.Load()))}
	gated, rests := false, time.Duration(0)
	switch rng.IntN(9) {
	case 0:
		opts = append(opts, etcdclaims.MaxHold(between(rng, longTTL/5+time.Millisecond, 2*longTTL)))
	case 1:
		rests = between(rng, time.Second, 8*time.Second)
		opts = append(opts, etcdclaims.MinHold(rests))
	case 2:
		opts = append(opts, etcdclaims.Note([]byte("note")))
	case 3:
		opts, gated = append(opts, whileOpen()), true
	}
	cl, err := p.acquireSome(rng, slottedKey, opts)
	if errors.Is(err, etcdclaims.ErrSlots) {
		if info, err := p.client.Lookup(p.ctx, slottedKey); err == nil && info.Slots > 0 {
			p.w.slotCount.Store(int64(info.Slots))
		}
	}
	if err != nil {
		return
	}
	if rests > 0 {
		p.rests.Store(cl.Token(), rests)
	}
	if gated {
		p.gated.Store(cl.Token(), true)
	}
	p.w.trace.granted(cl.Token(), p)
	p.w.trace.believe(belief{p, cl.Token(), cl.Check})
	p.w.count(countSlots)
	p.useSome(rng, cl, cl.Token(), 4*time.Second, 4*time.Second)
}

// useSome writes under a claim that is not in the history, and releases it.
func (p *process) useSome(rng *rand.Rand, cl *etcdclaims.Claim, token fencing.Token, most, pause time.Duration) {
	p.writeUnder(rng, cl, token, most, pause)
	if !p.dead.Load() {
		p.releaseSome(rng, cl, token)
	}
}

// releaseSome releases a claim that is not in the history.
func (p *process) releaseSome(rng *rand.Rand, cl *etcdclaims.Claim, token fencing.Token) {
	ctx, cancel := context.WithTimeout(context.Background(), between(rng, 0, 10*time.Second))
	defer cancel()
	p.w.trace.ended(token, p)
	p.class("release", cl.Release(ctx))
}

// writeUnder writes under the claim for a while, mostly shorter than most, with pauses. The
// trace knows the claim by the token.
func (p *process) writeUnder(rng *rand.Rand, cl *etcdclaims.Claim, token fencing.Token, most, pause time.Duration) {
	lasts := between(rng, 0, most)
	if rng.IntN(8) == 0 {
		lasts = between(rng, 0, 3*longTTL)
	}
	for until := time.Now().Add(lasts); time.Now().Before(until) && p.ctx.Err() == nil && cl.Err() == nil; {
		p.pause(min(between(rng, 10*time.Millisecond, pause), time.Until(until)))
		if p.dead.Load() {
			return
		}
		ctx, cancel := p.within(rng, 6*time.Second)
		e := p.w.trace.intend(token, p)
		_, err := cl.Txn(ctx).Then(e.put()).Commit()
		cancel()
		if p.class("effect", err); err == nil {
			e.accepted()
		} else {
			e.returned(err)
		}
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
	return r.lines[digest(key)]
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
	held := func(i int) bool {
		_, held := r.own[prefix+"own/"+etcdclaims.SlotKey(slottedKey, i)]
		return held
	}
	n, there := r.slotsNow()
	if !there {
		// Somebody has deleted the record. Until a slot is free, each waiter goes by the
		// number that it knows, which may be one.
		for i := range mostSlots {
			if held(i) {
				return true
			}
		}
		return false
	}
	for i := range n {
		if !held(i) {
			return false
		}
	}
	return true
}

// slotBegins checks that a slot that is claimed, or handed over, is one that there is:
// so there are never more holders than slots, but those of surplus slots.
func (r *replay) slotBegins(c change, key string) {
	i, ok := slotOf(key)
	if !ok {
		return
	}
	r.t.w.count(countSlotTerms)
	if n, _ := r.slotsNow(); i >= n {
		r.fault("a slot was claimed of %d that there are: %v", n, c)
	}
}
