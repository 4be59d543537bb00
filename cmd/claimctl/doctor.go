package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/sched/ical"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"golang.org/x/term"
)

// exitCodes are the exit codes for the levels.
var exitCodes = map[doctor.Level]int{doctor.Warning: 1, doctor.Error: 2}

const doctorText = `Check etcd and the claims in it, and print what to do about each finding.

doctor makes these checks beside each other, within --command-timeout:

  certificate  when those of this client and of the members expire
  endpoint     each member answers, has a leader, applies what it has logged
  space        share of the quota, and what a defragmentation would free
  versions     each member against the newest of them, and against known faults
  cluster      whether all endpoints belong to one
  alarms       NOSPACE and CORRUPT
  quorum       why etcd has no leader
  auth         whether etcd requires a user, and what a login by password costs
  epoch        the epoch of the claims
  revision     with --fence: whether etcd was restored, and its revision went back
  members      those that are not among --endpoints, learners, even numbers
  claims       held keys, zombies, keys without a lease
  lines        waiters in line for a free key, or without a lease
  flapping     keys whose holders die or are cut off again and again
  sessions     those whose renewal is late
  clocks       of processes that differ, by the times at which their sessions began
  work         orphaned, dead and unreadable records
  queues       dead letters, pauses, old backlogs and how many workers live
  jobs         pauses, and groups that no process runs
  groups       partitions that nobody owns
  counts       queues, jobs, dead letters and so on that were deleted by hand
  leases       those of other programs
  prefixes     whose keys fill etcd
  permissions  what the user may not do, for each feature of docs/permissions.md
  write, watch a claim of doctor's own, and when its event came
  renewal      whether the lease of that claim can be renewed
  latency      up to 100 writes of nothing, and whether --ttl fits them

A finding that can follow from another one is folded under it: mend the cause first, and run
doctor again. The format wide shows folded findings, and JSON has the check of the cause in
"after". A pause is a note until it is a day old.

It reads at most --limit claims, places in line and records, and writes one key,
which it deletes, and the counts beside the prefix. It claims none if --for names only
features that claim no keys. The
exit code is 0 if all is well or there are notes, 1 if there are warnings, 2 if there
are errors.

--fence takes the greatest fence of a log or a database. If etcd is behind it, etcd was
restored and its revision went back.`

// checkup is one run of doctor.
type checkup struct {
	*app
	doctor.Examination
	problems bool // print only findings that are not ok
}

func (a *app) doctorCommand() *cobra.Command {
	c := &checkup{app: a, Examination: doctor.Examination{Leases: 200, Thorough: true, ICal: ical.ParseText}}
	cmd := &cobra.Command{
		Use: "doctor", GroupID: groupSee, Args: arguments(0, 0), Short: "Check etcd and the claims in it", Long: doctorText,
		Example: `  claimctl doctor
  claimctl doctor --problems
  claimctl doctor --for acquire,wait,work       # other features' permissions do not matter
  claimctl doctor --fence 8812 --ttl 10s -o json | jq -r '.[].commands[]?'`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.DurationVar(&c.TTL, "ttl", etcdclaims.DefaultTTL, "lease time of the claims, to judge the latency by")
	flags.IntVar(&c.Limit, "limit", 5000, "how many claims, places in line and records to read at most")
	flags.StringSliceVar(&c.Features, "for", nil, "features whose permissions must not lack: "+strings.Join(doctor.FeatureNames(), ", "))
	flags.BoolVar(&c.problems, "problems", false, "print problems only: errors, warnings and notes")
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
	end, err := c.connect()
	if err != nil {
		return err
	}
	defer end()
	c.Examine(ctx, true)
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

// connect makes the client. One that cannot log in is made without a user, so that the members
// can be asked.
func (c *checkup) connect() (end func(), err error) {
	c.Commands = doctor.Commands{
		Claimctl: c.claimctl(), Etcdctl: c.etcdctl(), Member: c.etcdctlAtMember(), Root: c.etcdctlAsRoot(),
	}
	begun := time.Now()
	c.Claims, end, err = c.client(etcdclaims.Config{})
	if errors.Is(err, rpctypes.ErrAuthFailed) || err != nil && isUnreachable(err) { // a login needs etcd
		c.Refused, c.user, c.password = err, "", ""
		c.Claims, end, err = c.client(etcdclaims.Config{})
	}
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	c.Patience, c.Answer = max(c.commandTimeout-took, time.Second), c.etcd.DialTimeout
	if cfg, err := c.clientConfig(zap.NewNop()); err == nil {
		c.TLS = cfg.TLS
	}
	c.Login(c.user != "", c.secure.Cert != "", took)
	return end, nil
}

// print lists the findings. In the table what to do has a line of its own: it is
// long, and there to be copied.
func (c *checkup) print() error {
	findings := c.Findings
	if c.problems {
		findings = slices.DeleteFunc(slices.Clone(findings), func(f doctor.Finding) bool { return f.Level == doctor.OK })
	}
	if !c.forPeople() {
		return printList(c.app, "", sequence(findings))
	}
	if len(findings) == 0 {
		c.say("nothing is wrong")
		return nil
	}
	causes := doctor.Causes(findings)
	t := table{header: []string{"CHECK", "RESULT", "DETAIL"}, short: make([]bool, 3)}
	if isColored(c.out) {
		t.paint = paintLevel
	}
	for _, cause := range causes {
		detail := cause.Detail
		if len(cause.Folded) > 0 {
			detail += "; can be the cause of: " + strings.Join(checksOf(cause.Folded), ", ")
		}
		t.add(cause.Check, string(cause.Level), detail)
		if c.format == formatWide {
			for _, f := range cause.Folded {
				t.add("  "+f.Check, string(f.Level), f.Detail)
			}
		}
	}
	if err := t.print(c.out, math.MaxInt); err != nil { // a detail is a sentence
		return err
	}
	c.printRemedies(causes)
	return nil
}

// checksOf returns the checks of findings, each once.
func checksOf(findings []doctor.Finding) (checks []string) {
	for _, f := range findings {
		if !slices.Contains(checks, f.Check) {
			checks = append(checks, f.Check)
		}
	}
	return checks
}

// printRemedies prints what to do about the causes. A command has a line of its own.
func (c *checkup) printRemedies(causes []doctor.Cause) {
	title := "\nWhat to do:\n"
	for _, cause := range causes {
		if cause.Remedy == "" {
			continue
		}
		_, _ = fmt.Fprintf(c.out, "%s  %s: %s\n    %s\n", title, cause.Check, clean(cause.Detail), clean(cause.Remedy))
		title = ""
		for _, command := range cause.Commands {
			_, _ = fmt.Fprintf(c.out, "      %s\n", clean(command))
		}
		if len(cause.Folded) > 0 {
			_, _ = fmt.Fprintln(c.out, "    then run doctor again (-o wide shows what can follow from it)")
		}
	}
}

// isColored reports whether an output is a terminal whose user has not refused colors.
func isColored(out io.Writer) bool {
	terminal, ok := out.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(terminal.Fd()))
}

// paintLevel colors the level of a finding.
func paintLevel(column int, cell string) string {
	colors := map[doctor.Level]int{doctor.OK: 32, doctor.Note: 36, doctor.Warning: 33, doctor.Error: 31}
	color, ok := colors[doctor.Level(strings.TrimSpace(cell))]
	if column != 1 || !ok {
		return cell
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, cell)
}
