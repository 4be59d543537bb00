package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// claimOne times a lease, a write and a watch, and reports whether the write was
// made.
func (d *doctor) claimOne(ctx context.Context, claims *etcdclaims.Client) bool {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	key := "claimctl-doctor/" + rand.Text()
	watch := d.etcd.Watch(ctx, claims.OwnKey(key), clientv3.WithCreatedNotify())
	seen := make(chan time.Time, 1)
	created := make(chan struct{})
	go func() {
		defer close(seen)
		for resp := range watch {
			switch {
			case resp.Created:
				close(created)
			case len(resp.Events) > 0:
				seen <- time.Now()
				return
			}
		}
	}()
	select {
	case <-created:
	case <-seen:
		d.add(levelError, "watch", "see the permissions", "a watch was refused")
	case <-ctx.Done():
		d.add(levelError, "watch", "see the endpoints and the permissions", "a watch was not accepted within %s", d.commandTimeout)
		return false
	}
	begun := time.Now()
	claim, err := claims.TryAcquire(ctx, key)
	if err != nil {
		d.add(levelError, "write", "see the alarms and the permissions: claims cannot be acquired", "cannot claim a key: %v", err)
		return false
	}
	written := time.Now()
	d.ok("write", "a lease and a claim took %s, fence %d", written.Sub(begun).Round(100*time.Microsecond), claim.Fence())
	select {
	case t, ok := <-seen:
		switch delay := max(t.Sub(written), 0); {
		case !ok:
			d.add(levelError, "watch", "see the permissions", "the watch ended")
		case delay > time.Second:
			d.add(levelWarning, "watch", "look at the load of etcd, and at proxies between it and this host", "an event came %s after its write", delay.Round(time.Millisecond))
		default:
			d.ok("watch", "an event came %s after its write", delay.Round(100*time.Microsecond))
		}
	case <-ctx.Done():
		d.add(levelError, "watch", "look at proxies between etcd and this host; claims then notice losses late", "an event did not come within %s", d.commandTimeout)
	}
	if err := claim.Release(ctx); err != nil {
		d.add(levelWarning, "write", "none: the key ends with its lease", "cannot release the key: %v", err)
	}
	return true
}

// latency times writes, and judges whether the TTL leaves room for them.
func (d *doctor) latency(ctx context.Context, claims *etcdclaims.Client) {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	took, err := timeWrites(ctx, d.etcd, claims.OwnKey("claimctl-doctor/"+rand.Text()), 100, 2*time.Second)
	if len(took) == 0 {
		d.add(levelError, "latency", "see the endpoints and the permissions", "cannot be measured: %v", err)
		return
	}
	f := fitOf(d.ttl, quantile(took, 0.99))
	l, remedy := f.judge()
	d.add(l, "latency", remedy, "of %d writes the median took %s, the 99th percentile %s; %s",
		len(took), round(quantile(took, 0.5)), round(f.P99), f.text())
}

// timeWrites times writes that go through etcd's log and its disk as all do, but
// change nothing: deletions of a key that does not exist. It stops after n, or
// when the time is over, and returns what it has.
func timeWrites(ctx context.Context, etcd *clientv3.Client, absent string, n int, most time.Duration) ([]time.Duration, error) {
	var took []time.Duration
	for end := time.Now().Add(most); len(took) < n && time.Now().Before(end); {
		begun := time.Now()
		if _, err := etcd.Delete(ctx, absent); err != nil {
			return took, err
		}
		took = append(took, time.Since(begun))
	}
	return took, nil
}

// quantile returns a quantile of durations, 0 of none.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// fit compares a TTL with the time that a write takes.
//
// A session renews after a third of the TTL, gives each request a sixth of it, and
// stops handlers at 0.69 TTL. A tenth of what a request may take is comfortable:
// then one that takes ten times as long as the 99th percentile still arrives.
type fit struct {
	TTL   time.Duration
	P99   time.Duration
	Least time.Duration // TTL that fits
}

const (
	comfort = 60 // TTLs that are so many times as long as a write are never in danger
	danger  = 6  // a request may take this part of the TTL
)

func fitOf(ttl, p99 time.Duration) fit {
	least := (p99*comfort + time.Second - 1).Truncate(time.Second)
	return fit{TTL: ttl, P99: p99, Least: max(least, etcdclaims.MinTTL)}
}

func (f fit) judge() (l level, remedy string) {
	switch {
	case f.P99*danger > f.TTL:
		return levelError, fmt.Sprintf("set Config.TTL to %s at least, and look at etcd's disks (etcd_disk_wal_fsync_duration_seconds) and at the network", f.Least)
	case f.TTL < f.Least:
		return levelWarning, fmt.Sprintf("set Config.TTL to %s, or look at etcd's disks (etcd_disk_wal_fsync_duration_seconds) and at the network", f.Least)
	}
	return levelOK, ""
}

func (f fit) text() string {
	switch l, _ := f.judge(); l {
	case levelOK:
		return fmt.Sprintf("a TTL of %s fits, down to %s", f.TTL, f.Least)
	case levelWarning:
		return fmt.Sprintf("a TTL of %s is short for that", f.TTL)
	}
	return fmt.Sprintf("with a TTL of %s claims are lost", f.TTL)
}

// round keeps three digits or so of a duration.
func round(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d > 100*time.Millisecond:
		return d.Round(time.Millisecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(100 * time.Nanosecond)
}
