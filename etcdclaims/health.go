package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
)

const (
	// quietAfterOutage is the least time from one recovery in the log to the next
	// outage in it. So a connection that flaps does not flood the log.
	quietAfterOutage = time.Minute
	// probeEvery is the longest pause between two probes of an etcd that does not
	// answer.
	probeEvery = time.Second
	// namedKeys is how many keys a log line names.
	namedKeys = 8
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
	if c.open.Err() != nil {
		return c.healthNow(), ErrClosed
	}
	var err error
	if c.store.rewound.Load() != nil {
		err = c.store.ready(ctx)
	} else if c.store.lower.Load() != nil || !c.outage.servedWithin(time.Second) {
		err = c.readEpoch(ctx)
	}
	h := c.healthNow()
	switch {
	case !h.Since.IsZero():
		return h, unreachable(h.Since, h.LastError)
	case err != nil: // etcd refused, or the caller did not wait
		return h, &calledError{call: "check health", err: err}
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
	o := &c.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.declared {
		return nil
	}
	return unreachable(o.since, o.err)
}

func unreachable(since time.Time, err error) error {
	return fmt.Errorf("%w since %s: %w", ErrUnreachable, since.Format(time.RFC3339), err)
}

// healthNow is Health without I/O.
func (c *Client) healthNow() Health {
	c.outage.mu.Lock()
	h := Health{
		Reachable: c.outage.since.IsZero() && !c.outage.answered.IsZero(),
		Since:     c.outage.since, LastAnswer: c.outage.answered, LastError: c.outage.err,
	}
	c.outage.mu.Unlock()
	h.Claims, _ = c.atStake()
	h.Waiting = c.waiters.count()
	first := true
	for _, s := range c.liveSessions() {
		h.Sessions++
		if s.size() == 0 {
			continue
		}
		if left, _ := s.left(); first || left < h.Margin {
			h.Margin, first = max(left, 0), false
		}
	}
	return h
}

// atStake returns how many claims the client holds, and some of their keys.
func (c *Client) atStake() (claims int, keys []string) {
	return c.keys.some(namedKeys)
}

// readEpoch asks etcd for as little as possible, and learns of a restore by it.
func (c *Client) readEpoch(ctx context.Context) error {
	resp, err := c.store.Do(ctx, txn.Request{In: txn.Then(clientv3.OpGet(c.store.layout.epoch()))})
	if err != nil {
		return txn.Failed(err)
	}
	return c.store.learnEpoch(resp.Responses[0].GetResponseRange().Kvs, resp.Header.Revision)
}

// outage follows whether etcd answers.
//
// The first unanswered request makes etcd suspect, and starts a probe. If etcd
// answers nothing for as long as patience allows, the outage is declared: the
// log gets one warning. The first answer ends it, with one line more.
type outage struct {
	patience time.Duration

	mu       sync.Mutex
	answered time.Time // when etcd last answered
	served   time.Time // when it last carried out a transaction
	restored time.Time // when it last answered after it had not
	since    time.Time // when the first unanswered request was sent; zero: all were answered
	err      error     // of the last unanswered request
	declared bool
	logged   bool      // the log has the declared outage
	quiet    time.Time // no outage is logged before this
	unlogged int       // outages since the last one that was logged
	probing  bool
}

// patienceOf is how long etcd may leave everything unanswered before that is an
// outage: longer than an election, shorter than claims live.
func patienceOf(renew time.Duration) time.Duration { return min(renew, 5*time.Second) }

func (o *outage) serve() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.served = clock.Mono()
}

func (o *outage) servedWithin(d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since.IsZero() && !o.served.IsZero() && time.Since(o.served) < d
}

// endedWithin reports whether etcd has not answered within so long, and does again.
func (o *outage) endedWithin(d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.restored.IsZero() && time.Since(o.restored) < d
}

// answeredSince reports whether etcd answered something since t.
func (o *outage) answeredSince(t time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.answered.After(t)
}

// observe learns from the end of a request of the context, sent at t0, whether
// etcd answers.
func (c *Client) observe(ctx context.Context, t0 time.Time, err error) {
	switch answer(ctx, t0, err) {
	case gotAnswer:
		c.outage.recover(c)
	case noAnswer:
		c.doubts.Add(1)
		c.outage.fail(c, t0, err)
	}
}

// observeTxn is observe for a transaction, which needs a permission as well.
func (c *Client) observeTxn(ctx context.Context, t0 time.Time, err error) {
	c.observe(ctx, t0, err)
	if err == nil {
		c.outage.serve()
	}
}

type answerKind int

const (
	gotAnswer  answerKind = iota
	noAnswer              // etcd was asked and did not answer
	notWaited             // its caller left before etcd could be expected to answer
	leastAwait = time.Second
)

// answer judges how a request ended. An etcd without a leader answers nothing
// that matters.
func answer(ctx context.Context, t0 time.Time, err error) answerKind {
	if err == nil {
		return gotAnswer
	}
	if errors.Is(err, wire.ErrNoAnswer) || wire.IsNotSent(err) && ctx.Err() == nil {
		return noAnswer
	}
	switch wire.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded:
		if ctx.Err() != nil && (errors.Is(ctx.Err(), context.Canceled) || time.Since(t0) < leastAwait) {
			return notWaited
		}
		return noAnswer
	case codes.Unavailable:
		return noAnswer
	}
	return gotAnswer
}

// recover notes an answer.
func (o *outage) recover(c *Client) {
	now := clock.Mono()
	o.mu.Lock()
	o.answered = now
	if !o.since.IsZero() {
		o.restored = now
	}
	since, logged := o.since, o.logged
	o.since, o.err, o.declared, o.logged = time.Time{}, nil, false, false
	if logged {
		o.quiet = now.Add(quietAfterOutage)
	}
	o.mu.Unlock()
	if logged {
		claims, _ := c.atStake()
		c.log.Info("etcd reachable again", zap.String("instance", c.store.layout.instance),
			zap.Time("since", since), zap.Duration("outage", now.Sub(since)), zap.Int("claims", claims))
	}
}

// fail notes a request that was not answered.
func (o *outage) fail(c *Client, t0 time.Time, err error) {
	now := clock.Mono()
	o.mu.Lock()
	if o.answered.After(t0) {
		o.mu.Unlock()
		return // etcd answers others: one member hangs
	}
	if o.since.IsZero() {
		o.since = t0
	}
	// A request by clientv3 cannot say why there is no connection. One before it could.
	if wire.WhyUnconnected(o.err) == nil || wire.WhyUnconnected(err) != nil || !wire.CannotConnect(c.etcd) {
		o.err = err
	}
	if !o.declared && now.Sub(o.since) >= o.patience {
		o.declared = true
		o.unlogged++
	}
	var warn bool
	outages, since, err := o.unlogged, o.since, o.err
	if o.declared && !o.logged && !now.Before(o.quiet) {
		o.logged, o.unlogged, warn = true, 0, true
	}
	start := !o.probing
	o.probing = true
	o.mu.Unlock()
	if warn {
		claims, keys := c.atStake()
		fields := []zap.Field{
			zap.String("instance", c.store.layout.instance), zap.Time("since", since), zap.Error(err),
			zap.Int("sessions", len(c.liveSessions())), zap.Int("claims", claims), zap.Strings("keys", keys),
		}
		if outages > 1 {
			fields = append(fields, zap.Int("outages", outages)) // those left out, and this
		}
		c.log.Warn("etcd unreachable", fields...)
	}
	if start {
		c.startProbe()
	}
}

func (c *Client) startProbe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.spawn(c.probe)
	}
}

// probe asks etcd about once a second until it answers any request of the client.
// By then gRPC waits up to two minutes before it connects again, so each probe
// ends that wait: a client must work again soon after etcd does.
func (c *Client) probe() {
	conn := c.etcd.ActiveConnection()
	for {
		pause := time.NewTimer(probeEvery/2 + rand.N(probeEvery/2))
		select {
		case <-pause.C:
		case <-c.io.Done():
			pause.Stop()
			return
		}
		if c.outage.ended() {
			return
		}
		if conn != nil {
			conn.ResetConnectBackoff()
		}
		ctx, cancel := context.WithTimeout(c.io, probeEvery)
		_ = c.readEpoch(ctx) // observed, as all requests are
		cancel()
	}
}

// ended ends the probe once etcd has answered.
func (o *outage) ended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.probing = false
	}
	return !o.probing
}
