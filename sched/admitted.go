package sched

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/oplog"
)

// groupOwner is the owner of a group, as far as another process sees it.
type groupOwner struct {
	name string        // empty if the group has no owner
	ttl  time.Duration // of its lease, or the default one if that is not known
}

// ownerRead reads the owner of a group when it is first called, and returns the same again.
type ownerRead func() (groupOwner, error)

func (s *Scheduler) ownerRead(ctx context.Context) ownerRead {
	return sync.OnceValues(func() (groupOwner, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		is := groupOwner{ttl: etcdclaims.DefaultTTL}
		for i, err := range s.claims.List(ctx, ownerKey(s.cfg.Group)) {
			switch {
			case oplog.IsDenied(err): // a user who may read the jobs need not read the claims
				return groupOwner{"(not readable)", is.ttl}, nil
			case err != nil || i.Key == ownerKey(s.cfg.Group):
				if is.name = i.Owner; !i.Expires.IsZero() { // a whole lease from now
					is.ttl = time.Until(i.Expires).Round(time.Second)
				}
				return is, err
			}
		}
		return is, nil
	})
}

// notAdmitted sets Unadmitted and Problem of a job whose next tick the owner should have
// decided about by now. A job that has another problem is left as it is.
func (st *jobSnapshot) notAdmitted(i *JobInfo, now time.Time, owner ownerRead) error {
	late := now.Sub(i.Next.Add(st.Spec.Jitter)) // the least Duration for a distant year
	if i.Problem != "" || i.Next.IsZero() || late <= jobstate.Slack {
		return nil
	}
	is, err := owner()
	if err != nil || late-jobstate.Slack <= is.ttl {
		return err
	}
	if i.Unadmitted, i.Problem = i.Next, fmt.Sprintf("due since %s; the group has no owner", stamp(i.Next)); is.name != "" {
		i.Problem = fmt.Sprintf("due since %s; the owner %s of the group has not admitted it: "+
			"it does not have the job (another service with this Config.Group, or another version), "+
			"or is busy, or its clock is behind; "+
			"if no process has the job any more: claimctl sched forget -g %q %q", stamp(i.Next), is.name, i.Group, i.Job)
	}
	return nil
}
