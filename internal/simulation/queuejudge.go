package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// queueJudge goes through what happened to the items in etcd, transaction by
// transaction, and holds it against the rules and against what processes were told.
type queueJudge struct {
	r  *replay
	qs *queueing

	items   map[string]string // id: its content, until it is completed
	at      map[string][]*queueEntry
	paused  bool
	until   time.Time // when the pause ends by itself, zero for never
	taken   int
	waiting int
	back    int // items that came to wait since the last enqueue, which no limit keeps back

	blocked  time.Time              // until when the queue was last paused or at its limit
	forced   map[string][]time.Time // by instance: a session was taken away behind its back
	returned map[leaseName]bool     // leases whose items were given back
	undone   map[string][]time.Time // by verb and id: when an item was cancelled, or redriven

	keys keyJudge

	changes   []change // of the transaction
	wasPaused bool     // before it
}

func (qs *queueing) newJudge(r *replay) *queueJudge {
	j := &queueJudge{r: r, qs: qs, forced: map[string][]time.Time{}, returned: map[leaseName]bool{}, undone: map[string][]time.Time{}}
	j.begin()
	return j
}

func (j *queueJudge) begin() {
	j.items, j.at = map[string]string{}, map[string][]*queueEntry{}
	j.keys = newKeyJudge()
	j.paused, j.until, j.taken, j.waiting, j.back = false, time.Time{}, 0, 0, 0
}

// queueItem is what the value of a key of an item says.
type queueItem struct {
	ID       string
	Seq      string
	Key      string // the partition key
	Lane     int
	Priority int
	Vesting  time.Time
	Max      int
	Attempts int
	History  []struct {
		Attempt int
		Ending  string
		Error   string
		Fence   string
	}
}

// queueEntry is where an item is: ready, later, behind, taken or dead.
type queueEntry struct {
	queueItem
	where   string
	change  change
	session string // of a taken item
	fence   int64
}

func (j *queueJudge) fault(format string, args ...any) { j.r.fault("queue: "+format, args...) }

func (j *queueJudge) faultIf(violated bool, format string, args ...any) {
	j.r.faultIf(violated, "queue: "+format, args...)
}

// part returns what a key of the queue is below its root: the kind of key, and the
// rest.
func (c change) part() (kind, rest string) {
	below, ours := strings.CutPrefix(c.key, queueRoot)
	if !ours {
		return "", ""
	}
	_, below, _ = strings.Cut(below, "/")
	kind, rest, _ = strings.Cut(strings.TrimPrefix(below, "index/"), "/")
	return kind, rest
}

// session returns the claim of a session as it was before the transaction, with whether it was there.
func (j *queueJudge) session(id string) (c change, there bool) {
	c = j.r.own[queueSessions+id]
	h := c.holder()
	return c, h.Claim != "" && h.Epoch == j.r.epoch
}

// entry returns what a key of an item says, or nil if it is none.
func (j *queueJudge) entry(c change) *queueEntry {
	kind, rest := c.part()
	if !slices.Contains([]string{"ready", "later", "behind", "taken", "dead"}, kind) {
		return nil
	}
	if c.deleted {
		for _, all := range j.at {
			for _, e := range all {
				if e.change.key == c.key {
					return e
				}
			}
		}
		return nil
	}
	e := &queueEntry{where: kind, change: c}
	if err := json.Unmarshal([]byte(c.value), &e.queueItem); err != nil {
		j.fault("a value cannot be read: %v", c)
		return nil
	}
	if kind == "taken" {
		e.session, _, _ = strings.Cut(rest, "/")
		was, _ := j.session(e.session)
		e.fence = keyspace.Fence(was.holder().Epoch, c.rev)
	}
	return e
}

// apply carries out a change, and returns the item that it concerns.
func (j *queueJudge) apply(c change) (id string) {
	kind, rest := c.part()
	switch {
	case kind == "paused":
		j.setPause(c)
	case kind == "lane":
		j.keys.apply(c, rest)
	case kind == "content" && !strings.HasSuffix(rest, "\x00"):
		var content struct {
			Payload []byte
			Done    *struct{}
		}
		_ = json.Unmarshal([]byte(c.value), &content)
		if delete(j.items, rest); !c.deleted && content.Done == nil {
			j.items[rest] = string(content.Payload)
		}
		return rest
	default:
		e := j.entry(c)
		if e == nil {
			return ""
		}
		all := slices.DeleteFunc(j.at[e.ID], func(o *queueEntry) bool { return o.change.key == c.key })
		if !c.deleted {
			all = append(all, e)
		}
		j.at[e.ID] = all
		return e.ID
	}
	return ""
}

// setPause judges and takes over a change of the pause. It ends at its end, or because a person resumes the queue.
func (j *queueJudge) setPause(c change) {
	resumed := func(call *queueCall) bool {
		return call.verb == "resume" && !call.began.After(c.at) && (call.outcome != "done" || !call.ended.Add(seenLate).Before(c.at))
	}
	if c.deleted && j.paused && !j.until.IsZero() {
		j.faultIf(!j.qs.vested(j.until, c.at) && !slices.ContainsFunc(j.qs.calls, resumed),
			"the pause until %s ended at %s: %v", clockOf(j.until), clockOf(c.at), c)
		j.qs.w.count("judged: pauses that ended by themselves, or before")
	}
	var value struct{ Until time.Time }
	if j.paused = !c.deleted; j.paused {
		_ = json.Unmarshal([]byte(c.value), &value)
	}
	j.until = value.Until
}

// block notes until when no item could be claimed. A pause that is over counts for as long as the clocks differ.
func (j *queueJudge) block(at time.Time) {
	end := j.until.Add(j.qs.ahead - j.qs.behind)
	switch over := !j.until.IsZero() && end.Before(at); {
	case j.qs.max > 0 && j.taken >= j.qs.max, j.paused && !over:
		j.blocked = at
	case j.paused && j.blocked.Before(end):
		j.blocked = end
	}
}

// count counts the items anew. An enqueue under way may have counted others.
func (j *queueJudge) count() {
	j.taken, j.waiting = 0, 0
	for _, all := range j.at {
		for _, e := range all {
			j.tally(e, 1)
		}
	}
	j.back = j.waiting
}

func (j *queueJudge) tally(e *queueEntry, n int) {
	switch {
	case e == nil:
	case e.where == "taken":
		j.taken += n
	case e.waits():
		j.waiting += n
	}
}

// waits reports whether the entry is of an item that waits.
func (e *queueEntry) waits() bool { return e != nil && e.where != "taken" && e.where != "dead" }

// transaction judges all that happened at one revision. The claims of sessions are still as they were before.
func (j *queueJudge) transaction(changes []change) {
	j.changes, j.wasPaused = changes, j.paused
	before, contents := map[string]*queueEntry{}, map[string]string{}
	var ids []string
	for _, c := range changes {
		id := c.key
		if kind, rest := c.part(); kind == "content" {
			id = rest
		} else if e := j.entry(c); e != nil {
			id = e.ID
		}
		if _, known := before[id]; !known {
			before[id], contents[id] = nil, j.items[id]
			if all := j.at[id]; len(all) > 0 {
				before[id] = all[0]
			}
		}
		if id := j.apply(c); id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		if was, there := j.r.own[c.key]; there && strings.HasPrefix(c.key, queueSessions) {
			if _, taken := j.r.taken(was, c); taken {
				who := was.holder().Instance
				j.forced[who] = append(j.forced[who], c.at)
			}
		}
	}
	for _, id := range ids {
		var now *queueEntry
		_, there := j.items[id]
		if all := j.at[id]; len(all) > 0 {
			if now = all[0]; len(all) > 1 {
				j.fault("item %s is in %d places at revision %d: %v and %v", id, len(all), changes[0].rev, all[0].change, all[1].change)
			}
		}
		j.faultIf(there != (now != nil), "item %s has content: %t, and is in the queue: %t: %v", id, there, now != nil, changes)
		j.move(id, contents[id], before[id], now)
		j.keyMoved(id, before[id], now)
	}
	if j.qs.keyLimit > 0 {
		j.keysAgree()
	}
	if slices.ContainsFunc(changes, func(c change) bool { kind, _ := c.part(); return kind == "bound" }) {
		j.back = 0 // no enqueue is under way that has counted before
	}
	j.block(changes[0].at)
	j.faultIf(j.qs.max > 0 && j.taken > j.qs.max, "%d items are taken at revision %d, the limit is %d", j.taken, changes[0].rev, j.qs.max)
}

// end judges what is left, and what processes were told.
func (j *queueJudge) end() {
	for id, all := range j.at {
		for _, e := range all {
			j.faultIf(e.where != "dead", "item %s is left: %v", id, e.change)
		}
	}
	for key, c := range j.r.own {
		j.faultIf(strings.HasPrefix(key, queueSessions), "a session is left: %v", c)
	}
	last := map[string]change{}
	for _, c := range j.r.t.changes {
		if !c.undone {
			last[c.key] = c
		}
	}
	for _, c := range last {
		kind, rest := c.part()
		switch {
		case c.deleted:
		case kind == "slot":
			j.fault("the place of a taken item is left: %v", c)
		case kind == "place" && len(j.at[rest]) == 0:
			j.fault("the place of an item is left that is gone: %v", c)
		}
	}
	j.calls()
	j.beliefs()
}

// beliefs checks that who passed Check when its successor did had not known better.
func (j *queueJudge) beliefs() {
	for token, o := range j.r.t.overlaps {
		id, ours := strings.CutPrefix(token.Key, queueTokens+"item/")
		if !ours {
			continue
		}
		one := j.qs.leases[leaseName{id, token.Fence}]
		if one == nil || one.given || j.robbed(o.p, o.at) || j.qs.w.restored.Load() {
			continue
		}
		j.fault("%s passed Check with %v at %s, when %s had been given %v and passed it, too", o.p.name, token, clockOf(o.at), o.by.name, o.next)
	}
}

// robbed reports whether a process's session was taken away behind its back shortly
// before.
func (j *queueJudge) robbed(p *process, at time.Time) bool {
	return slices.ContainsFunc(j.forced[p.client.Instance()], func(t time.Time) bool {
		return !t.After(at.Add(seenLate)) && at.Sub(t) < p.longest()+5*time.Second
	})
}

// inOrder checks that no item was passed that was visible before the claiming call.
func (j *queueJudge) inOrder(one *queueLease, took *queueEntry) {
	j.qs.w.count("judged: items in order")
	if j.qs.aging > 0 {
		j.qs.w.count("judged: items in order of their age")
	}
	for _, all := range j.at {
		for _, e := range all {
			late := seenLate
			if e.Key != "" { // its turn came in the background, of which a slow network reports later
				late = 5 * time.Second
			}
			j.faultIf(e.where == "ready" && j.before(e, took) && e.change.at.Before(one.began.Add(-late)),
				"item %s was passed by %s: %v and %v", e.ID, one.id, e.change, took.change)
		}
	}
}

// before reports whether an item comes before another one, by what their values say.
func (j *queueJudge) before(e, o *queueEntry) bool {
	due := func(e *queueEntry) time.Time { return e.Vesting.Add(time.Duration(e.Priority) * j.qs.aging) }
	first := cmp.Compare(e.Priority, o.Priority)
	if j.qs.aging > 0 {
		first = due(e).Compare(due(o))
	}
	return cmp.Or(first, e.Vesting.Compare(o.Vesting), cmp.Compare(e.Seq, o.Seq)) < 0
}

func (e *queueEntry) String() string {
	if e == nil {
		return "nowhere"
	}
	return fmt.Sprintf("%s, attempt %d of %d, since revision %d (%s)", e.where, e.Attempts, e.Max, e.change.rev, clockOf(e.change.at))
}
