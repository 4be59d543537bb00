package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/durable"
	"github.com/etcdclaims/claims/internal/explain"
)

// counts looks for what was deleted by hand, which leaves no other trace: fewer queues, jobs, dead letters and so on
// than at the last examination, although no operator has removed any. The counts are kept beside the
// prefix. While some are missing, they stay as they were.
func (e *Examination) counts(ctx context.Context) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	etcd, prefix := e.etcd(), e.Claims.Prefix()
	last, err := durable.ReadLast(ctx, etcd, prefix)
	var now durable.Counts
	if err == nil {
		now, err = durable.Count(ctx, etcd, prefix)
	}
	falls := last.Falls(now, nil)
	if err == nil && len(falls) > 0 {
		var acts []audit.Record
		acts, err = audit.Newest(ctx, etcd, prefix, audit.Most, time.Time{})
		falls = last.Falls(now, acts)
	}
	switch {
	case explain.IsDenied(err):
		return // it is for users who may see everything
	case errors.Is(err, durable.ErrTooMany):
		e.Add(Note, "counts", "compare what there is with what you expect", "not compared: %v", err).Commands =
			append(e.claimctl(" queue stats"), e.claimctl(" sched jobs -A")...)
		return
	case e.failed(Warning, "counts", "cannot be read", err):
		return
	}
	if len(falls) > 0 {
		e.Add(Error, "counts", "if they were deleted by mistake, restore them from a backup (docs/operations.md); otherwise begin to count anew",
			"deleted by no operation of claims since %s (revision %d): %s", explain.Stamp(last.At), last.Revision, fallsText(falls),
		).Commands = append(e.claimctl(" restore -f BACKUP"), e.etcdctl(" del %s", explain.Quoted(durable.LastKey(prefix)))...)
		return
	}
	if err := last.Replace(ctx, etcd, prefix, now, clock.For(etcd).Time()); err != nil && !explain.IsDenied(err) {
		e.Add(Note, "counts", "see the space of etcd", "cannot be kept for the next time: %v", err)
		return
	}
	e.well("counts", "none fewer than before: %s", countsText(now))
}

func fallsText(falls []durable.Fall) string {
	var parts []string
	for _, f := range falls {
		parts = append(parts, fmt.Sprintf("%s: %d, were %d", f.Kind, f.Now, f.Was))
	}
	return strings.Join(parts, "; ")
}

func countsText(now durable.Counts) string {
	var parts []string
	for _, kind := range durable.Kinds {
		if n := now.Of[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", kind, n))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}
