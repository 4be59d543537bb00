package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/sched"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// services looks for what people must decide about in queues and schedules.
func (d *doctor) services(ctx context.Context, claims *etcdclaims.Client) {
	ctx, cancel := context.WithTimeout(ctx, d.commandTimeout)
	defer cancel()
	d.queues(ctx, claims)
	d.groups(ctx, claims)
}

func (d *doctor) queues(ctx context.Context, claims *etcdclaims.Client) {
	const most = 50
	seen, well := 0, true
	for name, err := range queue.Active(ctx, claims) {
		var stats queue.Stats
		if err == nil {
			err = d.inQueue(ctx, claims, name, func(q *queue.Queue) error {
				stats, err = q.Stats(ctx)
				return err
			})
		}
		if errors.Is(err, etcdclaims.ErrPermissionDenied) {
			return // see permissions
		}
		if err != nil {
			d.add(levelWarning, "queues", "see claimctl queue stats", "cannot be read: %v", err)
			return
		}
		if stats.Dead > 0 {
			well = false
			d.add(levelWarning, "queues", fmt.Sprintf("claimctl queue dead ls %s, mend the cause, claimctl queue dead redrive %s ID", name, name), "%q has %d dead items", name, stats.Dead)
		}
		if !stats.Paused.At.IsZero() {
			well = false
			d.add(levelWarning, "queues", "claimctl queue resume "+name, "%q is paused %s", name, viewStats(name, stats).Paused)
		}
		if seen++; seen == most {
			break
		}
	}
	if well {
		d.ok("queues", "%d active, without dead items and pauses", seen)
	}
}

// groups looks at the jobs of each group that some process runs, which is what
// makes its name known.
func (d *doctor) groups(ctx context.Context, claims *etcdclaims.Client) {
	owned, jobs, well := map[string]bool{}, 0, true
	for i, err := range claims.List(ctx, "sched/") {
		group, ok := strings.CutSuffix(strings.TrimPrefix(i.Key, "sched/"), "/owner")
		if err != nil || len(owned) == 50 {
			break // claims cannot be listed: was reported
		}
		if !ok {
			continue
		}
		owned[keyspace.Digest(group)] = true
		s, err := sched.New(claims, sched.Config{Group: group})
		if err != nil {
			continue // another program's key
		}
		for job, err := range s.Jobs(ctx) {
			if errors.Is(err, etcdclaims.ErrPermissionDenied) {
				return // see permissions
			}
			if err != nil {
				d.add(levelWarning, "jobs", "see claimctl sched jobs -g "+group, "of group %q cannot be read: %v", group, err)
				return
			}
			if jobs++; job.Paused != nil {
				well = false
				d.add(levelWarning, "jobs", fmt.Sprintf("claimctl sched resume -g %s %s", group, job.Job), "%q of group %q is paused %s", job.Job, group, viewJob(job).Paused)
			}
		}
	}
	abandoned, err := d.abandoned(ctx, claims.Prefix(), owned)
	if err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
		d.add(levelWarning, "jobs", "see the endpoints", "cannot be read: %v", err)
		return
	}
	if abandoned > 0 {
		well = false
		d.add(levelWarning, "jobs", "start a process that runs their Scheduler, or forget their jobs: claimctl sched jobs -g GROUP", "%d groups have jobs, and no process runs them", abandoned)
	}
	if well {
		d.ok("jobs", "%d of %d groups, none paused", jobs, len(owned))
	}
}

// abandoned counts the groups with jobs that nobody owns. It reads no values.
func (d *doctor) abandoned(ctx context.Context, prefix string, owned map[string]bool) (int, error) {
	const most = 50
	root, n := prefix+"sched/", 0
	end := keyspace.RangeEnd(root)
	for from := root; n < most; {
		resp, err := d.etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil || len(resp.Kvs) == 0 {
			return n, err
		}
		digest, _, _ := strings.Cut(strings.TrimPrefix(string(resp.Kvs[0].Key), root), "/")
		if !owned[digest] {
			specs, err := d.etcd.Get(ctx, root+digest+"/spec/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				return n, err
			}
			n += int(min(specs.Count, 1))
		}
		from = keyspace.RangeEnd(root + digest + "/")
	}
	return n, nil
}
