package sched

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/pausing"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// mostHalts is how many tags of a group can have been paused.
const mostHalts = 100

// PauseGroup pauses all jobs of the group, also those that are added or defined later, until ResumeGroup or
// for some time: see [For]. It is otherwise like Pause, with these differences. A job can be paused by
// itself, with the group and with its tags: no tick is admitted until each of these pauses has ended. When
// the pause ends, CatchUp decides about no tick from before, and the ticks of the pause have no record: Explain
// knows of the last pause. PauseGroup replaces a pause of the group, also one until ResumeGroup.
//
// Errors: those of etcdclaims.Client.TryAcquire. If the error matches etcdclaims.ErrUnknown, the pause may
// have taken effect; after any other error it has not.
func (s *Scheduler) PauseGroup(ctx context.Context, why string, opts ...PauseOption) error {
	return s.halt(ctx, "", why, opts)
}

// ResumeGroup ends the pause of the group. A job that is paused by itself or with a tag stays paused.
//
// Errors: [ErrUnchanged] if the group is not paused, and those of etcdclaims.Client.TryAcquire.
func (s *Scheduler) ResumeGroup(ctx context.Context) error { return s.lift(ctx, "") }

// PauseTag pauses the jobs that have the tag, now or later: see PauseGroup, and Job.Tags. A tag that no
// job has can be paused. If 100 tags of the group have been paused, the one whose pause ended first is
// forgotten: ticks of that pause which nothing has admitted since are then due again.
func (s *Scheduler) PauseTag(ctx context.Context, tag, why string, opts ...PauseOption) error {
	if err := checkName(tag); err != nil {
		return fmt.Errorf("sched: pause tag %.80q: the tag %w", tag, err)
	}
	return s.halt(ctx, tag, why, opts)
}

// ResumeTag ends the pause of a tag; see ResumeGroup.
func (s *Scheduler) ResumeTag(ctx context.Context, tag string) error {
	if err := checkName(tag); err != nil {
		return fmt.Errorf("sched: resume tag %.80q: the tag %w", tag, err)
	}
	return s.lift(ctx, tag)
}

// PausedJobs returns the pauses of the group and of tags that last, in no particular order.
func (s *Scheduler) PausedJobs(ctx context.Context) (all []Pause, err error) {
	known, err := s.readHalts(ctx)
	if err != nil {
		return nil, errtext.Wrap(fmt.Sprintf("sched: read the pauses of group %q", s.cfg.Group), s.explained(err))
	}
	for _, h := range known.all {
		if h.End(s.now()).IsZero() {
			all = append(all, pauseOf(h.Pause, &h))
		}
	}
	return all, nil
}

// halt puts the pause of a tag, or of the group for the empty tag.
func (s *Scheduler) halt(ctx context.Context, tag, why string, opts []PauseOption) error {
	var length pausing.Length
	for _, opt := range opts {
		if opt != nil {
			opt.applyPause(&length)
		}
	}
	now := s.now()
	h := tick.Halt{Tag: tag, Pause: pause{Version: valueVersion, By: s.claims.Owner(), Note: limitText(why), At: now}}
	what := "pause " + h.Scope()
	var err error
	if h.Until, err = length.End(now); err != nil {
		return errtext.Wrap("sched: "+what, err)
	}
	act := audit.Begin(ctx, s.claims, audit.PauseJob, audit.Target{Group: s.cfg.Group, Detail: detailOf(h, length.String())}, why)
	_, err = s.change(ctx, act, what, func() (_ []clientv3.Cmp, ops []clientv3.Op, err error) {
		known, err := s.readHalts(ctx)
		if err != nil {
			return nil, nil, err
		}
		old, err := known.of(tag)
		if err != nil {
			return nil, nil, err
		}
		if old == nil && len(known.all) >= mostHalts {
			oldest := known.all.Oldest(now)
			if oldest == nil {
				return nil, nil, fmt.Errorf("%d tags are paused, which is the limit", mostHalts)
			}
			ops = append(ops, clientv3.OpDelete(s.keys.Halt(oldest.Tag)))
		}
		// None was put since, so the oldest has ended and there are as many. One is removed only as another is put.
		unchanged := clientv3.Compare(clientv3.ModRevision(s.keys.Halts()), "<", known.rev+1).WithPrefix()
		return []clientv3.Cmp{unchanged}, append(ops, clientv3.OpPut(s.keys.Halt(tag), tick.Encode(h))), nil
	})
	return err
}

// lift ends the pause of a tag, or of the group.
func (s *Scheduler) lift(ctx context.Context, tag string) error {
	of := tick.Halt{Tag: tag}
	act := audit.Begin(ctx, s.claims, audit.ResumeJob, audit.Target{Group: s.cfg.Group, Detail: detailOf(of, "")}, "")
	_, err := s.change(ctx, act, "resume "+of.Scope(), func() ([]clientv3.Cmp, []clientv3.Op, error) {
		known, err := s.readHalts(ctx)
		if err != nil {
			return nil, nil, err
		}
		h, err := known.of(tag)
		if err != nil {
			return nil, nil, err
		}
		if h == nil || !h.End(s.now()).IsZero() {
			return nil, nil, fmt.Errorf("%w: %s is not paused", ErrUnchanged, of.Scope())
		}
		h.Ended = tick.Later(h.At, s.now()) // this clock may be behind
		is := clientv3.Compare(clientv3.ModRevision(s.keys.Halt(tag)), "=", known.revs[tag])
		return []clientv3.Cmp{is}, []clientv3.Op{clientv3.OpPut(s.keys.Halt(tag), tick.Encode(*h))}, nil
	})
	return err
}

// detailOf describes a halt in the record of a call.
func detailOf(h tick.Halt, length string) string {
	if length != "" {
		length = " " + length
	}
	return h.Scope() + length
}

// readHalts reads the pauses of many jobs.
func (s *Scheduler) readHalts(ctx context.Context) (known halts, err error) {
	if s.Passthrough() {
		return known, etcdclaims.ErrPassthrough
	}
	resp, err := retry.Get(ctx, core.Of(s.claims).KV(), readTime, clientv3.OpGet(s.keys.Halts(), clientv3.WithPrefix()))
	if err != nil {
		return known, err
	}
	known = haltsFrom(resp.Kvs)
	known.rev = resp.Header.Revision
	return known, nil
}
