package sched

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// readPlaces reads where a tick of the job can begin if it waits, for its explanation: which runs have the slots of its
// limits, and which processes have its labels.
func (s *Scheduler) readPlaces(ctx context.Context, st *jobSnapshot, nominal time.Time) error {
	if !slices.ContainsFunc(st.Waiting, func(w tick.Waiting) bool { return w.Nominal.Equal(nominal) }) {
		return nil
	}
	if len(st.Spec.RunsOn) > 0 {
		text, err := s.labelled(ctx, Job{RunsOn: st.Spec.RunsOn})
		if err != nil {
			return err
		}
		st.Places = append(st.Places, text)
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
		st.Places = append(st.Places, s.takenBy(limit, st.Spec.Limits[limit], reply.Kvs(slots[i]), recorded))
	}
	return nil
}

// takenBy describes which of the slots with a number below n are taken, by the revisions of the recorded runs.
func (s *Scheduler) takenBy(limit string, n int, slots []*mvccpb.KeyValue, recorded map[string]int64) string {
	var by []string
	unread := ""
	for _, kv := range slots {
		key := string(kv.Key)
		if i, err := strconv.Atoi(strings.TrimPrefix(key, s.keys.Slots(limit))); err != nil || i >= n {
			continue
		}
		switch h, err := decode[tick.Holder](key, kv.Value); {
		case err != nil:
			by = append(by, "?")
			unread = "; the slot " + key + " counts as taken, since its value cannot be read"
		case recorded[h.Record(s.keys)] == kv.ModRevision:
			by = append(by, h.Job)
		}
	}
	text := fmt.Sprintf("%d of %d slots of the limit %s are taken", len(by), n, limit)
	if len(by) > 0 {
		text += ": by " + fewOf(by)
	}
	return text + unread
}
