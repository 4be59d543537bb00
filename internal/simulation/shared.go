package simulation

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

// sharedKey is a key that processes share, and claim exclusively. These calls are not in
// the history, whose check knows one owner of a key. The trace judges each shared claim as
// the claim on a key of its own, and that none stands beside an exclusive one.
const sharedKey = "shared"

// sharedPrefix is what the keys of shared claims begin with.
const sharedPrefix = prefix + "own/" + sharedKey + "#shared-"

// sharedRuns is of how many runs one has that key.
const sharedRuns = 3

const kindShared = "shared" // of the record in the place of a claim

// sharedToken names a shared claim by the key of its own, as etcd's history does.
func sharedToken(cl *etcdclaims.Claim) fencing.Token {
	return fencing.Token{Key: sharedKey + "#shared-" + cl.ID(), Fence: cl.Fence()>>47<<47 + cl.Revision()}
}

func isSharedToken(token fencing.Token) bool {
	return strings.HasPrefix(token.Key, sharedKey+"#shared-")
}

// sharing claims the key until the process ends, mostly shared.
func (p *process) sharing(rng *rand.Rand) {
	for p.ctx.Err() == nil {
		p.pause(between(rng, 10*time.Millisecond, 6*time.Second))
		if its := split(rng); rng.IntN(3) == 0 {
			p.wg.Go(func() { p.claimShared(its) })
		} else {
			p.claimShared(rng)
		}
	}
}

// claimShared claims the key, at once or in line, and holds it for a while.
func (p *process) claimShared(rng *rand.Rand) {
	shared := rng.IntN(4) > 0
	var opts []etcdclaims.AcquireOption
	if shared {
		opts = append(opts, etcdclaims.Shared())
	}
	rests := time.Duration(0)
	switch rng.IntN(8) {
	case 0:
		opts = append(opts, etcdclaims.MaxHold(between(rng, longTTL/5+time.Millisecond, 2*longTTL)))
	case 1:
		rests = between(rng, time.Second, 8*time.Second)
		opts = append(opts, etcdclaims.MinHold(rests))
	case 2:
		opts = append(opts, etcdclaims.Note([]byte("note")))
	}
	cl, err := p.acquireSome(rng, sharedKey, opts)
	if err != nil {
		return
	}
	token := p.grantedShared(cl, shared)
	if rests > 0 {
		p.rests.Store(token, rests)
	}
	p.useSome(rng, cl, token, 3*time.Second, 2*time.Second)
}

// grantedShared notes that the process has a claim on the key.
func (p *process) grantedShared(cl *etcdclaims.Claim, shared bool) fencing.Token {
	token := cl.Token()
	if shared {
		p.w.count(countShared)
		token = sharedToken(cl)
	}
	p.w.trace.granted(token, p)
	p.w.trace.believe(belief{p, token, cl.Check})
	if shared { // the loss of one is reported under the token of all
		p.wg.Go(func() {
			select {
			case <-cl.Done():
				p.w.trace.ended(token, p)
			case <-p.ctx.Done():
			}
		})
	}
	return token
}

// forgetShared lets a caller clear away the record that dead holders have left.
func (w *world) forgetShared(ctx context.Context) {
	if w.plan.Seed%sharedRuns != 1 {
		return
	}
	cl, err := w.slots[0].client.TryAcquire(ctx, sharedKey)
	if err == nil {
		w.trace.granted(cl.Token(), w.slots[0])
		w.trace.ended(cl.Token(), w.slots[0])
		err = cl.Release(ctx)
	}
	if err != nil {
		w.fault("after quiet: the shared key: %v", err)
	}
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
	h, _ := c.holder()
	record, there := r.own[prefix+"own/"+sharedKey]
	whole, _ := record.holder()
	switch {
	case strings.HasPrefix(c.key, sharedPrefix):
		if h.Kind == "" && (!there || whole.Kind != kindShared) {
			r.fault("a key was shared without its record: %v; in its place: %v", c, record)
		}
		r.t.w.count(countSharedTerms)
	case c.key == prefix+"own/"+sharedKey && h.Kind == kindShared:
		if held {
			r.fault("the record of a shared key was put in the place of another holder: %v; before: %v", c, before)
		}
		return true
	}
	return false
}

// recordEnds checks that the record of a shared key outlives the shared claims, unless
// somebody takes it away. Without it they are lost, and the key can be claimed
// exclusively.
func (r *replay) recordEnds(before, by change) {
	if h, _ := before.holder(); before.key != prefix+"own/"+sharedKey || h.Kind != kindShared {
		return
	}
	if _, taken := r.taken(before, by); taken {
		for _, s := range r.sharers() {
			h, token := s.holder()
			delete(r.t.overlaps, token) // they find out when they renew
			delete(r.rests, h.Claim)
		}
		return
	}
	for _, s := range r.sharers() {
		if r.t.sharedEnds[point{by.era, by.rev}] != s.key {
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
	h, _ := record.holder()
	if h.Kind != kindShared {
		return true
	}
	if len(l.places) > 0 && l.places[0].shared && h.Epoch == r.epoch {
		return false
	}
	return len(r.sharers()) > 0
}
