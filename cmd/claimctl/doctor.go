package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/spf13/cobra"
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

// code is the exit code for the level.
func (l level) code() int {
	return map[level]int{levelWarning: 1, levelError: 2}[l]
}

// finding is the result of one check of doctor.
type finding struct {
	Check  string `json:"check"`
	Level  level  `json:"level"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

func (f finding) name() string    { return f.Check }
func (f finding) cells() []string { return []string{f.Check, string(f.Level), f.Detail, f.Remedy} }

const doctorText = `Check etcd and the claims in it, and print what to do about each finding.

doctor checks, in this order:

  endpoint     each member answers, has a leader, applies what it has logged
  versions     all members run the same etcd, without known faults
  space        share of the quota, and what a defragmentation would free
  clock        this host's clock against each member's, where etcd speaks HTTP
  members      those that are not among --endpoints, learners, even numbers
  alarms       NOSPACE and CORRUPT
  auth         what a login by password costs
  permissions  what the user may not do, for each feature of docs/permissions.md
  revision     whether etcd was restored, and its revision went back
  lease, watch a claim of doctor's own, and when its event came
  latency      up to 100 writes of nothing, and whether --ttl fits them
  epoch        the epoch of the claims
  claims       held keys, zombies, keys without a lease
  lines        people in line for a free key, or without a lease
  leases       leases that no key is attached to
  work         orphaned, dead and unreadable records
  queues       dead letters and pauses
  jobs         pauses, and groups that no process runs

It reads at most --limit claims, places in line and records, and writes one key,
which it deletes. The exit code is 0 if all is well, 1 if there are warnings, 2 if
there are errors.

doctor remembers the revision that it saw in the user's cache directory, to see it
go back. --fence also takes any fence from a log or a database to compare with.`

// doctor collects findings.
type doctor struct {
	*app
	etcd     *clientv3.Client
	findings []finding

	ttl      time.Duration // to judge the latency by
	limit    int           // of keys to read in each subtree
	features []string      // whose permissions must not lack; empty: warn of all
	fence    int64         // that was seen elsewhere
	memory   string        // file of the last revision; empty: none
}

func (a *app) doctorCommand() *cobra.Command {
	d := &doctor{app: a}
	cmd := &cobra.Command{
		Use: "doctor", GroupID: groupSee, Args: cobra.NoArgs, Short: "Check etcd and the claims in it", Long: doctorText,
		Example: `  claimctl doctor
  claimctl doctor --for acquire,wait,work       # other features' permissions do not matter
  claimctl doctor --fence 8812 --ttl 10s -o json | jq '.[] | select(.level != "ok")'`,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.DurationVar(&d.ttl, "ttl", etcdclaims.DefaultTTL, "lease time of the claims, to judge the latency by")
	flags.IntVar(&d.limit, "limit", 5000, "how many claims, places in line, leases and records to read at most")
	flags.StringSliceVar(&d.features, "for", nil, "features whose permissions must not lack: "+strings.Join(featureNames(), ", "))
	flags.Int64Var(&d.fence, "fence", 0, "a fence that was seen in a log or a database: an error if etcd is behind it")
	flags.StringVar(&d.memory, "memory", defaultMemory(), "file that remembers etcd's revision for the next run (empty: none)")
	complete(cmd, "for", featureNames()...)
	return cmd
}

func (d *doctor) run(ctx context.Context) error {
	for _, name := range d.features {
		if !slices.Contains(featureNames(), name) {
			return usageError("--for %q is not one of %s", name, strings.Join(featureNames(), ", "))
		}
	}
	if d.limit < 1 || d.ttl <= 0 || d.fence < 0 {
		return usageError("doctor: --limit and --ttl must be positive, --fence must not be negative")
	}
	begun := time.Now()
	etcd, err := d.dial()
	if errors.Is(err, rpctypes.ErrAuthFailed) || err != nil && isUnreachable(err) { // a login needs etcd
		d.add(levelError, "auth", "check --user and the endpoints", "cannot log in: %v", err)
	} else if err != nil {
		return err
	} else {
		d.etcd = etcd
		defer func() { _ = etcd.Close() }() // all of it was read
		d.authentication(time.Since(begun))
		d.examine(ctx)
	}
	if err := d.print(); err != nil {
		return err
	}
	if code := d.verdict(); code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// print lists the findings. In the table what to do has a line of its own: it is
// long, and there to be copied.
func (d *doctor) print() error {
	if d.format != formatTable {
		return printList(d.app, nil, sequence(d.findings))
	}
	var rows []finding
	table := tabwriter.NewWriter(d.out, 0, 8, 2, ' ', 0)
	line(table, []string{"CHECK", "RESULT", "DETAIL"})
	for _, f := range d.findings {
		line(table, f.cells()[:3])
		if f.Remedy != "" {
			rows = append(rows, f)
		}
	}
	if err := table.Flush(); err != nil || len(rows) == 0 {
		return err
	}
	_, err := fmt.Fprintln(d.out, "\nWhat to do:")
	for _, f := range rows {
		_, err = fmt.Fprintf(d.out, "  %s: %s\n    %s\n", f.Check, clean(f.Detail), clean(f.Remedy))
	}
	return err
}

// verdict is the exit code for the findings.
func (d *doctor) verdict() int {
	code := 0
	for _, f := range d.findings {
		code = max(code, f.Level.code())
	}
	return code
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
	d.members(ctx)
	d.alarms(ctx)
	d.permissions(ctx)
	d.revision(ctx)
	logged := &warnings{}
	claims, err := etcdclaims.New(d.etcd, etcdclaims.Config{Prefix: d.prefix, Owner: d.label(), Logger: logged.logger()})
	if err != nil {
		d.add(levelError, "claims", "see claimctl --help", "%v", err)
		return
	}
	if d.claimOne(ctx, claims) {
		d.latency(ctx, claims)
	}
	d.survey(ctx, claims)
	d.services(ctx, claims)
	closing, cancel := context.WithTimeout(context.Background(), d.commandTimeout)
	defer cancel()
	if err := claims.Close(closing); err != nil {
		d.add(levelWarning, "claims", "none: what is left ends with its lease", "closing: %v", err)
	}
	for _, w := range logged.all() {
		if !strings.Contains(w, "lacks a fix") { // said of each member
			d.add(levelWarning, "client", "see the log lines in docs/operations.md", "%s", w)
		}
	}
}

// authentication judges the kind of login, which took as long as dialing.
func (d *doctor) authentication(took time.Duration) {
	switch {
	case d.user != "":
		d.add(levelWarning, "auth", "use client certificates with common names (docs/operations.md)",
			"by password: a login took %s, and each costs etcd a bcrypt", took.Round(time.Millisecond))
	case d.cert != "":
		d.ok("auth", "by client certificate")
	}
}
