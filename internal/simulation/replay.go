package simulation

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// replay is etcd's state while its changes are gone through again.
type replay struct {
	*world
	t     *trace
	procs map[string]*process // by instance

	own   map[string]change   // by key in etcd
	last  map[string]farewell // by key in etcd
	claim map[string]int64    // revision at which each claim id was put to each key
	rests map[string]rest     // by claim id
	done  map[string]int
	epoch int64
	shut  bool // the gate; see If

	epochs  []change                    // of the epoch
	lines   map[string]*line            // by key
	locks   map[fencing.Token]*lockTerm // all there ever were
	notices map[point][]string          // claims whose holder was told of a forced release, or a suspicion

	questions map[string]change // by key in etcd: asks that stand

	queue *queueJudge // nil: none
}

// epochAt returns the epoch that clients could know of at a time.
func (r *replay) epochAt(era int, at time.Time) (epoch int64) {
	for _, e := range r.epochs {
		if e.era == era && e.at.Before(at.Add(-seenLate)) {
			epoch, _ = strconv.ParseInt(e.value, 10, 64)
		}
	}
	return epoch
}

// farewell is a claim that was deleted.
type farewell struct {
	was change
	rev int64 // of its deletion
}

func newReplay(t *trace) *replay {
	nameByClaim(t.changes)
	r := &replay{
		world: t.w, t: t, procs: map[string]*process{},
		own: map[string]change{}, last: map[string]farewell{}, claim: map[string]int64{}, done: map[string]int{}, rests: map[string]rest{},
		lines: map[string]*line{}, locks: map[fencing.Token]*lockTerm{}, notices: map[point][]string{}, questions: map[string]change{},
	}
	if t.w.queue != nil {
		r.queue = t.w.queue.newJudge(r)
	}
	for _, p := range slices.Concat(t.w.old, t.w.slots) {
		r.procs[p.client.Instance()] = p
	}
	for _, key := range append(t.w.all(), queueKeeper, sharedKey, suspectKey, preferKey, reentrantKey, lazyKey) {
		r.lines[keyspace.Digest(key)] = &line{key: key}
	}
	r.lines[keyspace.Digest(keyspace.SlotFamily(slottedKey))] = &line{key: slottedKey}
	for _, c := range t.changes {
		if session, claim, found := strings.Cut(c.key, "/evict/"); found && !c.deleted && strings.HasPrefix(session, prefix) {
			r.notices[c.point] = append(r.notices[c.point], claim)
		}
	}
	return r
}

// settle goes through a change of what decides who may have a key.
func (r *replay) settle(c change) {
	switch {
	case c.key == prefix+"epoch":
		r.epoch, _ = strconv.ParseInt(c.value, 10, 64)
		r.epochs = append(r.epochs, c)
	case c.key == gateKey:
		r.shut = !c.deleted
	case strings.HasPrefix(c.key, prefix+"wait/"):
		r.place(c)
	case strings.HasPrefix(c.key, prefix+"session/") && strings.Contains(c.key, "/ask/"): // whether a process lives
		if r.questions[c.key] = c; c.deleted {
			delete(r.questions, c.key)
		}
	}
}

// restored begins with what an etcd has that was restored.
func (r *replay) restored(i, era int) {
	at := r.t.rewound[era-1]
	clear(r.own)
	clear(r.last)
	clear(r.claim)
	clear(r.rests)
	clear(r.questions)
	r.epoch, r.shut = 0, false
	if r.queue != nil {
		r.queue.begin()
	}
	for _, l := range r.lines {
		l.places, l.first = nil, place{}
	}
	left := map[string]bool{}
	for _, c := range r.t.changes[:i] {
		if c.undone {
			if place, ok := strings.CutPrefix(c.key, prefix+"wait/"); ok && c.deleted { // those behind may know that it was left
				_, claim, _ := strings.Cut(place, "/")
				left[strings.TrimPrefix(claim, "~")] = true
			}
			continue
		}
		if r.queue != nil {
			r.queue.apply(c)
		}
		c.at = at // it is there from now on
		r.settle(c)
		if !strings.HasPrefix(c.key, prefix+"own/") {
			continue
		}
		if c.deleted {
			delete(r.own, c.key)
			continue
		}
		r.own[c.key] = c
		if h := c.holder(); h.Claim != "" {
			r.claim[h.Claim+c.key] = c.rev
		}
	}
	if r.queue != nil {
		r.queue.count()
	}
	for _, l := range r.lines {
		for i, p := range l.places {
			l.places[i].left = left[p.claim]
		}
		l.look(r, at)
	}
	for _, l := range r.locks {
		l.over = true // or begins again
	}
	// Nobody tells a holder that its claim is gone: its own deadline does.
	for token, m := range r.t.terms {
		now, held := r.own[prefix+"own/"+token.Key]
		if held && now.token() == token || m.from.After(at) {
			continue
		}
		if limit := m.ttl() + time.Second; m.end.IsZero() || m.end.Sub(at) > limit {
			r.fault("%s took %v for its own until %s, more than %v after a restore (%s) that undid it", m.p.name, token, clockOf(m.end), limit, clockOf(at))
		}
	}
}

// lingers is more than a key may stay held after a release that its holder does not wait for, beside the way to etcd.
const lingers = 500 * time.Millisecond

// releasedLazily reports whether a claim was released without waiting for etcd.
func (r *replay) releasedLazily(token fencing.Token) bool {
	m := r.t.terms[token]
	if m == nil {
		return false
	}
	_, lazily := m.p.lazies.Load(token)
	return lazily
}

// lingered checks for how long a key has stayed held after a release that its holder did not wait for, and that the holder
// was not refused the key meanwhile, unless others were in line.
func (r *replay) lingered(m *term, before, by change) {
	at, lazily := m.p.lazies.Load(before.token())
	if !lazily || m.p.dead.Load() || !m.lost.IsZero() {
		return
	}
	from := at.(time.Time)
	took, most := by.at.Sub(from), lingers+2*m.p.rtt+2*m.p.far
	if took <= 0 || !r.ledger.healthy(m.p, from.Add(-time.Second), by.at) || r.ledger.full(from, by.at) {
		return
	}
	r.count("judged: keys after lazy releases")
	if at, barred := m.p.barred.Load(before.token()); barred && by.deleted {
		l := r.lineFor(lazyKey)
		r.faultIf(len(l.places) == 0 && l.gone.Add(time.Second).Before(at.(time.Time)),
			"%s was refused for the claim %v, which it had released: %v", m.p.name, before.token(), by)
	}
	r.faultIf(took > most, "the key of %v stayed held for %v after its release by %s: %v", before.token(), took, m.p.name, by)
}
