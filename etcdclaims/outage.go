package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
)

const (
	// quietAfterOutage is the least time from one recovery in the log to the next
	// outage in it. So a connection that flaps does not flood the log.
	quietAfterOutage = time.Minute
	// outageAgain is how often the log has an outage that lasts.
	outageAgain = time.Minute
	// probeEvery is the longest pause between two probes of an etcd that does not
	// answer.
	probeEvery = time.Second
	// namedKeys is how many keys a log line names.
	namedKeys = 8
)

// atStake returns how many claims the client holds, and some of their keys.
func (c *Client) atStake() (claims int, keys []string) {
	return c.keys.some(namedKeys)
}

// outage follows whether etcd answers.
//
// The first unanswered request makes etcd suspect, and starts a probe. If etcd
// answers nothing for as long as patience allows, the outage is declared: the
// log gets one warning, and another each minute. The first answer ends it, with one line more.
type outage struct {
	patience time.Duration

	mu       sync.Mutex
	answered time.Time // when etcd last answered
	served   time.Time // when it last carried out a transaction
	restored time.Time // when it last answered after it had not
	since    time.Time // when the first unanswered request was sent; zero: all were answered
	err      error     // of the last unanswered request
	declared bool
	from     time.Time // when it was declared
	logged   bool      // the log has the declared outage
	quiet    time.Time // no outage is logged before this
	told     time.Time // when the log last had the declared outage
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
		waiting, _ := c.calls.waiting(0)
		c.log.Info("etcd reachable again", zap.String("instance", c.store.layout.Instance),
			zap.Time("since", since), zap.Duration("outage", now.Sub(since)), zap.Int("claims", claims), zap.Int("waiting", waiting))
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
		o.declared, o.from = true, now
		o.unlogged++
	}
	var event string
	outages, since, err := o.unlogged, o.since, o.err
	// The probe finds out why there is no connection.
	unexplained := wire.WhyUnconnected(o.err) == nil && wire.CannotConnect(c.etcd) && now.Sub(o.from) < 2*probeEvery
	switch {
	case unexplained:
	case o.declared && !o.logged && !now.Before(o.quiet):
		event, o.logged, o.unlogged, o.told = "etcd unreachable", true, 0, now
	case o.logged && now.Sub(o.told) >= outageAgain: // at the next probe, so no timer is needed
		event, o.told = "etcd still unreachable", now
	}
	start := !o.probing
	o.probing = true
	o.mu.Unlock()
	if event != "" {
		claims, keys := c.atStake()
		waiting, waitingFor := c.calls.waiting(namedKeys)
		fields := []zap.Field{
			zap.String("instance", c.store.layout.Instance), zap.Time("since", since), zap.Strings("endpoints", c.etcd.Endpoints()), zap.Error(err),
			zap.Int("sessions", len(c.liveSessions())), zap.Int("claims", claims), zap.Strings("keys", keys),
			zap.Int("waiting", waiting), zap.Strings("waitingFor", waitingFor),
		}
		if outages > 1 {
			fields = append(fields, zap.Int("outages", outages)) // those left out, and this
		}
		c.log.Warn(event, fields...)
	}
	if start {
		c.startProbe()
	}
}

// explain adds to the error of a call, if etcd did not answer it and answers nothing else
// either, which endpoints that are and why there is no connection.
func (o *outage) explain(c *Client, err error) error {
	if !mayBeAway(err) {
		return err
	}
	o.mu.Lock()
	since, last := o.since, o.err
	o.mu.Unlock()
	if since.IsZero() {
		return err
	}
	why := ""
	if u := wire.WhyUnconnected(last); u != nil && wire.WhyUnconnected(err) == nil {
		why = ": " + u.Error()
	}
	return &awayError{err, fmt.Sprintf("; no answer from %s since %s%s: check the endpoints, and that etcd runs there",
		strings.Join(c.etcd.Endpoints(), ", "), since.Format(time.TimeOnly), why)}
}

// mayBeAway reports whether an error can be due to an outage that it does not name yet.
func mayBeAway(err error) bool {
	switch {
	case err == nil, errors.As(err, new(*awayError)), errors.Is(err, context.Canceled), errors.Is(err, ErrClosed):
		return false
	}
	return isPassing(txn.Failed(err)) || errors.Is(err, context.DeadlineExceeded)
}

// awayError is the error of a call that etcd has not answered, as it answers nothing else.
type awayError struct {
	error
	away string
}

func (e *awayError) Error() string { return e.error.Error() + e.away }

func (e *awayError) Unwrap() error { return e.error }

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
