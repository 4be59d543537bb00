package simulation

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// move judges that an item went from one place to another.
func (j *queueJudge) move(id, content string, from, to *queueEntry) {
	j.tally(from, -1)
	j.tally(to, 1)
	if from != nil && !from.waits() && to.waits() {
		j.back++
	}
	if from != nil && to != nil {
		now := j.items[id]
		if (now != content || !to.Vesting.Equal(from.Vesting)) && j.debounced(id, from, to) {
			return
		}
		if now != content {
			j.fault("the payload of %s changed from %q to %q: %v", id, content, now, to.change)
		}
		j.faultIf(from.Seq != to.Seq || from.Max != to.Max || from.Key != to.Key, "item %s changed: %v, before: %v", id, to.change, from.change)
	}
	if from != nil && from.where == "ready" {
		j.pickedUp(from, from.change.at, 0)
	}
	switch {
	case from == nil && to == nil: // a memory of it
	case from == nil:
		j.enqueued(id, to)
		if to.where == "taken" { // handed over at once
			j.took(id, &queueEntry{where: "ready", queueItem: to.queueItem, change: to.change}, to, to.Attempts-1)
		}
	case from.where == "taken" && to == nil && slices.ContainsFunc(j.changes, noticeOf(id)):
		j.cancelled(id, from)
	case from.where == "taken" && to == nil:
		j.completed(id, from)
	case from.where == "taken":
		j.givenUp(id, from, to)
	case to == nil:
		j.cancelled(id, from)
	case to.where == "taken":
		j.took(id, from, to, from.Attempts)
	default:
		j.rearranged(id, from, to)
	}
}

// call returns the call that a text names, which must be of this item.
func (j *queueJudge) call(text, verb, id string, fence int64) *queueCall {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= len(j.qs.calls) {
		j.fault("item %s was changed by nobody (%s %q): %v", id, verb, text, j.changes)
		return nil
	}
	c := j.qs.calls[n]
	j.faultIf(c.verb != verb && !strings.HasPrefix(c.verb, verb) || c.id != id || c.fence != fence,
		"%s of %s under fence %d was done by the call %s of %s under fence %d of %s", verb, id, fence, c.verb, c.id, c.fence, c.p.name)
	if c.applied++; c.applied > 1+c.tries {
		j.fault("%s of %s by %s was done %d times", verb, id, c.p.name, c.applied)
	}
	return c
}

func (j *queueJudge) enqueued(id string, to *queueEntry) {
	c := j.call(j.items[id], "enqueue", id, 0)
	if c == nil {
		return
	}
	begun := len(to.History) > 0 || to.where != "taken" && to.Attempts > 0 || to.where == "dead"
	if begun || to.Priority != c.priority || to.Key != c.key || to.Max != c.max {
		j.fault("item %s was enqueued otherwise than asked for (priority %d, %d attempts): %v", id, c.priority, c.max, to.change)
	}
	switch {
	case c.verb != "enqueue": // Op enforces no limit
		j.back++
	case j.qs.room > 0 && j.waiting > j.qs.room+j.back:
		j.fault("%d items wait after %s was enqueued, the limit is %d, and %d came otherwise since the enqueue before",
			j.waiting, id, j.qs.room, j.back)
	}
	j.qs.w.count("judged: items enqueued")
}

// debounced judges that an item that has not vested was enqueued again, and reports whether it was.
func (j *queueJudge) debounced(id string, from, to *queueEntry) bool {
	n, err := strconv.Atoi(j.items[id])
	if err != nil || n < 0 || n >= len(j.qs.calls) || !j.qs.calls[n].debounce || from.where != "later" || !to.waits() {
		return false
	}
	j.call(j.items[id], "enqueue", id, 0)
	was := from.queueItem
	j.faultIf(to.Seq != was.Seq || to.Max != was.Max || to.Priority != was.Priority || to.Attempts != 0 || was.Attempts != 0,
		"item %s was debounced: %v; it was: %v", id, to.change, from.change)
	j.faultIf(to.where == "ready" && !j.qs.vested(to.Vesting, j.changes[0].at),
		"item %s is visible at %s, and vests at %s: %v", id, clockOf(j.changes[0].at), clockOf(to.Vesting), to.change)
	j.qs.w.count("judged: items debounced")
	return true
}

// took judges that a process took an item.
func (j *queueJudge) took(id string, from, to *queueEntry, attempts int) {
	if _, there := j.session(to.session); !there {
		j.fault("item %s was taken under a session that was over: %v", id, to.change)
	}
	j.faultIf(j.wasPaused, "item %s was taken while the queue was paused: %v", id, to.change)
	j.faultIf(to.Attempts != attempts+1, "item %s was taken with attempt %d after %d: %v", id, to.Attempts, attempts, to.change)
	j.faultIf(to.Attempts > to.Max, "item %s was taken for attempt %d of %d: %v", id, to.Attempts, to.Max, to.change)
	j.faultIf(from.where == "dead" || !j.qs.vested(from.Vesting, j.changes[0].at),
		"item %s was taken that was %s and vests at %s: %v", id, from.where, clockOf(from.Vesting), to.change)
	one := j.qs.leases[leaseName{id, to.fence}]
	if one == nil {
		j.qs.w.count("judged: items taken and nobody told")
		return
	}
	one.seen = true
	if j.waiting >= backlog {
		j.qs.w.count("judged: items taken from a backlog")
	}
	j.faultIf(one.attempt != to.Attempts, "%s was told that %s is in attempt %d: %v", one.p.name, id, one.attempt, to.change)
	if one.strict {
		j.inOrder(one, from)
	}
}

// completed judges that an item that a worker had is gone.
func (j *queueJudge) completed(id string, from *queueEntry) {
	j.alive(id, from, "completed")
	for _, c := range j.changes {
		if c.key != queueDone+id {
			continue
		}
		j.call(c.value, "complete", id, from.fence)
		j.qs.w.count("judged: items completed")
		return
	}
	for _, c := range j.qs.calls {
		if c.unmarked && c.id == id && c.fence == from.fence {
			j.call(strconv.Itoa(c.n), "complete", id, from.fence)
			j.qs.w.count("judged: items completed in batches")
			return
		}
	}
	j.fault("item %s is gone, and nobody completed it: %v; it was: %v", id, j.changes, from)
}

// alive checks that the session of a taken item was there when the item was changed. Who
// has its handle does not look whether somebody has overwritten the session's key.
func (j *queueJudge) alive(id string, from *queueEntry, what string) {
	if c, there := j.session(from.session); !there && c.value != overwriting {
		j.fault("item %s was %s under fence %d by a session that was over: %v", id, what, from.fence, j.changes)
	}
}

// sameRevision reports whether a fence in a history is this one, but for its epoch,
// which who recovers the item does not know.
func sameRevision(text string, fence int64) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && keyspace.Revision(n) == keyspace.Revision(fence)
}

// givenUp judges that an item was given up in another way.
func (j *queueJudge) givenUp(id string, from, to *queueEntry) {
	if to.where == "taken" { // its lease has another duration now
		j.alive(id, from, "moved")
		if _, there := j.session(to.session); !there || to.Attempts != from.Attempts {
			j.fault("item %s was moved to another session: %v; it was: %v", id, to.change, from.change)
		}
		return
	}
	ending := ""
	if n := len(to.History); n > 0 {
		if h := to.History[n-1]; sameRevision(h.Fence, from.fence) {
			ending = h.Ending
			j.faultIf(n != min(len(from.History)+1, 20) || h.Attempt != from.Attempts,
				"an attempt of %s was recorded otherwise than it was: %v; it was: %v", id, to.change, from.change)
		}
	}
	over, dead := from.Attempts >= from.Max, to.where == "dead"
	switch ending {
	case "lost":
		if _, there := j.session(from.session); there {
			j.fault("item %s was taken from a session that lives: %v", id, to.change)
		}
		j.faultIf(dead != over || to.Attempts != from.Attempts, "item %s, lost in attempt %d of %d, is %v", id, from.Attempts, from.Max, to)
		j.qs.w.count("judged: items recovered")
	case "failed":
		j.alive(id, from, ending)
		c := j.call(strings.TrimPrefix(to.History[len(to.History)-1].Error, "call "), "fail", id, from.fence)
		j.faultIf(c != nil && dead != (over || c.last) || to.Attempts != from.Attempts,
			"item %s, failed in attempt %d of %d, is %v", id, from.Attempts, from.Max, to)
		if c != nil && c.outcome == "done" && c.dead != dead {
			j.fault("%s was told that %s is dead: %t; it is %v", c.p.name, id, c.dead, to)
		}
	case "discarded":
		j.alive(id, from, ending)
		j.call(strings.TrimPrefix(to.History[len(to.History)-1].Error, "call "), "discard", id, from.fence)
		j.faultIf(!dead, "item %s was discarded, and is %v", id, to)
	default: // released, snoozed, or given back
		j.alive(id, from, "given up")
		j.faultIf(dead || to.Attempts != from.Attempts-1 || len(to.History) != len(from.History),
			"item %s was given up without an attempt: %v; it was: %v", id, to.change, from.change)
		j.returned[leaseName{id, from.fence}] = true
		j.qs.w.count("judged: items given back")
	}
}

// noticeOf reports of a change whether it is the notice that a taken item was cancelled.
func noticeOf(id string) func(change) bool {
	return func(c change) bool {
		kind, rest := c.part()
		return kind == "cancelled" && !c.deleted && strings.HasSuffix(rest, "/"+id)
	}
}

// cancelled judges that an item is gone that nobody has completed.
func (j *queueJudge) cancelled(id string, from *queueEntry) {
	taken := from.where == "taken"
	if one := j.qs.leases[leaseName{id, from.fence}]; taken && one != nil {
		one.given = true // its worker is told later
	}
	for _, verb := range []string{"cancel", "cancel any"} {
		j.undone[verb+" "+id] = append(j.undone[verb+" "+id], j.changes[0].at)
	}
	for _, c := range j.qs.calls {
		if (c.verb == "cancel" && !taken || c.verb == "cancel any") && c.id == id && c.outcome != "refused" {
			j.qs.w.count("judged: items cancelled, from " + from.where)
			return
		}
	}
	j.fault("item %s is lost: %v; it was: %v", id, j.changes, from.change)
}

// rearranged judges that an item moved that nobody had before or after.
func (j *queueJudge) rearranged(id string, from, to *queueEntry) {
	switch {
	case from.where == "dead":
		j.undone["redrive "+id] = append(j.undone["redrive "+id], j.changes[0].at)
		j.faultIf(to.where == "dead" || to.Attempts != 0, "item %s was dead: %v; it was: %v", id, to.change, from.change)
	case to.where == "dead":
		j.fault("item %s is dead without having been taken: %v", id, to.change)
	case to.Attempts != from.Attempts || !to.Vesting.Equal(from.Vesting):
		j.fault("item %s was moved: %v; it was: %v", id, to.change, from.change)
	}
	j.faultIf(to.where == "ready" && !j.qs.vested(to.Vesting, j.changes[0].at),
		"item %s is visible at %s, and vests at %s: %v", id, clockOf(j.changes[0].at), clockOf(to.Vesting), to.change)
}

// pickedUp judges how long an item that may be claimed since a time was left while somebody waited for one. It may
// take some time more.
func (j *queueJudge) pickedUp(from *queueEntry, since time.Time, more time.Duration) {
	if j.blocked.After(since) {
		since = j.blocked
	}
	if j.changes[0].at.Sub(since) < 3*time.Second {
		return
	}
	for _, w := range j.qs.waits {
		limit := w.p.ttl/3 + 4*time.Second + more
		begin, end := w.from, w.to
		if begin.Before(since) {
			begin = since
		}
		if end.After(j.changes[0].at) {
			end = j.changes[0].at
		}
		if took := end.Sub(begin); took > limit && j.qs.w.ledger.healthy(w.p, begin, end) && !j.qs.w.ledger.full(begin, end) {
			j.fault("item %s was visible from %s on, and %s waited for it for %v: %v", from.ID, clockOf(since), w.p.name, took, from.change)
		}
	}
}

// calls judges what processes were told against what is in etcd.
func (j *queueJudge) calls() {
	for _, one := range j.qs.leases {
		j.faultIf(!one.seen, "%s was told that it has %s by fence %d, which is not in etcd", one.p.name, one.id, one.fence)
	}
	for _, r := range j.qs.results {
		c := j.qs.calls[r.call]
		j.qs.w.count("judged: results of items")
		j.faultIf((c.id != r.id || c.verb != "complete" || c.applied == 0) && !j.qs.w.restored.Load(),
			"%s was told that %s has the result of the call %s of %s, which is not in etcd", r.p.name, r.id, c.verb, c.id)
	}
	for _, c := range j.qs.calls {
		switch c.verb {
		case "enqueue", "enqueue again", "complete", "fail", "discard":
			j.faultIf(c.outcome == "done" && c.applied == 0 && c.verb != "enqueue again", // which may have been there
				"%s was told that its %s of %s (fence %d) was done: it is not in etcd", c.p.name, c.verb, c.id, c.fence)
			j.faultIf(c.outcome == "refused" && c.applied > 0,
				"%s was told that its %s of %s (fence %d) was not done (%v): it is in etcd", c.p.name, c.verb, c.id, c.fence, c.why)
		case "snooze", "release":
			one := j.qs.leases[leaseName{c.id, c.fence}] // two who have one lease can both be told that a verb was done
			j.faultIf(c.outcome == "done" && one != nil && !one.given && !j.returned[leaseName{c.id, c.fence}],
				"%s was told that %s (fence %d) was given back by its %s: it was not", c.p.name, c.id, c.fence, c.verb)
		case "cancel", "cancel any", "redrive":
			during := func(at time.Time) bool { return !at.Before(c.began) && !at.After(c.ended.Add(seenLate)) }
			j.faultIf(c.outcome == "done" && !slices.ContainsFunc(j.undone[c.verb+" "+c.id], during),
				"%s was told at %s that its %s of %s was done: it is not in etcd since %s",
				c.p.name, clockOf(c.ended), c.verb, c.id, clockOf(c.began))
		}
	}
}

// keyJudge holds what happens to the items of partition keys against Config.KeyLimit, and their order.
type keyJudge struct {
	lanes   map[string]string    // the keys lane/<digest>/<n>, and whose they are
	started map[string]string    // the partition keys of items that were taken, and have not ended
	freed   map[string]time.Time // by partition key: when one of its items ended
}

func newKeyJudge() keyJudge {
	return keyJudge{lanes: map[string]string{}, started: map[string]string{}, freed: map[string]time.Time{}}
}

// apply carries out a change of a lane.
func (k *keyJudge) apply(c change, lane string) {
	if k.lanes[lane] = c.value; c.deleted {
		delete(k.lanes, lane)
	}
}

// keyMoved judges that an item of a partition key went from one place to another, at this revision.
func (j *queueJudge) keyMoved(id string, from, to *queueEntry) {
	switch {
	case to == nil || to.where == "dead":
		delete(j.keys.started, id)
		if from != nil {
			j.keys.freed[from.Key] = j.changes[0].at
		}
	case to.Key == "":
	case to.where == "taken":
		for other, key := range j.keys.started {
			j.faultIf(j.qs.keyLimit == 1 && key == to.Key && other != id,
				"item %s of key %s was taken before %s had ended: %v", id, key, other, to.change)
		}
		j.keys.started[id] = to.Key
	case from != nil && from.where == "behind" && to.where == "ready":
		j.qs.w.count("judged: turns of partition keys")
		for other, all := range j.at {
			for _, e := range all {
				j.faultIf(j.qs.keyLimit == 1 && e.where == "behind" && e.Key == to.Key && e.change.key < from.change.key,
					"item %s of key %s was passed by %s: %v", other, e.Key, id, to.change)
			}
		}
		since := from.change.at
		if freed := j.keys.freed[to.Key]; freed.After(since) {
			since = freed
		}
		j.pickedUp(from, since, 2*longTTL)
	}
}

// keysAgree judges that each item that has its turn has a lane, and each lane such an item.
func (j *queueJudge) keysAgree() {
	taken, having := map[string]int{}, 0
	for id, all := range j.at {
		for _, e := range all {
			visible := e.where == "ready" || e.where == "taken"
			j.faultIf((e.where == "behind" || e.where == "dead") && e.Lane > 0 || visible && e.Key != "" && e.Lane == 0,
				"item %s is %s with lane %d: %v", id, e.where, e.Lane, e.change)
			if e.Lane > 0 {
				having++
			}
			if e.where == "taken" && e.Key != "" {
				taken[e.Key]++
			}
		}
	}
	for lane, owner := range j.keys.lanes {
		_, id, _ := strings.Cut(owner, "/")
		all := j.at[id]
		j.faultIf(len(all) == 0 || all[0].Lane == 0, "the lane %s is left of item %s, at revision %d", lane, id, j.changes[0].rev)
	}
	j.faultIf(having != len(j.keys.lanes), "%d items have %d lanes at revision %d", having, len(j.keys.lanes), j.changes[0].rev)
	for key, n := range taken {
		j.faultIf(n > j.qs.keyLimit, "%d items of key %s are taken at revision %d, the limit is %d", n, key, j.changes[0].rev, j.qs.keyLimit)
	}
}
