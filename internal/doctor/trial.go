package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// mayClaim reports whether a feature in use claims keys. Otherwise the role need not be able to.
func (e *Examination) mayClaim() bool { return len(e.featuresThat("write", "session/")) > 0 }

// claimOne finds out what only writes can show: a lease and a claim of a client of its own, a
// watch, and a renewal. It writes one key, which it deletes.
func (e *Examination) claimOne(ctx context.Context) {
	if !e.mayClaim() {
		return
	}
	warnings, logged := observer.New(zap.WarnLevel)
	claims, err := etcdclaims.New(e.etcd(), etcdclaims.Config{
		Prefix: e.Claims.Prefix(), Owner: e.Claims.Owner(), Logger: zap.New(warnings),
	})
	if err != nil {
		e.Add(Error, "write", "see the configuration of the client", "%v", err)
		return
	}
	e.tryClaim(ctx, claims)
	left := time.Second / 2 // at least, to close the client
	if end, ok := ctx.Deadline(); ok {
		left = max(left, time.Until(end))
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- claims.Close(closing) }() // Close may take longer than its context if etcd does not answer
	select {
	case err = <-closed:
	case <-closing.Done():
		err = closing.Err()
	}
	e.failed(Warning, "write", "what is left ends with its lease; closing", err)
	for _, w := range logged.All() { // such as of a second cluster behind one address
		if !strings.Contains(w.Message, "lacks a fix") { // versions reports it for each member
			f := e.Add(Warning, "client", "see the log lines in docs/operations.md", "%s %v", w.Message, w.ContextMap())
			for _, field := range w.Context {
				if err, ok := field.Interface.(error); ok {
					f.trouble = troubleOf(err)
				}
			}
			if strings.HasPrefix(w.Message, "etcd unreachable") {
				f.trouble = unanswered
			}
		}
	}
}

// tryClaim times the claim, and all that a claim needs.
func (e *Examination) tryClaim(parent context.Context, claims *etcdclaims.Client) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(parent), e.Patience/2) // a release takes up to 2.5 s
	defer cancel()
	key := "claimctl-doctor/" + rand.Text()
	begun := clock.Mono()
	watch := e.etcd().Watch(ctx, claims.OwnKey(key), clientv3.WithCreatedNotify())
	heard := func() bool { // first that etcd has created the watch, and then the event
		for {
			select {
			case resp, ok := <-watch:
				if !ok || resp.Created || len(resp.Events) > 0 {
					return ok
				}
			case <-ctx.Done():
				return false
			}
		}
	}
	switch {
	case heard():
	case ctx.Err() == nil:
		e.Add(Error, "watch", "see the permissions", "a watch was refused").trouble = denied
		return
	default:
		e.Add(Error, "watch", "look at proxies between etcd and this host",
			"a watch was not accepted within %s", round(time.Since(begun))).trouble = unanswered
		return
	}
	begun = clock.Mono()
	claim, err := claims.TryAcquire(ctx, key)
	if err != nil {
		f := e.Add(Error, "write", "look at the log of etcd: no claim can be acquired", "cannot claim a key: %v", err)
		f.trouble = troubleOf(err)
		return
	}
	written := clock.Mono()
	e.well("write", "a lease and a claim took %s, fence %d", written.Sub(begun).Round(100*time.Microsecond), claim.Fence())
	switch came, delay := heard(), time.Since(written); {
	case came && delay > time.Second:
		e.Add(Warning, "watch", "look at the load of etcd, and at proxies between it and this host",
			"an event came %s after its write", delay.Round(time.Millisecond))
	case came:
		e.well("watch", "an event came %s after its write", delay.Round(100*time.Microsecond))
	case ctx.Err() == nil:
		e.Add(Error, "watch", "see the permissions", "the watch ended")
	default:
		e.Add(Error, "watch", "look at proxies between etcd and this host; claims then notice losses late",
			"an event did not come within %s", round(delay))
	}
	e.renewal(ctx, claim)
	e.failed(Warning, "write", "the key ends with its lease; cannot release it", claim.Release(parent))
}

// renewal times a renewal of the claim's lease. It is a stream, so a proxy can refuse it
// that lets all else pass. A client learns that only when its first claims are lost.
func (e *Examination) renewal(ctx context.Context, claim *etcdclaims.Claim) {
	begun := clock.Mono()
	if err := claim.Renew(ctx); err != nil {
		f := e.Add(Error, "renewal", "connect to the members and not to a proxy, or see \"Proxies and wrappers\" in docs/operations.md",
			"a lease cannot be renewed, so that each claim is lost at its first deadline: %v", err)
		f.trouble = troubleOf(err)
		return
	}
	e.well("renewal", "a renewal took %s", time.Since(begun).Round(100*time.Microsecond))
}

// A session renews after a third of the TTL, gives each request a sixth of it, and stops
// handlers at 0.69 TTL. A tenth of what a request may take is comfortable: then one that takes
// ten times as long as the 99th percentile still arrives.
const (
	comfort = 60 // TTLs that are so many times as long as a write are never in danger
	danger  = 6  // a request may take this part of the TTL
)

// latency times up to 100 writes that go through etcd's log and its disk as all do, but change
// nothing: deletions of a key that does not exist. It judges whether the TTL leaves room for them.
func (e *Examination) latency(ctx context.Context) {
	if !e.mayClaim() {
		return
	}
	absent := e.Claims.OwnKey("claimctl-doctor/" + rand.Text())
	var took []time.Duration
	for end := clock.Mono().Add(2 * time.Second); len(took) == 0 || len(took) < 100 && clock.Mono().Before(end); {
		begun := clock.Mono()
		if _, err := e.etcd().Delete(ctx, absent); err != nil {
			if len(took) == 0 {
				e.failed(Error, "latency", "cannot be measured", err)
				return
			}
			break
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	ttl := cmp.Or(e.TTL, e.shortestTTL(ctx), etcdclaims.DefaultTTL)
	level, remedy, text := fit(ttl, p99)
	e.Add(level, "latency", remedy, "of %s the median took %s, the 99th percentile %s; %s",
		errtext.Count(len(took), "write", "writes"), round(took[len(took)/2]), round(p99), text)
}

// fit judges a TTL by the 99th percentile of writes.
func fit(ttl, p99 time.Duration) (l Level, remedy, text string) {
	least := max((p99*comfort + time.Second - 1).Truncate(time.Second), etcdclaims.MinTTL)
	const disks = "look at etcd's disks (etcd_disk_wal_fsync_duration_seconds) and at the network"
	switch {
	case p99*danger > ttl:
		remedy = fmt.Sprintf("set Config.TTL to %s at least, and %s", least, disks)
		return Error, remedy, fmt.Sprintf("with a TTL of %s claims are lost", ttl)
	case ttl < least:
		return Warning, fmt.Sprintf("set Config.TTL to %s, or %s", least, disks), fmt.Sprintf("a TTL of %s is short for that", ttl)
	}
	return OK, "", fmt.Sprintf("a TTL of %s fits, down to %s", ttl, least)
}
