package simulation

import (
	"strings"
	"time"
)

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
