// Package outage follows whether etcd answers a client. It logs an outage with what that hits, asks etcd
// until it answers again, and names the outage in the errors of calls.
package outage

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
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

// Config is what an Outage knows of the client.
type Config struct {
	Etcd     *clientv3.Client
	Log      *zap.Logger
	Instance string
	// Patience is how long etcd may leave everything unanswered before that is an outage; see PatienceOf.
	Patience time.Duration
	// AtStake returns what an outage hits, with at most so many keys.
	AtStake func(keys int) Stake
	// Unanswered is called for each request that was not answered.
	Unanswered func()
	// Passing reports whether what failed may succeed when it is tried again.
	Passing func(error) bool
	// Probe sends a request, the end of which is observed.
	Probe func(context.Context)
	// Go runs f on a goroutine of the client, unless that is closed. The context of f ends with the client.
	Go func(f func(context.Context)) bool
}

// Stake is what an outage hits.
type Stake struct {
	Sessions, Claims int
	Keys             []string // some of those that are claimed
}

// PatienceOf is how long etcd may leave everything unanswered before that is an
// outage: longer than an election, shorter than claims live.
func PatienceOf(renew time.Duration) time.Duration { return min(renew, 5*time.Second) }

// Outage follows whether etcd answers.
//
// The first unanswered request makes etcd suspect, and starts a probe. If etcd
// answers nothing for as long as Patience allows, the outage is declared: the
// log gets one warning, and another each minute. The first answer ends it, with one line more.
//
// The zero Outage is that of a client without etcd, which observes nothing.
type Outage struct {
	cfg   Config
	calls calls // that may wait for etcd

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

// New returns an Outage that has observed nothing yet.
func New(cfg Config) *Outage { return &Outage{cfg: cfg} }

// State is what was observed of etcd.
type State struct {
	LastAnswer time.Time // zero if there was none
	Since      time.Time // when the first unanswered request was sent; zero: all were answered
	Err        error     // of the last unanswered request
	Declared   bool      // it is an outage
}

// State returns what was observed so far.
func (o *Outage) State() State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return State{LastAnswer: o.answered, Since: o.since, Err: o.err, Declared: o.declared}
}

// ServedWithin reports whether etcd has carried out a transaction within so long, and answers.
func (o *Outage) ServedWithin(d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since.IsZero() && !o.served.IsZero() && time.Since(o.served) < d
}

// EndedWithin reports whether etcd has not answered within so long, and does again.
func (o *Outage) EndedWithin(d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.restored.IsZero() && time.Since(o.restored) < d
}

// AnsweredSince reports whether etcd answered something since t.
func (o *Outage) AnsweredSince(t time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.answered.After(t)
}

// Await lists a call that may have to wait for etcd, until done is called. The report of an outage
// names what the call is for, such as a key.
func (o *Outage) Await(what string) (done func()) { return o.calls.await(what) }

// Observe learns from the end of a request of the context, sent at t0, whether
// etcd answers.
func (o *Outage) Observe(ctx context.Context, t0 time.Time, err error) {
	switch answer(ctx, t0, err) {
	case gotAnswer:
		o.recover()
	case noAnswer:
		o.cfg.Unanswered()
		o.fail(t0, err)
	}
}

// ObserveTxn is Observe for a transaction, which needs a permission as well.
func (o *Outage) ObserveTxn(ctx context.Context, t0 time.Time, err error) {
	o.Observe(ctx, t0, err)
	if err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.served = clock.Mono()
	}
}

// recover notes an answer.
func (o *Outage) recover() {
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
		waiting, _ := o.calls.waiting(0)
		o.cfg.Log.Info("etcd reachable again", zap.String("instance", o.cfg.Instance),
			zap.Time("since", since), zap.Duration("outage", now.Sub(since)),
			zap.Int("claims", o.cfg.AtStake(0).Claims), zap.Int("waiting", waiting))
	}
}

// fail notes a request that was not answered.
func (o *Outage) fail(t0 time.Time, err error) {
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
	if txn.WhyUnconnected(o.err) == nil || txn.WhyUnconnected(err) != nil || !txn.CannotConnect(o.cfg.Etcd) {
		o.err = err
	}
	if !o.declared && now.Sub(o.since) >= o.cfg.Patience {
		o.declared, o.from = true, now
		o.unlogged++
	}
	var event string
	outages, since, err := o.unlogged, o.since, o.err
	// The probe finds out why there is no connection.
	unexplained := txn.WhyUnconnected(o.err) == nil && txn.CannotConnect(o.cfg.Etcd) && now.Sub(o.from) < 2*probeEvery
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
		o.log(event, outages, since, err)
	}
	if start {
		o.cfg.Go(o.probe)
	}
}

// log reports the outage with what it hits.
func (o *Outage) log(event string, outages int, since time.Time, err error) {
	stake := o.cfg.AtStake(namedKeys)
	waiting, waitingFor := o.calls.waiting(namedKeys)
	fields := []zap.Field{
		zap.String("instance", o.cfg.Instance), zap.Time("since", since), zap.Strings("endpoints", o.cfg.Etcd.Endpoints()), zap.Error(err),
		zap.Int("sessions", stake.Sessions), zap.Int("claims", stake.Claims), zap.Strings("keys", stake.Keys),
		zap.Int("waiting", waiting), zap.Strings("waitingFor", waitingFor),
	}
	if outages > 1 {
		fields = append(fields, zap.Int("outages", outages)) // those left out, and this
	}
	o.cfg.Log.Warn(event, fields...)
}

// probe asks etcd about once a second until it answers any request of the client.
// By then gRPC waits up to two minutes before it connects again, so each probe
// ends that wait: a client must work again soon after etcd does.
func (o *Outage) probe(io context.Context) {
	conn := o.cfg.Etcd.ActiveConnection()
	for {
		pause := time.NewTimer(probeEvery/2 + rand.N(probeEvery/2))
		select {
		case <-pause.C:
		case <-io.Done():
			pause.Stop()
			return
		}
		if o.ended() {
			return
		}
		if conn != nil {
			conn.ResetConnectBackoff()
		}
		ctx, cancel := context.WithTimeout(io, probeEvery)
		o.cfg.Probe(ctx)
		cancel()
	}
}

// ended ends the probe once etcd has answered.
func (o *Outage) ended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.probing = false
	}
	return !o.probing
}
