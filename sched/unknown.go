package sched

import (
	"fmt"
	"maps"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/live"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// How long an owner leaves an orphaned run of a job that it cannot run to an owner that can.
// That one would do more if the tick is to be begun again: then the time covers a deployment.
const (
	unknownFor     = time.Minute
	unknownToRetry = 10 * time.Minute
)

// unknown are the orphaned runs of jobs that the owner cannot run, by key, since when it has
// known of them. A job that no process has any more has no other owner to wait for.
type unknown map[string]time.Time

// due reports whether the owner settles a run of a job that it cannot run, of which the
// registration is spec.
func (u unknown) due(key string, is spec) bool {
	if _, seen := u[key]; !seen {
		u[key] = clock.Mono()
	}
	after := unknownToRetry
	if is.Guarantee == guaranteeNames[AtMostOnce] {
		after = unknownFor
	}
	return time.Since(u[key]) >= after
}

// keep forgets runs that are gone.
func (u unknown) keep(runs map[string]live.KV) {
	maps.DeleteFunc(u, func(key string, _ time.Time) bool { _, there := runs[key]; return !there })
}

// stranger returns the state of a job that the owner cannot run, as far as it needs that to
// settle an orphaned run, or nil if it leaves the run to another owner. kv is the registration
// of the job, or nil if the job has no registration.
func (l *leadership) stranger(key string, r run, kv *mvccpb.KeyValue) *jobState {
	var is spec
	if kv != nil {
		var err error
		if is, err = decode[spec](string(kv.Key), kv.Value); err != nil {
			return nil // of a later version
		}
	}
	if !l.unknown.due(key, is) {
		return nil
	}
	why := fmt.Sprintf("the owner of the group does not have the job; if no process has it any more: "+
		"claimctl sched forget -g %q %q", l.cfg.Group, r.Job)
	if c := l.jobs[keyspace.Digest(r.Job)]; c != nil {
		why = c.job.problem
	}
	return &jobState{job: Job{Name: r.Job, History: is.Limit(), problem: why}.ruled(), id: keyspace.Digest(r.Job)}
}
