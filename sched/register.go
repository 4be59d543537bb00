package sched

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
)

// farAhead is how far a mark may be ahead of the clock before that is said.
const farAhead = time.Hour

// load reads what is known of the jobs, and registers those that are new or have
// changed.
func (t *tenure) load(ctx context.Context) error {
	k := t.s.keys
	reading, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	resp, err := t.s.claims.Etcd().Txn(reading).Then(
		clientv3.OpGet(k.specs(), clientv3.WithPrefix()), clientv3.OpGet(k.highs(), clientv3.WithPrefix())).Commit()
	if err != nil {
		return err
	}
	// A decision may have failed since the view was behind.
	if _, err := t.s.view.list(ctx); err != nil {
		return err
	}
	specs := byDigest(k.specs(), resp.Responses[0].GetResponseRange().Kvs)
	highs := byDigest(k.highs(), resp.Responses[1].GetResponseRange().Kvs)
	t.s.mu.Lock()
	jobs := make([]Job, 0, len(t.s.jobs))
	for _, j := range t.s.jobs {
		jobs = append(jobs, j)
	}
	t.s.mu.Unlock()

	t.stale, t.unread, t.loaded = false, false, time.Now()
	t.jobs = make(map[string]*charge, len(jobs))
	var steps []decision
	for _, j := range jobs {
		d := digest(j.Name)
		c, err := t.charge(j, specs[d], highs[d])
		if err != nil {
			t.unread = true
			t.s.log.Error("a job cannot be taken over, and is left alone", zap.String("job", j.Name), zap.Error(err))
			continue
		}
		t.jobs[d] = c
		if st, ok := t.register(c); ok {
			steps = append(steps, st)
		}
		t.schedule(c)
	}
	if t.unread && len(t.jobs) == 0 {
		return errUnreadable
	}
	return t.take(ctx, steps)
}

// errUnreadable says that another process had better be the owner.
var errUnreadable = errors.New("sched: none of the jobs can be taken over")

// charge makes sense of what is stored of a job.
func (t *tenure) charge(j Job, sp, high *mvccpb.KeyValue) (c *charge, err error) {
	c = &charge{job: j, paused: !t.s.view.get(t.s.keys.paused(j.Name)).gone}
	if high != nil {
		if c.high, err = dec(high.Value); err != nil {
			return nil, fmt.Errorf("its high-water mark %s: %w; correct it", high.Key, err)
		}
		c.highRev = high.ModRevision
		if ahead := c.high.Sub(t.s.now()); ahead > farAhead {
			t.s.log.Error("nothing is due before the high-water mark, which is far ahead: the clock of an owner was wrong, or this one's is; to begin anew delete the key",
				zap.String("job", j.Name), zap.Duration("ahead", ahead), zap.ByteString("key", high.Key))
		}
	}
	if sp != nil {
		if c.spec, err = decode[spec](string(sp.Key), sp.Value); err != nil {
			return nil, err
		}
		c.specRev = sp.ModRevision
	}
	return c, nil
}

// register makes the stored job what this owner was given, if it is not that. A
// job that is new, and one whose schedule has changed, begins now: the mark is
// moved forward, never back.
func (t *tenure) register(c *charge) (decision, bool) {
	k, j, now := t.s.keys, c.job, t.s.now()
	is := describe(t.s.cfg.Group, j)
	begins := c.specRev == 0 || c.highRev == 0 || c.spec.Hash != is.Hash
	is.Since, is.Born, is.Started = c.spec.Since, c.spec.Born, c.spec.Started
	if begins {
		is.Since = now
	}
	if c.specRev == 0 {
		is.Born = now
	}
	starts := j.RunOnStart && !slices.Contains(is.Started, is.Hash)
	if starts {
		const most = 32 // revisions that are remembered to have started
		is.Started = append(slices.Clone(is.Started[max(0, len(is.Started)-most+1):]), is.Hash)
	}
	value := encode(is)
	if !begins && !starts && value == encode(c.spec) {
		return decision{}, false
	}
	st := decision{
		cmps: []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(k.spec(j.Name)), "=", c.specRev),
			clientv3.Compare(clientv3.ModRevision(k.high(j.Name)), "=", c.highRev),
		},
		ops: []clientv3.Op{clientv3.OpPut(k.spec(j.Name), value)},
	}
	high := c.high
	if begins {
		high = later(c.high, now)
		st.ops = append(st.ops, clientv3.OpPut(k.high(j.Name), enc(high)))
	}
	var first string
	if starts {
		first = encode(ready{Version: valueVersion, Job: j.Name, ID: startID + is.Hash, Nominal: now, Actual: now, Attempt: 1, Parallel: j.parallel(), Epoch: t.s.epoch.Load()})
		st.ops = append(st.ops, clientv3.OpPut(k.ready(j.Name, startID+is.Hash), first))
	}
	st.done = func(ok bool, rev int64, _ []*pb.ResponseOp) {
		if !ok {
			t.stale = true // another request of our own came before
			return
		}
		if c.specRev == 0 {
			t.s.log.Info("job registered", zap.String("job", j.Name), zap.String("schedule", is.Schedule))
		} else if begins {
			t.s.log.Info("job changed; what was due under its old schedule is not caught up with", zap.String("job", j.Name),
				zap.String("old", c.spec.Schedule), zap.String("new", is.Schedule))
		}
		c.spec, c.specRev, c.high = is, rev, high
		if begins {
			c.highRev = rev
		}
		if starts {
			t.s.view.put(k.ready(j.Name, startID+is.Hash), first, rev)
		}
		t.schedule(c)
	}
	return st, true
}

// describe says what the job is, but for its past.
func describe(group string, j Job) spec {
	is := spec{
		Version: valueVersion, Group: group, Job: j.Name, Schedule: j.text(), Revision: j.Revision, Hash: j.hash(),
		Delivery: j.Delivery.String(),
	}
	is.CatchUp, _ = j.CatchUp.catchUp()
	is.Overlap, _ = j.Overlap.overlap()
	return is
}

// schedule says when the job is to be looked at next.
func (t *tenure) schedule(c *charge) { c.at = c.job.next(c.high) }

func byDigest(prefix string, kvs []*mvccpb.KeyValue) map[string]*mvccpb.KeyValue {
	out := make(map[string]*mvccpb.KeyValue, len(kvs))
	for _, kv := range kvs {
		out[strings.TrimPrefix(string(kv.Key), prefix)] = kv
	}
	return out
}

// isTooLarge reports whether a transaction had more in it than etcd allows.
func isTooLarge(err error) bool {
	return errors.Is(err, etcdclaims.ErrTooLarge) || errors.Is(err, rpctypes.ErrTooManyOps)
}

// isRefusal reports whether etcd will say the same to the same request again.
func isRefusal(err error) bool {
	var is rpctypes.EtcdError
	return errors.As(err, &is) && is.Code() == codes.InvalidArgument
}
