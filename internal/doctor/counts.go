package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/durable"
	"github.com/etcdclaims/claims/internal/explain"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// counts looks for what was deleted by hand, which leaves no other trace: names of queues, jobs and groups that were there at
// the last examination, although no operator has removed them. The names are kept beside the prefix. While
// some are missing, they stay as they were. A small deletion, and one that programs make up for, is not found.
func (e *Examination) counts(ctx context.Context) {
	etcd, prefix, at := e.etcd(), e.Claims.Prefix(), clock.For(e.etcd()).Time()
	last, err := durable.ReadLast(ctx, etcd, prefix)
	var now durable.Counts
	if err == nil {
		now, err = durable.Count(ctx, etcd, prefix)
	}
	var gone []string
	if err == nil {
		gone, err = last.Gone(ctx, etcd, prefix, now, at)
	}
	switch {
	case explain.IsDenied(err):
		return // it is for users who may see everything
	case errors.Is(err, durable.ErrTooMany):
		e.Add(Note, "counts", "compare what there is with what you expect", "not compared: %v", err).
			run(e.claimctl("queue stats"), e.claimctl("sched jobs -A"))
		return
	case e.failed(Warning, "counts", "cannot be read", err):
		return
	}
	if len(gone) > 0 {
		e.Add(Error, "counts", "if they were deleted by mistake, restore them from a backup (docs/operations.md); otherwise begin to count anew",
			"deleted by no operation of claims since %s (revision %d): %s. There were then %s", explain.Stamp(last.At), last.Began,
			several(e.named(ctx, gone, last.Began)), countsText(last.Names, last.Of),
		).run(e.claimctl("restore -f BACKUP"), e.etcdctl("del", durable.LastKey(prefix)))
		return
	}
	switch err := last.Replace(ctx, etcd, prefix, now, at); {
	case explain.IsDenied(err):
		e.Add(Note, "counts", "run doctor as a user that may write it, or grant that (docs/permissions.md)",
			"not kept, so that a deletion by hand is not found: no readwrite permission on %q", durable.LastKey(prefix))
	case err != nil:
		e.Add(Note, "counts", "see the space of etcd", "cannot be kept for the next time: %v", err)
	default:
		e.well("counts", "none gone that was there before: %s", countsText(now.Names, now.Of))
	}
}

// named adds to keys that are gone what their values called them at a revision, as far as etcd still has that.
func (e *Examination) named(ctx context.Context, keys []string, rev int64) []string {
	texts := slices.Clone(keys)
	for i, key := range keys[:min(len(keys), shown)] {
		var v struct{ Name, Group string }
		resp, err := e.etcd().Get(ctx, e.Claims.Prefix()+key, clientv3.WithRev(rev))
		if err == nil && len(resp.Kvs) > 0 && json.Unmarshal(resp.Kvs[0].Value, &v) == nil && v.Name+v.Group != "" {
			texts[i] += " (" + cmp.Or(v.Name, v.Group) + ")"
		}
	}
	return texts
}

func countsText(names []string, of map[durable.Kind]int64) string {
	parts := []string{fmt.Sprintf("queues, jobs and groups: %d", len(names))}
	for _, kind := range durable.Kinds {
		if n := of[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", kind, n))
		}
	}
	return strings.Join(parts, "; ")
}
