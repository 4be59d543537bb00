package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
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
		r.t.w.count("judged: shared terms")
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
		if !slices.ContainsFunc(r.t.changes, func(c change) bool { return c.deleted && c.key == s.key && c.point == by.point }) {
			r.fault("the record of a shared key ended before a shared claim: %v; that is: %v", by, s)
		}
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
