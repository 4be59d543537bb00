package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/serverfault"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// endpoints asks each member how it is, and reports whether one answers.
func (d *doctor) endpoints(ctx context.Context) bool {
	versions := map[string]bool{}
	for _, endpoint := range d.etcd.Endpoints() {
		check := "endpoint " + endpoint
		status, took, err := d.status(ctx, endpoint)
		switch {
		case isDenied(err):
			d.add(levelWarning, check, "let the user of doctor have the role root to see it", "does not tell its status: %v", err)
			versions["unknown"] = true
			continue
		case err != nil:
			d.add(levelError, check, "start the member, or mend the network or the certificates between it and this host", "does not answer: %v", err)
			continue
		case status.Leader == 0:
			d.add(levelError, check, "bring back a majority of the members", "has no leader")
		default:
			d.ok(check, "etcd %s answers in %s", status.Version, took.Round(100*time.Microsecond))
		}
		if fault, fixedIn, err := serverfault.Of(status.Version); err == nil && fault != "" && !versions[status.Version] {
			d.add(levelWarning, "versions", "upgrade etcd to "+fixedIn, "etcd %s: %s", status.Version, fault)
		}
		versions[status.Version] = true
		d.progress(check, status)
		d.space(endpoint, status)
		d.clock(ctx, endpoint)
	}
	if len(versions) > 1 {
		d.add(levelWarning, "versions", "finish the upgrade", "the members run %d versions of etcd", len(versions))
	}
	return len(versions) > 0
}

func (d *doctor) status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, time.Duration, error) {
	begun := time.Now()
	status, err := d.statusOf(ctx, d.etcd, endpoint)
	return status, time.Since(begun), err
}

// statusOf asks one member how it is. It has the time to connect, since one that is
// down would take all there is.
func (a *app) statusOf(ctx context.Context, etcd *clientv3.Client, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, a.dialTimeout)
	defer cancel()
	return etcd.Status(ctx, endpoint)
}

// progress judges how far a member is behind its own log.
func (d *doctor) progress(check string, status *clientv3.StatusResponse) {
	const much = 1000 // etcd itself refuses requests at 5,000
	if behind := int64(status.RaftIndex) - int64(status.RaftAppliedIndex); behind > much {
		d.add(levelWarning, check, "look at the load and the disk of the member", "is %d entries behind its own log", behind)
	}
	for _, e := range status.Errors {
		if !strings.Contains(e, "NOSPACE") && !strings.Contains(e, "CORRUPT") { // see alarms
			d.add(levelError, check, "look at the log of the member", "%s", e)
		}
	}
}

// space judges the size of a member's database.
func (d *doctor) space(endpoint string, status *clientv3.StatusResponse) {
	const mib = 1 << 20
	quota := status.DbSizeQuota // etcd before 3.6 does not report it
	check, share, of := "space "+endpoint, int64(0), fmt.Sprintf("%d MiB, of a quota that etcd does not report", status.DbSize/mib)
	if quota > 0 {
		share = status.DbSize * 100 / quota
		of = fmt.Sprintf("%d%% of the quota of %d MiB", share, quota/mib)
	}
	switch {
	case share > 80:
		d.add(levelWarning, check, d.claimctl()+" space reclaim --yes (compacts and defragments), or raise --quota-backend-bytes; see \"etcd is out of space\" in docs/operations.md",
			"its database has %d MiB, %s: when it is full all claims are lost", status.DbSize/mib, of)
	case status.DbSize > 512*mib && status.DbSizeInUse < status.DbSize/2:
		d.add(levelWarning, check, "defragment the member: "+d.etcdctlAt(endpoint)+" defrag",
			"its database has %d MiB, of which %d MiB are in use", status.DbSize/mib, status.DbSizeInUse/mib)
	default:
		d.ok(check, "%s", of)
	}
}

// members compares the list of members with the endpoints.
func (d *doctor) members(ctx context.Context) {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	resp, err := d.etcd.MemberList(ctx)
	switch {
	case isDenied(err):
		return // it is for administrators
	case err != nil:
		d.add(levelWarning, "members", "see the endpoints", "cannot be listed: %v", err)
		return
	}
	var missing []string
	voters := 0
	for _, m := range resp.Members {
		switch {
		case m.Name == "":
			d.add(levelWarning, "members", fmt.Sprintf("start it, or remove it: %s member remove %x", d.etcdctl(), m.ID), "member %x has never started", m.ID)
		case m.IsLearner:
			d.add(levelWarning, "members", fmt.Sprintf("%s member promote %x", d.etcdctl(), m.ID)+", once it has caught up", "member %s is a learner", m.Name)
		}
		if !m.IsLearner {
			voters++
		}
		if len(m.ClientURLs) > 0 && !slices.ContainsFunc(m.ClientURLs, d.hasEndpoint) {
			missing = append(missing, m.Name+" ("+m.ClientURLs[0]+")")
		}
	}
	if voters%2 == 0 {
		d.add(levelWarning, "members", "add or remove one: an even number tolerates no more failures than one less", "there are %d", voters)
	}
	if len(missing) > 0 && len(resp.Members) > 1 {
		d.add(levelWarning, "members", "name every member in --endpoints and in the clients: a renewal then has a way around one that hangs",
			"not among the endpoints: %s", several(missing))
	}
	if voters%2 == 1 && (len(missing) == 0 || len(resp.Members) == 1) {
		d.ok("members", "%d, of which %d may fail", voters, (voters-1)/2)
	}
}

func (d *doctor) hasEndpoint(member string) bool {
	return slices.ContainsFunc(d.etcd.Endpoints(), func(e string) bool { return hostOf(e) == hostOf(member) })
}

// hostOf is the host and the port of an endpoint.
func hostOf(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		return u.Host
	}
	return endpoint
}

func (d *doctor) alarms(ctx context.Context) {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	resp, err := d.etcd.AlarmList(ctx)
	switch {
	case isDenied(err):
		return // the claim below shows what matters
	case err != nil:
		d.add(levelError, "alarms", "see the endpoints", "cannot be read: %v", err)
		return
	case len(resp.Alarms) == 0:
		d.ok("alarms", "none")
	}
	for _, alarm := range resp.Alarms {
		remedy := "see etcd's documentation of the alarm"
		switch alarm.Alarm {
		case pb.AlarmType_NOSPACE:
			remedy = d.claimctl() + " space reclaim --yes (compacts, defragments, disarms); see \"etcd is out of space\" in docs/operations.md"
		case pb.AlarmType_CORRUPT:
			remedy = "take the member out of the cluster and let it join again without data"
		}
		d.add(levelError, "alarms", remedy, "member %x has the alarm %s", alarm.MemberID, alarm.Alarm)
	}
}
