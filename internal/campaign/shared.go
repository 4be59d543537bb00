package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

// sharedKeys is how many keys have readers and writers.
const sharedKeys = 3

func sharedName(i int) string { return fmt.Sprintf("shared-%d", i) }

// mayBeShared reports whether a key is one of these.
func mayBeShared(key string) bool {
	return strings.HasPrefix(key, "shared-") && !strings.Contains(key, "#")
}

// kindShared is the kind of the record that stands in the place of a claim while a key is
// shared.
const kindShared = "shared"

// sharedOwner returns the key that a claim's key is a shared claim on.
func sharedOwner(key string) (whole string, ok bool) {
	whole, _, ok = strings.Cut(key, etcdclaims.SharedPrefix(""))
	return whole, ok
}

// sharedToken names a shared claim by the key of its own, and by the revision of that. Its
// fence is that of all who share the key.
func sharedToken(claim *etcdclaims.Claim) fencing.Token {
	return fencing.Token{Key: etcdclaims.SharedPrefix(claim.Key()) + claim.ID(), Fence: claim.Revision()}
}

// takeShared reads, or one time in three writes.
func (w *worker) takeShared(ctx context.Context, r *rand.Rand) error {
	reads := r.IntN(3) > 0
	var opts []etcdclaims.AcquireOption
	if reads {
		opts = append(opts, etcdclaims.Shared())
	}
	h, err := w.acquireOne(ctx, r, sharedName(r.IntN(sharedKeys)), opts)
	if err != nil {
		return err
	}
	if reads {
		h.token = sharedToken(h.Claim)
		w.journal.write(entry{Op: opGranted, Key: h.token.Key, Fence: h.token.Fence, Gate: h.Fence()})
	}
	return w.useAndGiveUp(ctx, r, h)
}

// judgeShared checks that shared claims have the fence of their record.
func (v *verdict) judgeShared(ev *evidence) {
	for key, terms := range ev.terms {
		switch _, reads := sharedOwner(key); {
		case reads:
			for i, t := range terms {
				if t.kind == "" {
					v.readers.add(terms, i)
				}
			}
		case mayBeShared(key):
			for i, t := range terms {
				switch t.kind {
				case "":
					v.writers.add(terms, i)
					if i > 0 && terms[i-1].kind == kindShared {
						v.afterReaders++
					}
				case kindShared:
					v.records++
				}
			}
		}
	}
	for _, e := range ev.journals {
		whole, ok := sharedOwner(e.Key)
		if !ok || e.Op != opGranted {
			continue
		}
		if ev.term(e.Key, e.Fence) == nil && !ev.inGap(e.Fence) {
			v.answers = append(v.answers, fmt.Sprintf("%s was granted at revision %d, and etcd has not had that", e.Key, e.Fence))
		}
		record := ev.term(whole, e.Gate)
		if record == nil && ev.inGap(e.Gate) {
			continue
		}
		if record == nil || record.kind != kindShared || e.Gate > e.Fence || record.end > 0 && record.end <= e.Fence {
			v.answers = append(v.answers, fmt.Sprintf("%s was granted at revision %d with fence %d, which is not that of its record: %v", e.Key, e.Fence, e.Gate, record))
		}
	}
}

// besideReaders returns what history says of readers and writers: in that of each shared
// claim, which has a key of its own, the writers around it have terms too. So a writer beside
// a reader is a second owner.
func (ev *evidence) besideReaders() (steps []step) {
	for key, terms := range ev.terms {
		whole, ok := sharedOwner(key)
		if !ok {
			continue
		}
		writers := slices.DeleteFunc(slices.Clone(ev.terms[whole]), func(t *term) bool { return t.kind == kindShared })
		added := map[int64]bool{}
		for _, reader := range terms {
			for i, w := range writers {
				// The last one before the reader, all beside it, and the first one after it.
				before := i+1 < len(writers) && writers[i+1].fence < reader.fence
				after := i > 0 && reader.end > 0 && writers[i-1].fence >= reader.end
				if before || after || added[w.fence] || ev.sameGap(w.fence, reader.end) || ev.sameGap(w.end, reader.fence) {
					continue
				}
				added[w.fence] = true
				steps = append(steps, w.steps(key, w.end)...)
			}
		}
	}
	return steps
}

// lostWithRecord returns when a shared claim was lost because the nemesis deleted its record,
// or 0. Its own key stands until its client learns of that.
func (ev *evidence) lostWithRecord(key string, t *term) int64 {
	whole, ok := sharedOwner(key)
	if !ok {
		return 0
	}
	for _, rev := range ev.taken[whole] { // in order
		if rev > t.fence && (t.end == 0 || rev < t.end) {
			return rev
		}
	}
	return 0
}

// gates returns the fences of shared claims as gates see them.
func (ev *evidence) gates() map[fencing.Token]fencing.Token {
	all := map[fencing.Token]fencing.Token{}
	for _, e := range ev.journals {
		if whole, ok := sharedOwner(e.Key); ok && e.Op == opGranted {
			all[fencing.Token{Key: e.Key, Fence: e.Fence}] = fencing.Token{Key: whole, Fence: e.Gate}
		}
	}
	return all
}
