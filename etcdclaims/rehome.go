package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/wire"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// rest keeps a released key held by nobody for a while.
func (t *term) rest(ctx context.Context, d time.Duration) error {
	t.scatter() // nobody gets the key for a while
	err := t.rehome(ctx, kindResting, d)
	if err != nil && !errors.Is(err, ErrLost) {
		// It could not be: without a lease for the rest the claim ends now.
		t.s.c.log.Warn("a claim is released before its MinHold", t.fields(zap.Error(err))...)
		err = t.drop(ctx, nil)
		t.s.c.countRelease(t, err)
		return err
	}
	if err != nil {
		t.back()
		t.lose(ReasonSuperseded, nil)
		return t.lost()
	}
	t.finish(ErrReleased)
	t.s.c.countRelease(t, nil)
	return nil
}

// rehome puts the key, under its guard, on a lease that nobody renews. The
// fence rises, so that whoever still writes under the old one is refused, and
// the key stays held until that lease lapses.
func (t *term) rehome(ctx context.Context, kind string, d time.Duration) error {
	c := t.s.c
	st := c.store
	value := holder{
		Claim: t.id, Owner: c.cfg.Owner, Instance: st.layout.instance, Since: t.since.Time().UTC(), Attempt: t.attempt, Kind: kind, Epoch: t.fence >> epochShift,
	}.encode()
	var lease clientv3.LeaseID
	unsure := false // whether a put may have been carried out
	for try := 0; ; try++ {
		err := func() error {
			if lease == 0 {
				callCtx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), st.timeout)
				defer cancel()
				st.requests.Add(1)
				resp, err := c.lease.Grant(callCtx, int64(seconds(d)/time.Second))
				if err != nil {
					return fmt.Errorf("granting a lease: %w", err)
				}
				lease = resp.ID
			}
			own := st.layout.own(t.key)
			resp, err := st.do(ctx, request{
				key:  t.key,
				cmps: t.guard()[:2], // whatever the epoch: it ends the term, not the holding
				then: []clientv3.Op{
					clientv3.OpPut(own, value, clientv3.WithLease(lease)),
					clientv3.OpDelete(st.layout.note(t.key)),
					t.unmail(),
				},
				els: []clientv3.Op{clientv3.OpGet(own)},
			})
			if err != nil {
				unsure = unsure || errors.Is(err, ErrUnknown)
				return err
			}
			if resp.Succeeded {
				return nil
			}
			kvs := resp.Responses[0].GetResponseRange().Kvs
			if len(kvs) > 0 && string(kvs[0].Value) == value || len(kvs) == 0 && unsure {
				return nil // done by a request before, and over already if it is gone
			}
			return &LostError{Token: t.token(), Reason: ReasonSuperseded}
		}()
		switch {
		case err == nil || errors.Is(err, ErrLost):
			return err
		case t.s.gone(ctx, err, true):
			return t.lost()
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			lease = 0 // the new lease was used up by tries
		case !isPassing(err):
			return err
		}
		if !backOff(ctx, try, t.s.dead) {
			return wire.WithCause(ctx, err)
		}
	}
}

// tooLong ends a term at its MaxHold. What ran under it may go on for all that
// is known, so that the key is re-homed, not freed.
func (t *term) tooLong() {
	t.s.mu.Lock()
	err := t.beginLocked()
	t.overdue = true
	t.s.mu.Unlock()
	if err == nil {
		t.s.c.zombie(t, ReasonMaxHold, nil)
	}
}

// zombie ends a term, in which a handler may still run, as lost for the reason.
func (c *Client) zombie(t *term, reason Reason, cause error) {
	c.addChore(&chore{s: t.s, claim: t.id, what: "re-homing the claim of a handler that goes on", do: func(ctx context.Context) error {
		err := t.rehome(ctx, kindZombie, t.s.lease.Load().ttl)
		if errors.Is(err, ErrLost) {
			return nil
		}
		return err
	}})
	t.back()
	t.lose(reason, cause)
}
