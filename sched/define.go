package sched

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// mostDefinitions is how many jobs of a group can be defined. Each process reads their
// notices every five seconds.
const mostDefinitions = 2000

// Define stores the definition of a job, which the group runs from then on, and returns
// its version. It works in any process of the group, also in one that does not call Run
// or has no function for the kind. The owner of the group takes the definition up within
// milliseconds. If its watch reports nothing, that takes up to five seconds.
//
// If Definition.Version is zero, the job must not be defined yet. To change a job, read its
// Definition, edit it and pass it with its Version: Define fails if another process has
// changed it meanwhile. If the job is defined with the same content already, Define changes
// nothing and returns the stored version.
//
// A change has the effect that the same change of a job in code has. If the text of the
// schedule or the Revision changes, ticks of the old schedule that are due and not
// admitted are not caught up with. The text of the schedule includes After, and the days
// or the events of Except and Only. So a new date changes it. Another order of the dates,
// or another summary of an event, does not change it. If After changes, ticks that were
// requested and not admitted are dropped. Runs in progress continue as they began. A tick
// that waits begins with the new payload.
//
// A group has at most 2,000 definitions; calls at the same time can exceed that by a few.
// JobInfo.Problem reports a definition that the owner of the group cannot run.
//
// Define returns an error if the definition is invalid, or if its name is that of a job in
// code. That is a job of this process, or one that an owner of the group has registered.
// Other errors: [ErrVersion], and those of etcdclaims.Client.TryAcquire. If the error
// matches etcdclaims.ErrUnknown, the definition may have been stored: call Define again,
// with the same arguments. After any other error it was not.
func (s *Scheduler) Define(ctx context.Context, d Definition) (version int64, err error) {
	fail := func(err error) (int64, error) { return 0, fmt.Errorf("sched: define job %.80q: %w", d.Name, err) }
	replaces := d.Version
	d.Version, d.By, d.At = 0, s.claims.Owner(), s.now()
	if err := d.validate(s.catalog.parser()); err != nil {
		return 0, err
	}
	if replaces < AnyVersion {
		return fail(fmt.Errorf("the Version %d is invalid", replaces))
	}
	if s.catalog.inCode(d.Name) {
		return fail(errInCode)
	}
	v, err := d.value()
	if err != nil {
		return fail(err)
	}
	v.V = v.storedVersion()
	key, note := s.keys.Definition(d.Name), s.keys.Defined(d.Name)
	tell := clientv3.OpPut(note, tick.Encode(notice{Version: valueVersion, Job: d.Name, Following: v.Following}))
	act := s.act(ctx, audit.DefineJob, d.Name, "", "")
	// The change records it: a call that changes nothing leaves no record.
	rev, err := s.operateAt(ctx, nil, "define", d.Name, func(st *jobSnapshot) ([]clientv3.Cmp, []clientv3.Op, error) {
		version = 0
		switch {
		case st.definitionRev == 0 && st.SpecRev != 0 && st.Spec.InCode():
			return nil, nil, fmt.Errorf("%w; if no process has it any more, call Forget first", errInCode)
		case st.definitionRev != 0 && st.definitionErr == nil && st.definition.sameAs(v):
			version = st.definitionRev
			// Without the notice, since an operator has deleted it, no process runs the job.
			mend := clientv3.OpTxn([]clientv3.Cmp{absent(note)}, []clientv3.Op{tell}, nil)
			return []clientv3.Cmp{s.definedAs(d.Name, version)}, []clientv3.Op{mend}, nil
		case st.definitionErr != nil: // a value of a newer version is never overwritten
			return nil, nil, st.definitionErr
		case replaces != AnyVersion && replaces != st.definitionRev:
			return nil, nil, st.otherVersion()
		}
		if st.definitionRev == 0 {
			if err := s.roomForDefinition(ctx); err != nil {
				return nil, nil, err
			}
		}
		cmps, err := s.checkAfter(ctx, v)
		ops := append([]clientv3.Op{clientv3.OpPut(key, tick.Encode(v)), tell}, act.Ops()...)
		return append(cmps, s.definedAs(d.Name, st.definitionRev)), ops, err
	})
	if err = act.End(ctx, err); err != nil {
		return 0, err
	}
	return cmp.Or(version, rev), nil
}

// sameAs reports whether two values define the same job.
func (v definitionValue) sameAs(o definitionValue) bool {
	v.By, v.At, o.By, o.At = "", time.Time{}, "", time.Time{}
	return tick.Encode(v) == tick.Encode(o)
}

// removed reports whether the job is unknown, or its definition was removed.
func (st *jobSnapshot) removed() bool {
	return st.SpecRev == 0 || st.definitionRev == 0 && !st.Spec.InCode()
}

// otherVersion returns the error of a change that expects another version.
func (st *jobSnapshot) otherVersion() error {
	if st.definitionRev == 0 {
		return fmt.Errorf("%w: the job is not defined", ErrVersion)
	}
	return fmt.Errorf("%w: the job is defined in version %d, by %s at %s",
		ErrVersion, st.definitionRev, st.definition.By, stamp(st.definition.At))
}

// roomForDefinition returns an error if no more jobs can be defined.
func (s *Scheduler) roomForDefinition(ctx context.Context) error {
	count := clientv3.OpGet(s.keys.Definitions(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	resp, err := retry.Get(ctx, core.Of(s.claims).KV(), readTime, count)
	if err == nil && resp.Count >= mostDefinitions {
		err = fmt.Errorf("the group has %d definitions, which is the limit", resp.Count)
	}
	return err
}

// mostOrderly is how many tries of Undefine require that no tick came due or began meanwhile.
const mostOrderly = 3

// Undefine removes the definition of a job, if it has the version, or [AnyVersion]. No
// tick of the job is admitted or begins after that. The ticks that wait get one record
// together, that of the oldest of them, whose Missed counts the others. Its outcome is
// OutcomeCancelled. If the oldest tick has had an attempt, the outcome is that of its last
// attempt. Requests and a pause are removed. Runs in progress continue and are recorded,
// and are not tried again. Call Cancel after Undefine to end them.
//
// If ticks keep coming due or beginning while Undefine tries, it removes the ticks that
// wait without a record. Then no tick of the next second is admitted either, even if the
// job is defined again. Call Pause before Undefine to avoid that.
//
// The state of the job remains in etcd, with its records and some short keys that each
// process reads, until Forget removes it. Call Forget for jobs that do not come back. If the
// job is defined again, it begins anew: ticks in between are not caught up with. RunOnStart
// is due again only after Forget.
//
// Errors: [ErrVersion], [ErrUnknownJob] if the job is not defined, and those of
// etcdclaims.Client.TryAcquire. If the error matches etcdclaims.ErrUnknown, the definition
// may have been removed; after any other error it was not.
func (s *Scheduler) Undefine(ctx context.Context, job string, version int64) error {
	by := cancelling{Version: valueVersion, By: s.claims.Owner(), Note: "the definition of the job was removed", At: s.now()}
	tries := 0
	act := s.act(ctx, audit.UndefineJob, job, "", "")
	return s.operate(ctx, act, "undefine", job, func(st *jobSnapshot) ([]clientv3.Cmp, []clientv3.Op, error) {
		switch {
		case st.definitionRev == 0:
			return nil, nil, fmt.Errorf("%w is defined", ErrUnknownJob)
		case version != AnyVersion && version != st.definitionRev:
			return nil, nil, st.otherVersion()
		}
		k := s.keys
		cmps := []clientv3.Cmp{s.definedAs(job, st.definitionRev), clientv3.Compare(clientv3.ModRevision(k.Spec(job)), "=", st.SpecRev)}
		ops := []clientv3.Op{clientv3.OpDelete(k.Definition(job)), clientv3.OpDelete(k.Defined(job))}
		if st.SpecRev == 0 || st.Spec.InCode() { // no owner has taken it up, or the state is that of a job in code
			if st.SpecRev == 0 {
				ops = append(ops, clientv3.OpDelete(k.AsksOf(job), clientv3.WithPrefix()))
			}
			return cmps, ops, nil
		}
		gone := st.Spec
		gone.Hash, gone.Problem = "", fmt.Sprintf("the definition was removed by %s at %s; Forget removes what is left", by.By, stamp(by.At))
		tries++
		busy := tries > mostOrderly
		ops = append(ops, clientv3.OpPut(k.Spec(job), tick.Encode(gone)), clientv3.OpPut(k.Withdraw(job), tick.Encode(by)),
			clientv3.OpDelete(k.Paused(job)), clientv3.OpDelete(k.Fail(job)))
		for _, dir := range []string{k.ReadyOf(job), k.Backfills(job), k.AsksOf(job)} {
			ops = append(ops, clientv3.OpDelete(dir, clientv3.WithPrefix()))
		}
		// The mark is put so that an owner that does not know of this admits nothing.
		if busy && st.HighRev != 0 {
			mark := keyspace.Instant(tick.Later(st.High, s.now()).Add(time.Second))
			cmps = append(cmps, clientv3.Compare(clientv3.Value(k.High(job)), "<", mark))
			ops = append(ops, clientv3.OpPut(k.High(job), mark))
		} else {
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(k.High(job)), "=", st.HighRev))
			if st.HighRev != 0 {
				ops = append(ops, clientv3.OpPut(k.High(job), keyspace.Instant(st.High)))
			}
		}
		for _, dir := range []string{k.ReadyOf(job), k.Backfills(job)} {
			if !busy { // no tick waits that was not read
				cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(dir), "<", st.Rev+1).WithPrefix())
			}
		}
		if len(st.Waiting) > 0 && !busy {
			for _, w := range st.Waiting[:min(len(st.Waiting), mostForgotten)] {
				cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(w.Key), "=", w.Rev))
			}
			p := st.Waiting[0].LeftOut(OutcomeCancelled, by.At)
			p.Version, p.Job, p.Missed, p.Error = valueVersion, job, p.Missed+len(st.Waiting)-1, by.Explain(p.Error)
			ops = append(ops, clientv3.OpPut(k.Entry(job, p), tick.Encode(p)))
		}
		return cmps, ops, nil
	})
}

// Definition returns the definition of a job, with its Version, By and At.
//
// Errors: [ErrUnknownJob] if the job is not defined, an error if the definition was stored
// by a newer version of this package, and those of the etcd client.
func (s *Scheduler) Definition(ctx context.Context, job string) (Definition, error) {
	d, err := s.definition(ctx, job)
	if err != nil {
		return Definition{}, errtext.Wrap(fmt.Sprintf("sched: read the definition of job %.80q", job), s.explained(err))
	}
	return d, nil
}

func (s *Scheduler) definition(ctx context.Context, job string) (d Definition, err error) {
	if s.Passthrough() {
		return d, etcdclaims.ErrPassthrough
	}
	st, err := s.read(ctx, job)
	switch {
	case err != nil:
		return d, err
	case st.definitionRev == 0:
		return d, fmt.Errorf("%w is defined", ErrUnknownJob)
	case st.definitionErr != nil:
		return d, st.definitionErr
	}
	d, err = st.definition.definition()
	d.Version = st.definitionRev
	return d, err
}

// Definitions yields all definitions of the group, in no particular order. For a
// definition that this version of the package cannot read, it yields an error, and
// continues with the next. Any other error ends the sequence.
func (s *Scheduler) Definitions(ctx context.Context) iter.Seq2[Definition, error] {
	return func(yield func(Definition, error) bool) {
		if s.Passthrough() {
			return
		}
		what := fmt.Sprintf("sched: read the definitions of group %q", s.cfg.Group)
		op := clientv3.OpGet(s.keys.Definitions(), clientv3.WithPrefix())
		for page, err := range retry.List(ctx, core.Of(s.claims).KV(), readTime, op, definitionsPerRead, definitionsPerRead) {
			if err != nil {
				yield(Definition{}, errtext.Wrap(what, s.explained(err)))
				return
			}
			for _, kv := range page.Kvs {
				d, err := definitionFrom(kv)
				if err != nil {
					err = errtext.Wrap(what, err)
				}
				if !yield(d, err) {
					return
				}
			}
		}
	}
}

// definitionsPerRead is how many definitions are read by one request at most.
const definitionsPerRead = 100

// decodeDefinition decodes the value of a definition.
func decodeDefinition(kv *mvccpb.KeyValue) (definitionValue, error) {
	return keyspace.Decode[definitionValue](string(kv.Key), kv.Value, definitionVersion)
}

// definitionFrom decodes a definition.
func definitionFrom(kv *mvccpb.KeyValue) (Definition, error) {
	v, err := decodeDefinition(kv)
	if err != nil {
		return Definition{}, err
	}
	d, err := v.definition()
	if err != nil {
		return Definition{}, fmt.Errorf("the value of %s cannot be read: %w", kv.Key, err)
	}
	d.Version = kv.ModRevision
	return d, nil
}
