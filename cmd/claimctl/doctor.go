package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// level is how bad a finding is.
type level string

const (
	levelOK      level = "ok"
	levelWarning level = "warning"
	levelError   level = "error"
)

// finding is the result of one check of doctor.
type finding struct {
	Check  string `json:"check"`
	Level  level  `json:"level"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

func (f finding) name() string    { return f.Check }
func (f finding) cells() []string { return []string{f.Check, string(f.Level), f.Detail, f.Remedy} }

const doctorText = `Check etcd and the claims in it, and say what to do about each finding.

doctor asks every endpoint for its version and alarms, probes the permissions of
each subtree without a write, claims and releases a key of its own to time a write,
a lease and the delay of watches, and looks for orphans, zombies and keys without a
lease.

The exit code is 0 if all is well, 1 if there are warnings, 2 if there are errors.`

// doctor collects findings.
type doctor struct {
	*app
	etcd     *clientv3.Client
	findings []finding
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", GroupID: groupSee, Args: cobra.NoArgs, Short: "Check etcd and the claims in it", Long: doctorText,
		RunE: func(cmd *cobra.Command, _ []string) error {
			etcd, err := a.dial()
			if err != nil {
				return err
			}
			defer func() { _ = etcd.Close() }() // all of it was looked at
			d := &doctor{app: a, etcd: etcd}
			d.examine(cmd.Context())
			if err := printList(a, []string{"CHECK", "RESULT", "DETAIL", "WHAT TO DO"}, sequence(d.findings)); err != nil {
				return err
			}
			code := 0
			for _, f := range d.findings {
				switch f.Level {
				case levelWarning:
					code = max(code, 1)
				case levelError:
					code = 2
				}
			}
			if code != 0 {
				return &exitError{code: code}
			}
			return nil
		},
	}
}

func (d *doctor) add(l level, check, remedy, format string, args ...any) {
	d.findings = append(d.findings, finding{Check: check, Level: l, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (d *doctor) ok(check, format string, args ...any) { d.add(levelOK, check, "", format, args...) }

// bounded is the time that one check may take.
func (d *doctor) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(clientv3.WithRequireLeader(ctx), d.commandTimeout)
}

func (d *doctor) examine(ctx context.Context) {
	if !d.endpoints(ctx) {
		return // all else would say the same
	}
	d.alarms(ctx)
	d.authentication(ctx)
	d.permissions(ctx)
	d.claims(ctx)
}

// endpoints asks each member how it is, and reports whether one answers.
func (d *doctor) endpoints(ctx context.Context) bool {
	versions := map[string]bool{}
	for _, endpoint := range d.etcd.Endpoints() {
		check := "endpoint " + endpoint
		status, took, err := d.status(ctx, endpoint)
		switch {
		case errors.Is(err, rpctypes.ErrPermissionDenied):
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
		versions[status.Version] = true
		d.space(check, status)
		d.clock(ctx, endpoint)
	}
	if len(versions) > 1 {
		d.add(levelWarning, "versions", "finish the upgrade", "the members run %d versions of etcd", len(versions))
	}
	return len(versions) > 0
}

func (d *doctor) status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	begun := time.Now()
	status, err := d.etcd.Status(ctx, endpoint)
	return status, time.Since(begun), err
}

// space judges the size of a member's database.
func (d *doctor) space(check string, status *clientv3.StatusResponse) {
	const mib = 1 << 20
	if quota := status.DbSizeQuota; quota > 0 && status.DbSize > quota*8/10 {
		d.add(levelWarning, check, "compact and defragment etcd, or raise --quota-backend-bytes",
			"its database has %d MiB, the quota is %d MiB: when it is full all claims are lost", status.DbSize/mib, quota/mib)
	}
	if status.DbSize > 512*mib && status.DbSizeInUse < status.DbSize/2 {
		d.add(levelWarning, check, "defragment the member", "its database has %d MiB, of which %d MiB are in use", status.DbSize/mib, status.DbSizeInUse/mib)
	}
}

func (d *doctor) alarms(ctx context.Context) {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	resp, err := d.etcd.AlarmList(ctx)
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return // the write below shows what matters
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
			remedy = "compact and defragment etcd, then: etcdctl alarm disarm"
		case pb.AlarmType_CORRUPT:
			remedy = "take the member out of the cluster and let it join again without data"
		}
		d.add(levelError, "alarms", remedy, "member %x has the alarm %s", alarm.MemberID, alarm.Alarm)
	}
}

// authentication warns of passwords.
func (d *doctor) authentication(context.Context) {
	if d.user != "" {
		d.add(levelWarning, "authentication", "use client certificates with common names", "by password: each login costs etcd a bcrypt of some 50 ms")
	}
}

// permissions probes each subtree. The write is part of a branch that is never
// taken, but whose permissions etcd checks.
func (d *doctor) permissions(ctx context.Context) {
	prefix := fallback(d.prefix, etcdclaims.DefaultPrefix)
	denied := 0
	for _, subtree := range []string{"own/", "note/", "wait/", "session/", "void/", "work/", "lock/", "sched/", "queue/", "epoch"} {
		key := prefix + subtree
		if subtree != "epoch" {
			key += "claimctl-doctor-probe"
		}
		probe := func(then clientv3.Op) error {
			ctx, cancel := d.bounded(ctx)
			defer cancel()
			_, err := d.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "<", 0)).Then(then).Commit()
			return err
		}
		for what, op := range map[string]clientv3.Op{"read": clientv3.OpGet(key), "write": clientv3.OpPut(key, "")} {
			switch err := probe(op); {
			case errors.Is(err, rpctypes.ErrPermissionDenied) && subtree == "epoch" && what == "write":
				// only RaiseEpoch needs it
			case errors.Is(err, rpctypes.ErrPermissionDenied):
				denied++
				d.add(levelWarning, "permissions", fmt.Sprintf("if the feature is used (docs/permissions.md): etcdctl role grant-permission ROLE --prefix=true readwrite %s%s", prefix, subtree),
					"may not %s %s%s", what, prefix, subtree)
			case err != nil && !errors.Is(err, rpctypes.ErrNoSpace):
				d.add(levelError, "permissions", "see the endpoints", "cannot probe %s%s: %v", prefix, subtree, err)
				return
			}
		}
	}
	if denied == 0 {
		d.ok("permissions", "reads and writes %s", prefix)
	}
}

// claims takes and releases a claim, and looks at those of others.
func (d *doctor) claims(ctx context.Context) {
	warnings := &warnings{}
	claims, err := etcdclaims.New(d.etcd, etcdclaims.Config{Prefix: d.prefix, Owner: d.label(), Logger: warnings.logger()})
	if err != nil {
		d.add(levelError, "claims", "see claimctl --help", "%v", err)
		return
	}
	d.claimOne(ctx, claims)
	d.survey(ctx, claims)
	closing, cancel := context.WithTimeout(context.Background(), d.commandTimeout)
	defer cancel()
	if err := claims.Close(closing); err != nil {
		d.add(levelWarning, "claims", "none: what is left ends with its lease", "closing: %v", err)
	}
	for _, w := range warnings.all() {
		d.add(levelWarning, "client", "see docs/operations.md", "%s", w)
	}
}

// claimOne times a lease, a write and a watch.
func (d *doctor) claimOne(ctx context.Context, claims *etcdclaims.Client) {
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
	case <-ctx.Done():
		d.add(levelError, "watch", "see the endpoints and the permissions", "a watch was not accepted within %s", d.commandTimeout)
		return
	}
	begun := time.Now()
	claim, err := claims.TryAcquire(ctx, key)
	if err != nil {
		d.add(levelError, "write", "see the alarms and the permissions: claims cannot be acquired", "cannot claim a key: %v", err)
		return
	}
	written := time.Now()
	l, remedy := levelOK, ""
	if took := written.Sub(begun); took > time.Second {
		l, remedy = levelWarning, "look at etcd's disks (etcd_disk_wal_fsync_duration_seconds) and at the network"
	}
	d.add(l, "write", remedy, "a lease and a claim took %s, fence %d", written.Sub(begun).Round(100*time.Microsecond), claim.Fence())
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
}
