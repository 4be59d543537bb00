package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// sharedKey is a key that processes share, and claim exclusively. The trace judges each
// shared claim as the claim on a key of its own, and that none stands beside an exclusive one.
const sharedKey = "shared"

// sharedPrefix is what the keys of shared claims begin with.
const sharedPrefix = prefix + "own/" + sharedKey + "#shared-"

const kindShared = "shared" // of the record in the place of a claim

// sharedToken names a shared claim by the key of its own, as etcd's history does.
func sharedToken(cl *etcdclaims.Claim) fencing.Token {
	return fencing.Token{Key: sharedKey + "#shared-" + cl.ID(), Fence: cl.Fence()>>47<<47 + cl.Revision()}
}

func isSharedToken(token fencing.Token) bool {
	return strings.HasPrefix(token.Key, sharedKey+"#shared-")
}

// sharing claims the key, mostly shared, and one time in three without waiting for that.
func (p *process) sharing(rng *rand.Rand) {
	if its := split(rng); rng.IntN(3) == 0 {
		p.wg.Go(func() { p.claimShared(its) })
	} else {
		p.claimShared(rng)
	}
}

// claimShared claims the key, at once or in line, and holds it for a while.
func (p *process) claimShared(rng *rand.Rand) {
	shared := rng.IntN(4) > 0
	tokenOf, opts := (*etcdclaims.Claim).Token, []etcdclaims.AcquireOption{}
	if shared {
		tokenOf, opts = sharedToken, append(opts, etcdclaims.Shared())
	}
	cl, err := p.claimSome(rng, sharedKey, 5, tokenOf, opts...)
	if err != nil {
		return
	}
	token := tokenOf(cl)
	if shared { // the loss of one is reported under the token of all
		p.w.count("shared claims granted")
		p.wg.Go(func() {
			select {
			case <-cl.Done():
				p.w.trace.ended(token, p)
			case <-p.ctx.Done():
			}
		})
	}
	p.useSome(rng, cl, token, 3*time.Second, 2*time.Second)
}

// forgetShared lets a caller clear away the record that dead holders have left.
func (w *world) forgetShared(ctx context.Context) {
	if !w.has(sharedKey) {
		return
	}
	cl, err := w.slots[0].client.TryAcquire(ctx, sharedKey)
	if err == nil {
		w.trace.granted(cl.Token(), w.slots[0])
		w.trace.ended(cl.Token(), w.slots[0])
		err = cl.Release(ctx)
	}
	w.faultIf(err != nil, "after quiet: the shared key: %v", err)
}

// sharers returns the shared claims that there are.
func (r *replay) sharers() (all []change) {
	for key, c := range r.own {
		if strings.HasPrefix(key, sharedPrefix) {
			all = append(all, c)
		}
	}
	return all
}

// sharedBegins checks a change of the key, or of a shared claim. It reports whether that
// is all there is to check.
func (r *replay) sharedBegins(before change, held bool, c change) bool {
	h := c.holder()
	record, there := r.own[prefix+"own/"+sharedKey]
	whole := record.holder()
	switch {
	case strings.HasPrefix(c.key, sharedPrefix):
		r.faultIf(h.Claim != "" && h.Kind == "" && (!there || whole.Kind != kindShared),
			"a key was shared without its record: %v; in its place: %v", c, record)
		r.count("judged: shared terms")
	case c.key == prefix+"own/"+sharedKey && h.Kind == kindShared:
		r.faultIf(held, "the record of a shared key was put in the place of another holder: %v; before: %v", c, before)
		return true
	}
	return false
}

// recordEnds checks that the record of a shared key outlives the shared claims, unless
// somebody takes it away. Without it they are lost, and the key can be claimed
// exclusively.
func (r *replay) recordEnds(before, by change) {
	if h := before.holder(); before.key != prefix+"own/"+sharedKey || h.Kind != kindShared {
		return
	}
	if _, taken := r.taken(before, by); taken {
		for _, s := range r.sharers() {
			h, token := s.holder(), s.token()
			delete(r.t.overlaps, token) // they find out when they renew
			delete(r.rests, h.Claim)
		}
		return
	}
	for _, s := range r.sharers() {
		r.faultIf(!slices.ContainsFunc(r.t.changes, func(c change) bool { return c.deleted && c.key == s.key && c.point == by.point }),
			"the record of a shared key ended before a shared claim: %v; that is: %v", by, s)
	}
}

// sharedBusy reports whether the first in line for the key cannot have it.
func (r *replay) sharedBusy(l *line) bool {
	record, there := r.own[prefix+"own/"+sharedKey]
	if !there {
		return false
	}
	h := record.holder()
	if h.Kind != kindShared {
		return true
	}
	if len(l.places) > 0 && l.places[0].shared && h.Epoch == r.epoch {
		return false
	}
	return len(r.sharers()) > 0
}

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
	r.count("judged: terms of slots")
	if n, _ := r.slotsNow(); i >= n {
		r.fault("a slot was claimed of %d that there are: %v", n, c)
	}
}

// names are the keys in etcd of places in line and of shared claims that stand, with the keys that they would have if
// their names were their claims'. Clients use the names of earlier ones again, and the judge tells claims apart by keys.
type names map[string]string

// nameByClaim gives all changes of such keys the keys by their claims.
func nameByClaim(changes []change) {
	stand := names{}
	for i := range changes {
		if i > 0 && changes[i].era != changes[i-1].era { // what stands is what stood in the snapshot
			clear(stand)
			for _, before := range changes[:i] {
				if !before.undone {
					stand.of(before)
				}
			}
		}
		changes[i].key = stand.of(changes[i])
	}
}

// of takes in a change, and returns the key by its claim. What is put in the place of another keeps that one's: the
// judge finds it.
func (n names) of(c change) string {
	key := c.name
	name := strings.TrimPrefix(key, sharedPrefix)
	if strings.HasPrefix(key, prefix+"wait/") {
		name = strings.TrimPrefix(key[strings.LastIndexByte(key, '/')+1:], "~")
	} else if name == key {
		return key
	}
	by := n[key]
	switch claim := c.holder().Claim; {
	case c.deleted:
		delete(n, key)
	case by == "" && claim != "":
		by = strings.TrimSuffix(key, name) + claim
		n[key] = by
	}
	return cmp.Or(by, key)
}
