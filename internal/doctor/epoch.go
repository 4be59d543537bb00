package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// CheckRevision is the check whose errors are rewinds: etcd was restored from a snapshot, and
// its revision went back.
const CheckRevision = "revision"

// Epoch reads the epoch of the claims, and compares Fence with it and with etcd's revision. In
// one epoch revisions only rise.
func (e *Examination) Epoch(ctx context.Context) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	epoch, at, err := explain.Epoch(ctx, e.etcd(), e.Claims.Prefix())
	if err != nil {
		e.Add(Error, "epoch", "correct the key, or grant its permission", "%v", err)
		return
	}
	e.Well("epoch", "%d", epoch)
	switch seen, of := keyspace.Revision(e.Fence), keyspace.Epoch(e.Fence); {
	case e.Fence == 0:
	case epoch > of || epoch == of && at.Revision >= seen:
		e.Well(CheckRevision, "%d, not behind --fence", at.Revision)
	default:
		remedy := fmt.Sprintf("etcd was restored without --bump-revision, so that fences repeat: "+
			"stop the programs that write under fences, then: %s epoch raise --above %d --yes", e.Commands.Claimctl, of)
		e.Add(Error, CheckRevision, remedy,
			"fence %d has revision %d of epoch %d, and etcd is at %d of epoch %d", e.Fence, seen, of, at.Revision, epoch)
	}
}

// restored are the checks of what a restore brings back: claims and places of programs
// that have ended, and records, items and jobs as they were.
var restored = []string{"claims", "lines", "sessions", "work", "queues", "jobs"}

// OrderByCause puts rewinds first, and marks the findings that can follow from one.
func (e *Examination) OrderByCause() {
	var rewinds, others []Finding
	for _, f := range e.Findings {
		if f.Check == CheckRevision && f.Level == Error {
			rewinds = append(rewinds, f)
		} else {
			others = append(others, f)
		}
	}
	if len(rewinds) == 0 {
		return
	}
	for i, f := range others {
		if f.Level != OK && slices.Contains(restored, f.Check) {
			others[i].After = CheckRevision
		}
	}
	e.Findings = append(rewinds, others...)
}
