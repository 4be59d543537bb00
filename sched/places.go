package sched

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
)

// readPlaces reads where a waiting tick of the job can begin, for its explanation: which runs have the slots of its
// limits, and which labels a process needs.
func (s *Scheduler) readPlaces(ctx context.Context, st *jobSnapshot) error {
	if len(st.Waiting) == 0 {
		return nil
	}
	if len(st.Spec.RunsOn) > 0 {
		st.Places = append(st.Places, "it needs a process with the labels "+strings.Join(st.Spec.RunsOn, ", "))
	}
	limits := slices.Sorted(maps.Keys(st.Spec.Limits))
	if len(limits) == 0 {
		return nil
	}
	var ops txn.Branch
	runs := ops.Add(txn.Range(s.keys.Runs()))
	ops[0].GetRequestRange().KeysOnly = true
	slots := make([]txn.Op, len(limits))
	for i, limit := range limits {
		slots[i] = ops.Add(txn.Range(s.keys.Slots(limit)))
	}
	resp, err := retry.Read(ctx, core.Of(s.claims).KV(), readTime, txn.OpsOf(ops)...)
	if err != nil {
		return err
	}
	reply := txn.ReplyIn(resp)
	recorded := make(map[string]int64)
	for _, kv := range reply.Kvs(runs) {
		recorded[string(kv.Key)] = kv.ModRevision
	}
	for i, limit := range limits {
		var by []string
		for _, kv := range reply.Kvs(slots[i]) {
			h, err := decode[tick.Holder](string(kv.Key), kv.Value)
			if err == nil && recorded[h.Record(s.keys)] == kv.ModRevision {
				by = append(by, h.Job)
			}
		}
		text := fmt.Sprintf("%d runs with the limit %s are in progress, which is %d for the job", len(by), limit, st.Spec.Limits[limit])
		const most = 5
		if slices.Sort(by); len(by) > most {
			by = append(by[:most], "others")
		}
		if len(by) > 0 {
			text += ": of " + strings.Join(by, ", ")
		}
		st.Places = append(st.Places, text)
	}
	return nil
}
