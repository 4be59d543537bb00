package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const prefix = etcdclaims.DefaultPrefix

// trace is all that happened in etcd, as an observer saw it that nothing
// happens to, and what the processes took for true at the time.
type trace struct {
	w *world

	mu       sync.Mutex
	era      int   // counts restores
	rev      int64 // seen up to
	changes  []change
	terms    map[fencing.Token]*term
	taken    map[point]taking
	revoked  map[clientv3.LeaseID]time.Time
	rewound  []time.Time // when each era but the first began
	intents  []*intent
	sights   []*sight
	keyCalls []*keyCall

	beliefs  map[string][]belief // by key: who may take it for its own
	overlaps map[fencing.Token]overlap

	cancel context.CancelFunc
	done   chan struct{}
}

// change is one key put or deleted.
type change struct {
	point
	at      time.Time
	name    string // of the key in etcd
	key     string // the same, but for what nameByClaim changes
	value   string
	lease   clientv3.LeaseID
	deleted bool
	undone  bool // by a restore of a snapshot from before
}

// term is what a process took for its own.
type term struct {
	token fencing.Token
	p     *process
	told  bool      // it was handed out, not lost before that
	from  time.Time // when
	end   time.Time // by its own account; zero while it lasts
	seen  bool      // in etcd
	why   etcdclaims.Reason
	lost  time.Time // when, for that reason; zero if it was not
}

// ttl is how long the term may last without a renewal.
func (m *term) ttl() time.Duration {
	if _, manual := m.p.manuals.Load(m.token); manual {
		return m.p.short
	}
	return m.p.longest()
}

// how a key was taken away behind its holder's back.
type how string

const (
	forced      how = "forced"
	deleted     how = "deleted"
	overwritten how = "overwritten"
	replaced    how = "replaced by another goroutine of its process"
)

// point is a revision, which a restore can make come again.
type point struct {
	era int
	rev int64
}

// taking is what was done at a point to a key in etcd.
type taking struct {
	key string
	how how
}

func newTrace(w *world) *trace {
	return &trace{
		w: w, terms: make(map[fencing.Token]*term), taken: make(map[point]taking),
		revoked: make(map[clientv3.LeaseID]time.Time), beliefs: make(map[string][]belief), overlaps: make(map[fencing.Token]overlap),
	}
}

// note changes the trace.
func (t *trace) note(change func(t *trace)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
}

// follow begins to observe after what was seen before.
func (t *trace) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel, t.done = cancel, make(chan struct{})
	news := t.w.server.Admin().Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(t.rev+1))
	go func() {
		defer close(t.done)
		for resp := range news {
			if err := resp.Err(); err != nil {
				t.w.fault("the observer itself has missed something: %v", err)
			}
			t.add(resp.Events)
		}
	}()
}

func (t *trace) add(events []*clientv3.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ev := range events {
		c := change{
			at: time.Now(), point: point{t.era, ev.Kv.ModRevision}, name: string(ev.Kv.Key), value: string(ev.Kv.Value),
			lease: clientv3.LeaseID(ev.Kv.Lease), deleted: ev.Type == clientv3.EventTypeDelete,
		}
		c.key = c.name
		t.changes = append(t.changes, c)
		t.rev = c.rev
		if !c.deleted && strings.Contains(c.key, "/live/") {
			t.w.atBirth(c.lease)
		}
	}
}

// stop ends observing, when all is seen that there is.
func (t *trace) stop() {
	t.catchUp()
	t.cancel()
	<-t.done
}

// catchUp waits until all is seen that there is.
func (t *trace) catchUp() {
	for {
		rev := t.w.revision()
		t.mu.Lock()
		seen := t.rev >= rev || rev == 1
		t.mu.Unlock()
		if seen {
			return
		}
		select {
		case <-t.done:
			t.w.Fatalf("simulation: seed %d: the observer has lost sight of etcd: %v", t.w.plan.Seed, t.w.faults)
		case <-time.After(time.Millisecond):
		}
	}
}

// rewind begins a new era after a restore: what came after the revision has not
// happened.
func (t *trace) rewind(rev int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.changes {
		c := &t.changes[i]
		c.undone = c.undone || c.era == t.era && c.rev > rev
	}
	t.era++
	t.rev = rev
	t.rewound = append(t.rewound, time.Now())
}

// term returns the record of a term, which may have been lost before it was handed out. The mutex is held.
func (t *trace) term(token fencing.Token, p *process) *term {
	if t.terms[token] == nil {
		t.terms[token] = &term{token: token, p: p, from: time.Now()}
	}
	return t.terms[token]
}

// over notes that the process takes the term for over, at the latest from now on.
func (m *term) over() {
	if m.end.IsZero() {
		m.end = time.Now()
	}
}

// granted notes that a process was told that it has a key.
func (t *trace) granted(token fencing.Token, p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.term(token, p)
	t.w.faultIf(m.p != p, "%v was granted to %s and to %s", token, m.p.name, p.name)
	m.p, m.told, m.from = p, true, time.Now()
	if p.cleared.Load() > 0 {
		m.over()
	}
}

// clearing notes that a process begins, or has ended, to give up all that it has,
// and returns what that is.
func (t *trace) clearing(p *process, n int32) (tokens []fencing.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.cleared.Add(n)
	for token, m := range t.terms {
		if m.p == p && m.end.IsZero() && n > 0 {
			m.over()
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// ended notes that a process knows that its term is over, or begins to end it.
func (t *trace) ended(token fencing.Token, p *process) {
	t.note(func(t *trace) { t.term(token, p).over() })
}

// lost notes why a term was lost. A shared claim has another name here.
func (t *trace) lost(token fencing.Token, p *process, why etcdclaims.Reason) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token.Key == sharedKey && t.terms[token] == nil {
		return
	}
	m := t.term(token, p)
	if m.over(); m.p == p {
		m.lost, m.why = time.Now(), why
	}
}

// leaves notes that a process ends: what it has left in etcd may stay there until
// its leases are over.
func (t *trace) leaves(p *process) {
	t.note(func(*trace) { p.gone = time.Now() })
}

// take notes at which revision a key in etcd was taken away.
func (t *trace) take(key string, rev int64, h how) {
	t.note(func(t *trace) { t.taken[point{t.era, rev}] = taking{key, h} })
}

// revoke notes when a lease was first revoked: another fault may do it again.
func (t *trace) revoke(lease clientv3.LeaseID) {
	t.note(func(t *trace) {
		if _, again := t.revoked[lease]; !again {
			t.revoked[lease] = time.Now()
		}
	})
}

// holder is what the value of a claim's key says.
type holder struct {
	Claim, Owner, Instance, Kind string
	Epoch                        int64
	Preference                   int
}

func (c change) holder() (h holder) {
	_ = json.Unmarshal([]byte(c.value), &h)
	return h
}

func (c change) token() fencing.Token {
	return fencing.Token{Key: strings.TrimPrefix(c.key, prefix+"own/"), Fence: keyspace.Fence(c.holder().Epoch, c.rev)}
}

func (c change) String() string {
	verb := "put"
	if c.deleted {
		verb = "deleted"
	}
	return fmt.Sprintf("%s %s at revision %d (%s) = %s", c.key, verb, c.rev, clockOf(c.at), c.value)
}

// sight is one use of Client.Watch.
type sight struct {
	p      *process
	era    int
	events []etcdclaims.Event
	until  time.Time // it was listened to; zero if to the end
}

// observe follows claims by the client's own Watch.
func (p *process) observe() {
	for p.ctx.Err() == nil {
		s := &sight{p: p}
		p.w.trace.note(func(t *trace) {
			s.era = t.era
			t.sights = append(t.sights, s)
		})
		for ev, err := range p.client.Watch(p.ctx, "") {
			if err != nil {
				p.class("watch", err)
				break
			}
			same := false
			p.w.trace.note(func(t *trace) {
				if same = t.era == s.era; same {
					s.events = append(s.events, ev)
				}
			})
			if !same { // revisions are others now
				break
			}
		}
		p.w.trace.note(func(*trace) { s.until = time.Now() })
		p.pause(time.Second)
	}
}

// newsTakes is how long a change may take to be told, by a machine to which
// nothing happens.
const newsTakes = 5 * time.Second

// judge checks that a Watch told all there was, in order, other than in gaps
// that it owned up to, and nothing else.
func (s *sight) judge(r *replay) {
	var left []change // of claims, in this era, and not told of yet
	for _, c := range r.t.changes {
		if c.era == s.era && strings.HasPrefix(c.name, prefix+"own/") {
			left = append(left, c)
		}
	}
	cursor := int64(-1) // told up to; -1: not begun
	last := map[string]etcdclaims.Event{}
	for _, ev := range s.events {
		if ev.Kind == etcdclaims.Synced || ev.Kind == etcdclaims.Resynced {
			cursor = ev.Revision
			continue
		}
		s.follows(r, last, ev)
		if cursor < 0 || ev.Revision <= cursor {
			continue // what a read has found
		}
		for len(left) > 0 && left[0].rev <= cursor {
			left = left[1:]
		}
		for len(left) > 0 && left[0].rev < ev.Revision {
			r.fault("a Watch told of %q at revision %d, but not before of: %v", ev.Info.Key, ev.Revision, left[0])
			left = left[1:]
		}
		// Several keys can change at one revision: in any order.
		cursor = ev.Revision - 1
		i := slices.IndexFunc(left, func(c change) bool {
			return c.rev == ev.Revision && c.name == prefix+"own/"+ev.Info.Key && c.deleted == (ev.Kind == etcdclaims.Freed)
		})
		if i < 0 {
			r.fault("a Watch told what never was: %+v", ev)
		} else {
			left = slices.Delete(left, i, i+1)
		}
		if len(left) == 0 || left[0].rev > ev.Revision {
			cursor = ev.Revision
		}
	}
	for _, c := range left {
		due := c.at.Add(newsTakes)
		if cursor < 0 || c.rev <= cursor || !s.until.IsZero() && s.until.Before(due) || !r.ledger.healthy(s.p, c.at, due) {
			continue
		}
		r.fault("a Watch of %s, which was listened to until %s, never told of: %v", s.p.name, clockOf(s.until), c)
		return
	}
}

// follows checks that an event follows from the last one of its key.
func (s *sight) follows(r *replay, last map[string]etcdclaims.Event, ev etcdclaims.Event) {
	before, known := last[ev.Info.Key]
	last[ev.Info.Key] = ev
	switch {
	case ev.Kind == etcdclaims.Claimed && known && ev.Revision <= before.Revision,
		ev.Kind == etcdclaims.Freed && (!known || before.Kind != etcdclaims.Claimed || before.Info.Fence != ev.Info.Fence):
		r.fault("a Watch told: %+v, and then: %+v", before, ev)
	}
}
