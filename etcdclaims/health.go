package etcdclaims

import (
	"context"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/outage"
)

// Health is the state of the connection to etcd, and of the claims that depend on it;
// see [Client.Health].
type Health struct {
	// Reachable reports whether etcd answered the client's last request. It is
	// false until the first answer.
	Reachable bool
	// Since is when the first request was sent that etcd has left unanswered.
	// Zero while etcd is reachable.
	Since time.Time
	// LastAnswer is when etcd last answered. Zero if it never did.
	LastAnswer time.Time
	// LastError is the error of the last request that was not answered. Nil while
	// etcd is reachable.
	LastError error
	// Sessions is how many leases the client has for its claims. Those of Manual claims
	// count, although the client does not renew them.
	Sessions int
	// Claims is how many claims the client holds.
	Claims int
	// Waiting is how many calls wait in line for a key.
	Waiting int
	// Margin is how long until the first of the client's claims expires locally
	// unless it is renewed. Zero if there are no claims.
	Margin time.Duration
}

// Health reports whether the client can reach etcd and may claim keys. Use it
// for readiness probes and for operators. The returned Health is valid even
// with an error.
//
// Health does one linearizable read, bounded by ctx and by a sixth of
// Config.TTL (1 s to 5 s). It does no I/O if etcd carried out a transaction of
// this client within the last second, unless the client has found that the epoch
// went back. [Client.Unreachable] never does I/O.
//
// The error matches:
//
//   - ErrUnreachable, with the error of the last request, if etcd does not
//     answer.
//   - ErrPermissionDenied, ErrRewound or ErrClosed.
//
// Health writes nothing. So it returns no error while etcd answers but refuses writes, as
// it does when it is out of space.
//
// A passthrough client is always healthy.
func (c *Client) Health(ctx context.Context) (Health, error) {
	if err := c.refusal(); err != nil {
		return Health{}, err
	}
	if c.Passthrough() {
		return Health{Reachable: true}, nil
	}
	if c.life.Open.Err() != nil {
		return c.healthNow(), ErrClosed
	}
	var err error
	if c.store.HasRewound() {
		err = c.store.Ready(ctx)
	} else if c.store.EpochIsLower() || !c.outage.ServedWithin(time.Second) {
		err = c.store.ReadEpoch(ctx)
	}
	h := c.healthNow()
	switch {
	case !h.Since.IsZero():
		return h, unreachable(h.Since, h.LastError)
	case err != nil: // etcd refused, or the caller did not wait
		return h, errtext.CallOfAll("check health", err)
	}
	return h, nil
}

// Unreachable returns nil while etcd answers. During an outage it returns an
// error that matches ErrUnreachable, with the start of the outage and the
// error of the last request.
//
// An outage begins when etcd has answered no request for a third of Config.TTL
// (at most 5 s). It ends with the first answer. While the client has a
// session, or a caller waits for one, an outage is noticed within one TTL.
// [Client.Health] does not wait for that: it returns ErrUnreachable from the
// first unanswered request on.
//
// Unreachable does no I/O. It returns nil for a passthrough client.
func (c *Client) Unreachable() error {
	if !c.connects() {
		return c.refusal()
	}
	if now := c.outage.State(); now.Declared {
		return unreachable(now.Since, now.Err)
	}
	return nil
}

func unreachable(since time.Time, err error) error {
	return fmt.Errorf("%w since %s: %w", ErrUnreachable, since.Format(time.RFC3339), err)
}

// healthNow is Health without I/O.
func (c *Client) healthNow() Health {
	now := c.outage.State()
	h := Health{
		Reachable: now.Since.IsZero() && !now.LastAnswer.IsZero(),
		Since:     now.Since, LastAnswer: now.LastAnswer, LastError: now.Err,
		Claims: c.atStake(0).Claims, Waiting: c.line.Waiters.Count(),
	}
	first := true
	for _, s := range c.pool.Live() {
		h.Sessions++
		if s.Size() == 0 {
			continue
		}
		if left, _ := s.Left(); first || left < h.Margin {
			h.Margin, first = max(left, 0), false
		}
	}
	return h
}

// atStake returns what an outage hits.
func (c *Client) atStake(most int) outage.Stake {
	claims, keys := c.terms.Keys.Some(most)
	return outage.Stake{Sessions: len(c.pool.Live()), Claims: claims, Keys: keys}
}
