package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/sched/ical"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

// exitCodes are the exit codes for the levels.
var exitCodes = map[doctor.Level]int{doctor.Warning: 1, doctor.Error: 2}

const doctorText = `Check etcd and the claims in it, and print what to do about each finding.

doctor checks, in this order:

  endpoint     each member answers, has a leader, applies what it has logged
  certificate  when those of this client and of the members expire
  cluster      whether all endpoints belong to one
  versions     each member against the newest of them, and against known faults
  space        share of the quota, and what a defragmentation would free
  members      those that are not among --endpoints, learners, even numbers
  alarms       NOSPACE and CORRUPT
  auth         what a login by password costs
  epoch        the epoch of the claims
  revision     with --fence: whether etcd was restored, and its revision went back
  permissions  what the user may not do, for each feature of docs/permissions.md
  write, watch a claim of doctor's own, and when its event came
  renewal      whether the lease of that claim can be renewed
  latency      up to 100 writes of nothing, and whether --ttl fits them
  claims       held keys, zombies, keys without a lease
  lines        waiters in line for a free key, or without a lease
  sessions     those whose renewal is late
  work         orphaned, dead and unreadable records
  queues       dead letters and pauses
  jobs         pauses, and groups that no process runs

It reads at most --limit claims, places in line and records, and writes one key,
which it deletes. It writes none if --for names only features that claim no keys. The
exit code is 0 if all is well or there are notes, 1 if there are warnings, 2 if there
are errors.

--fence takes the greatest fence of a log or a database. If etcd is behind it, etcd was
restored and its revision went back. Mend that first: other findings, marked "after":
"revision" in JSON, may be consequences of it.`

// checkup is one run of doctor.
type checkup struct {
	*app
	doctor.Examination
}

func (a *app) doctorCommand() *cobra.Command {
	c := &checkup{app: a, Examination: doctor.Examination{Leases: 200, ICal: ical.ParseText}}
	cmd := &cobra.Command{
		Use: "doctor", GroupID: groupSee, Args: arguments(0, 0), Short: "Check etcd and the claims in it", Long: doctorText,
		Example: `  claimctl doctor
  claimctl doctor --for acquire,wait,work       # other features' permissions do not matter
  claimctl doctor --fence 8812 --ttl 10s -o json | jq '.[] | select(.level != "ok")'`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.DurationVar(&c.TTL, "ttl", etcdclaims.DefaultTTL, "lease time of the claims, to judge the latency by")
	flags.IntVar(&c.Limit, "limit", 5000, "how many claims, places in line and records to read at most")
	flags.StringSliceVar(&c.Features, "for", nil, "features whose permissions must not lack: "+strings.Join(doctor.FeatureNames(), ", "))
	flags.Int64Var(&c.Fence, "fence", 0, "a fence that was seen in a log or a database: an error if etcd is behind it")
	complete(cmd, "for", doctor.FeatureNames()...)
	return cmd
}

func (c *checkup) run(ctx context.Context) error {
	for _, name := range c.Features {
		if !slices.Contains(doctor.FeatureNames(), name) {
			return usageError("--for %q is not one of %s", name, strings.Join(doctor.FeatureNames(), ", "))
		}
	}
	if c.Limit < 1 || c.TTL <= 0 || c.Fence < 0 {
		return usageError("doctor: --limit and --ttl must be positive; --fence must not be negative")
	}
	if _, err := c.login(); err != nil { // a person's typing is not part of what a login takes
		return err
	}
	begun := time.Now()
	claims, end, err := c.client(etcdclaims.Config{})
	if errors.Is(err, rpctypes.ErrAuthFailed) || err != nil && isUnreachable(err) { // a login needs etcd
		c.Add(doctor.Error, "auth", "check --user and the endpoints", "cannot log in: %v", err)
	} else if err != nil {
		return err
	} else {
		defer end()
		c.Claims = claims
		c.Commands = doctor.Commands{Claimctl: c.claimctl(), Etcdctl: c.etcdctl(), Member: c.etcdctlAtMember()}
		c.Patience, c.Answer = c.commandTimeout, c.etcd.DialTimeout
		if cfg, err := c.clientConfig(zap.NewNop()); err == nil {
			c.TLS = cfg.TLS
		}
		c.Login(c.user != "", c.secure.Cert != "", time.Since(begun))
		c.examine(ctx)
		c.OrderByCause()
	}
	if err := c.print(); err != nil {
		return err
	}
	code := 0
	for _, f := range c.Findings {
		code = max(code, exitCodes[f.Level])
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}

func (c *checkup) examine(ctx context.Context) {
	if !c.Cluster(ctx) {
		return // all else would say the same
	}
	c.Epoch(ctx)
	c.Try(ctx)
	c.Survey(ctx)
}

// print lists the findings. In the table what to do has a line of its own: it is
// long, and there to be copied.
func (c *checkup) print() error {
	if !c.forPeople() {
		return printList(c.app, "", sequence(c.Findings))
	}
	t := table{header: []string{"CHECK", "RESULT", "DETAIL"}, short: make([]bool, 3)}
	for _, f := range c.Findings {
		t.add(f.Check, string(f.Level), f.Detail)
	}
	if err := t.print(c.out, math.MaxInt); err != nil { // a detail is a sentence
		return err
	}
	c.printRemedies("What to do:", "")
	c.printRemedies("Mend the revision first, then run doctor again. These can be consequences of the restore:",
		doctor.CheckRevision)
	return nil
}

// printRemedies prints what to do about the findings that are to be mended after another one.
func (c *checkup) printRemedies(title, after string) {
	for _, f := range c.Findings {
		if f.Remedy == "" || f.After != after {
			continue
		}
		if title != "" {
			_, _ = fmt.Fprintf(c.out, "\n%s\n", title)
			title = ""
		}
		_, _ = fmt.Fprintf(c.out, "  %s: %s\n    %s\n", f.Check, clean(f.Detail), clean(f.Remedy))
	}
}
