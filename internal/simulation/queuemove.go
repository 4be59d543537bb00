package simulation

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// queueMoves are the moves of items by one transaction.
type queueMoves struct {
	*queueJudge
	changes  []change
	sessions map[string]change // as they were before, of those that change
	paused   bool              // before
	at       time.Time
}

// move judges that an item went from one place to another.
func (m *queueMoves) move(id, content string, from, to *queueEntry) {
	m.tally(from, -1)
	m.tally(to, 1)
	if from != nil && !from.waits() && to.waits() {
		m.back++
	}
	if from != nil && to != nil {
		if now := m.items[id]; now != content {
			m.fault("the payload of %s changed from %q to %q: %v", id, content, now, to.change)
		}
		if from.Seq != to.Seq || from.Max != to.Max {
			m.fault("item %s changed: %v, before: %v", id, to.change, from.change)
		}
	}
	if from != nil && from.where == "ready" {
		m.pickedUp(from)
	}
	switch {
	case from == nil && to == nil: // a memory of it
	case from == nil:
		m.enqueued(id, to)
		if to.where == "taken" { // handed over at once
			m.took(id, &queueEntry{where: "ready", queueItem: to.queueItem, change: to.change}, to, to.Attempts-1)
		}
	case from.where == "taken" && to == nil:
		m.completed(id, from)
	case from.where == "taken":
		m.givenUp(id, from, to)
	case to == nil:
		m.cancelled(id, from)
	case to.where == "taken":
		m.took(id, from, to, from.Attempts)
	default:
		m.rearranged(id, from, to)
	}
}

// session returns the claim of a session as it was before, with whether it was there.
func (m *queueMoves) session(id string) (h holder, there bool) {
	c, changed := m.sessions[id]
	if !changed {
		c = m.queueJudge.sessions[id]
	}
	h, _ = c.holder()
	return h, h.Claim != "" && h.Epoch == m.epoch
}

// call returns the call that a text names, which must be of this item.
func (m *queueMoves) call(text, verb, id string, fence int64) *queueCall {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= len(m.qs.calls) {
		m.fault("item %s was changed by nobody (%s %q): %v", id, verb, text, m.changes)
		return nil
	}
	c := m.qs.calls[n]
	if c.verb != verb && !strings.HasPrefix(c.verb, verb) || c.id != id || c.fence != fence {
		m.fault("%s of %s under fence %d was done by the call %s of %s under fence %d of %s", verb, id, fence, c.verb, c.id, c.fence, c.p.name)
	}
	if c.applied++; c.applied > 1+c.tries {
		m.fault("%s of %s by %s was done %d times", verb, id, c.p.name, c.applied)
	}
	return c
}

func (m *queueMoves) enqueued(id string, to *queueEntry) {
	c := m.call(m.items[id], "enqueue", id, 0)
	if c == nil {
		return
	}
	if to.Priority != c.priority || to.Max != c.max || len(to.History) > 0 || to.where != "taken" && to.Attempts > 0 || to.where == "dead" {
		m.fault("item %s was enqueued otherwise than asked for (priority %d, %d attempts): %v", id, c.priority, c.max, to.change)
	}
	switch {
	case c.verb != "enqueue": // Op enforces no limit
		m.back++
	case m.qs.room > 0 && m.waiting > m.qs.room+m.back:
		m.fault("%d items wait after %s was enqueued, the limit is %d, and %d came otherwise since the enqueue before", m.waiting, id, m.qs.room, m.back)
	}
	m.qs.w.count("judged: items enqueued")
}

// took judges that a process took an item.
func (m *queueMoves) took(id string, from, to *queueEntry, attempts int) {
	if _, there := m.session(to.session); !there {
		m.fault("item %s was taken under a session that was over: %v", id, to.change)
	}
	if m.paused {
		m.fault("item %s was taken while the queue was paused: %v", id, to.change)
	}
	if to.Attempts != attempts+1 {
		m.fault("item %s was taken with attempt %d after %d: %v", id, to.Attempts, attempts, to.change)
	}
	if to.Attempts > to.Max {
		m.fault("item %s was taken for attempt %d of %d: %v", id, to.Attempts, to.Max, to.change)
	}
	if from.where == "dead" || !m.qs.vested(from.Vesting, m.at) {
		m.fault("item %s was taken that was %s and vests at %s: %v", id, from.where, clockOf(from.Vesting), to.change)
	}
	one := m.qs.leases[leaseName{id, to.fence}]
	if one == nil {
		m.qs.w.count(countItemsUntold)
		return
	}
	one.seen = true
	if m.waiting >= backlog {
		m.qs.w.count(countBacklog)
	}
	if one.attempt != to.Attempts {
		m.fault("%s was told that %s is in attempt %d: %v", one.p.name, id, one.attempt, to.change)
	}
	if one.strict {
		m.inOrder(one, from)
	}
}

// inOrder checks that no item was passed that was visible before the claiming call.
func (m *queueMoves) inOrder(one *queueLease, took *queueEntry) {
	m.qs.w.count(countOrdered)
	for _, all := range m.queueJudge.at {
		for _, e := range all {
			if e.where == "ready" && e.change.key < took.change.key && e.change.at.Before(one.began.Add(-seenLate)) {
				m.fault("item %s was passed by %s: %v and %v", e.ID, one.id, e.change, took.change)
			}
		}
	}
}

// completed judges that an item that a worker had is gone.
func (m *queueMoves) completed(id string, from *queueEntry) {
	m.alive(id, from, "completed")
	for _, c := range m.changes {
		if c.key != queueDone+id {
			continue
		}
		m.call(c.value, "complete", id, from.fence)
		m.qs.w.count(countItems)
		return
	}
	m.fault("item %s is gone, and nobody completed it: %v; it was: %v", id, m.changes, from)
}

// alive checks that the session of a taken item was there when the item was changed. Who
// has its handle does not look whether somebody has overwritten the session's key.
func (m *queueMoves) alive(id string, from *queueEntry, what string) {
	c, changed := m.sessions[from.session]
	if !changed {
		c = m.queueJudge.sessions[from.session]
	}
	if _, there := m.session(from.session); !there && c.value != overwriting {
		m.fault("item %s was %s under fence %d by a session that was over: %v", id, what, from.fence, m.changes)
	}
}

// sameRevision reports whether a fence in a history is this one, but for its epoch,
// which who recovers the item does not know.
func sameRevision(text string, fence int64) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && keyspace.Revision(n) == keyspace.Revision(fence)
}

// givenUp judges that an item was given up in another way.
func (m *queueMoves) givenUp(id string, from, to *queueEntry) {
	if to.where == "taken" { // its lease has another duration now
		m.alive(id, from, "moved")
		if _, there := m.session(to.session); !there || to.Attempts != from.Attempts {
			m.fault("item %s was moved to another session: %v; it was: %v", id, to.change, from.change)
		}
		return
	}
	ending := ""
	if n := len(to.History); n > 0 {
		if h := to.History[n-1]; sameRevision(h.Fence, from.fence) {
			ending = h.Ending
			if n != min(len(from.History)+1, 20) || h.Attempt != from.Attempts {
				m.fault("an attempt of %s was recorded otherwise than it was: %v; it was: %v", id, to.change, from.change)
			}
		}
	}
	over, dead := from.Attempts >= from.Max, to.where == "dead"
	switch ending {
	case "lost":
		if _, there := m.session(from.session); there {
			m.fault("item %s was taken from a session that lives: %v", id, to.change)
		}
		if dead != over || to.Attempts != from.Attempts {
			m.fault("item %s, lost in attempt %d of %d, is %v", id, from.Attempts, from.Max, to)
		}
		m.qs.w.count(countRecovered)
	case "failed":
		m.alive(id, from, ending)
		c := m.call(strings.TrimPrefix(to.History[len(to.History)-1].Error, "call "), "fail", id, from.fence)
		if c != nil && dead != (over || c.last) || to.Attempts != from.Attempts {
			m.fault("item %s, failed in attempt %d of %d, is %v", id, from.Attempts, from.Max, to)
		}
		if c != nil && c.outcome == "done" && c.dead != dead {
			m.fault("%s was told that %s is dead: %t; it is %v", c.p.name, id, c.dead, to)
		}
	case "discarded":
		m.alive(id, from, ending)
		m.call(strings.TrimPrefix(to.History[len(to.History)-1].Error, "call "), "discard", id, from.fence)
		if !dead {
			m.fault("item %s was discarded, and is %v", id, to)
		}
	default: // released, snoozed, or given back
		m.alive(id, from, "given up")
		if dead || to.Attempts != from.Attempts-1 || len(to.History) != len(from.History) {
			m.fault("item %s was given up without an attempt: %v; it was: %v", id, to.change, from.change)
		}
		m.returned[leaseName{id, from.fence}] = true
		m.qs.w.count(countGivenBack)
	}
}

// cancelled judges that an item that nobody had is gone.
func (m *queueMoves) cancelled(id string, from *queueEntry) {
	m.undone["cancel "+id] = append(m.undone["cancel "+id], m.at)
	for _, c := range m.qs.calls {
		if c.verb == "cancel" && c.id == id && c.outcome != "refused" {
			m.qs.w.count("judged: items cancelled")
			return
		}
	}
	m.fault("item %s is lost: %v; it was: %v", id, m.changes, from.change)
}

// rearranged judges that an item moved that nobody had before or after.
func (m *queueMoves) rearranged(id string, from, to *queueEntry) {
	switch {
	case from.where == "dead":
		m.undone["redrive "+id] = append(m.undone["redrive "+id], m.at)
		if to.where == "dead" || to.Attempts != 0 {
			m.fault("item %s was dead: %v; it was: %v", id, to.change, from.change)
		}
	case to.where == "dead":
		m.fault("item %s is dead without having been taken: %v", id, to.change)
	case to.Attempts != from.Attempts || !to.Vesting.Equal(from.Vesting):
		m.fault("item %s was moved: %v; it was: %v", id, to.change, from.change)
	}
	if to.where == "ready" && !m.qs.vested(to.Vesting, m.at) {
		m.fault("item %s is visible at %s, and vests at %s: %v", id, clockOf(m.at), clockOf(to.Vesting), to.change)
	}
}

// pickedUp judges how long a visible item was left while somebody waited for one.
func (m *queueMoves) pickedUp(from *queueEntry) {
	since := from.change.at
	if m.blocked.After(since) {
		since = m.blocked
	}
	if m.at.Sub(since) < 3*time.Second {
		return
	}
	for _, w := range m.qs.waits {
		limit := w.p.ttl/3 + 4*time.Second
		begin, end := w.from, w.to
		if begin.Before(since) {
			begin = since
		}
		if end.After(m.at) {
			end = m.at
		}
		if took := end.Sub(begin); took > limit && m.qs.w.ledger.healthy(w.p, begin, end) && !m.qs.w.ledger.full(begin, end) {
			m.fault("item %s was visible from %s on, and %s waited for it for %v: %v", from.ID, clockOf(since), w.p.name, took, from.change)
		}
	}
}

// calls judges what processes were told against what is in etcd.
func (j *queueJudge) calls() {
	for _, one := range j.qs.leases {
		if !one.seen {
			j.fault("%s was told that it has %s by fence %d, which is not in etcd", one.p.name, one.id, one.fence)
		}
	}
	for _, c := range j.qs.calls {
		switch c.verb {
		case "enqueue", "complete", "fail", "discard":
		case "enqueue again":
			if c.outcome == "refused" && c.applied > 0 {
				j.fault("%s was told that %s was not enqueued (%v): it was", c.p.name, c.id, c.why)
			}
			continue
		case "snooze", "release":
			one := j.qs.leases[leaseName{c.id, c.fence}] // two who have one lease can both be told that a verb was done
			if c.outcome == "done" && one != nil && !one.given && !j.returned[leaseName{c.id, c.fence}] {
				j.fault("%s was told that %s (fence %d) was given back by its %s: it was not", c.p.name, c.id, c.fence, c.verb)
			}
			continue
		case "cancel", "redrive":
			during := func(at time.Time) bool { return !at.Before(c.began) && !at.After(c.ended.Add(seenLate)) }
			if c.outcome == "done" && !slices.ContainsFunc(j.undone[c.verb+" "+c.id], during) {
				j.fault("%s was told at %s that its %s of %s was done: it is not in etcd since %s",
					c.p.name, clockOf(c.ended), c.verb, c.id, clockOf(c.began))
			}
			continue
		default:
			continue
		}
		switch {
		case c.outcome == "done" && c.applied == 0:
			j.fault("%s was told that its %s of %s (fence %d) was done: it is not in etcd", c.p.name, c.verb, c.id, c.fence)
		case c.outcome == "refused" && c.applied > 0:
			j.fault("%s was told that its %s of %s (fence %d) was not done (%v): it is in etcd", c.p.name, c.verb, c.id, c.fence, c.why)
		}
	}
}
