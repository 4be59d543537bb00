package sched

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/oplog"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// mostMembers is how many processes of a group are read for an explanation.
const mostMembers = 1000

// labelled describes which processes of the group are known to have the labels that a job runs on. A process in Run
// holds the ownership or is in line for it, and the value of its key has its labels. This is not all that runs: two
// schedulers that share a client share a place in line, and a process has none for a moment between two terms.
func (s *Scheduler) labelled(ctx context.Context, job Job) (string, error) {
	needs := "it needs a process with the labels " + strings.Join(job.RunsOn, ", ")
	c := core.Of(s.claims)
	var ops txn.Ops
	own := ops.Add(clientv3.OpGet(s.claims.OwnKey(ownerKey(s.cfg.Group))))
	waiting := c.Layout().Waiting(ownerKey(s.cfg.Group))
	line := ops.Add(clientv3.OpGet(waiting, clientv3.WithPrefix(), clientv3.WithLimit(mostMembers)))
	resp, err := retry.Read(ctx, c.KV(), readTime, ops...)
	if oplog.IsDenied(txn.Denied(err)) { // a user who may read the jobs need not read the claims
		return needs, nil
	}
	if err != nil {
		return "", err
	}
	reply := txn.ReplyIn(resp)
	kvs := append(reply.Kvs(own), reply.Kvs(line)...)
	known := int64(len(reply.Kvs(line))) == reply.Range(line).Count
	var have []string
	for _, kv := range kvs {
		switch h, err := protocol.DecodeHolder(kv.Value); {
		case err != nil || h.Labels == nil: // an earlier version writes no labels
			known = false
		case job.runsOn(h.Labels):
			have = append(have, h.Owner)
		}
	}
	switch {
	case len(have) > 0:
		known := errtext.Count(len(have), "process has them, and has", "processes have them, and have")
		return fmt.Sprintf("%s; %s not begun it: %s", needs, known, fewOf(have)), nil
	case !known:
		return needs, nil
	}
	return fmt.Sprintf("%s; no process is known to have them (known processes of the group: %d)", needs, len(kvs)), nil
}

// fewOf joins names, the first of them in their order.
func fewOf(names []string) string {
	const most = 5
	if slices.Sort(names); len(names) > most {
		names = append(names[:most], "others")
	}
	return strings.Join(names, ", ")
}
