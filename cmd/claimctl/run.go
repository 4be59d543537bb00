package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
)

// killAhead is how long before the claim's deadline a command is killed that did
// not stop.
const killAhead = 250 * time.Millisecond

// runner runs one command under a claim.
type runner struct {
	*app
	key     string
	argv    []string
	wait    string
	ttl     time.Duration
	maxHold time.Duration
	minHold time.Duration
	slots   int
	shared  bool
	grace   time.Duration
	seen    int64 // a fence
	note    string
	signal  string
	codes   map[string]int

	prefers bool // of elect: it has a preference
	prefer  int

	once        bool
	atMostOnce  bool
	maxAttempts int
	retention   time.Duration

	claims  *etcdclaims.Client
	works   *work.Runner
	signals chan os.Signal
	stop    os.Signal // what asks the command to end
}

const runText = `Run a command while this process holds KEY, and release the key as soon as the
command has ended. The command is run as it stands, without a shell, in a process
group of its own.

Before the claim ends the command is stopped: it gets --signal one grace before the
claim's deadline, and SIGKILL before the deadline, which is counted from before the
last renewal was sent. If the claim is gone at once, by a forced release, the
command is killed at once. All signals that claimctl receives are passed on to the
process group, also SIGTERM, but not CHLD, PIPE, PROF, URG, TTIN, TTOU, 32 to 34, and
KILL and STOP, which no process can handle. They do not end the claim before the
command ends. HUP, at which many programs read their configuration again, is a request
to end only if the command dies of it. Before the command runs HUP, INT, QUIT, TERM and ABRT end the waiting,
and the others are ignored.
What the command leaves behind in its group is killed, and has ended, before the
key is released.

The command finds in its environment: FENCING_TOKEN (send it along with requests),
CLAIM_KEY, CLAIM_FENCE, CLAIM_ID, CLAIM_OWNER, CLAIM_ATTEMPT with --once,
CLAIM_SLOT with --slots (counted from 0), and CLAIM_DEADLINE (when the claim ends unless it
is renewed, as of the start: every renewal moves it). Other variables of the names
FENCING_TOKEN and CLAIM_* are removed.

With --once, --wait waits for a key that is held, and not for the time at which failed work
is due again: then run exits with 75 at once.

Not guaranteed: if claimctl is stopped (SIGSTOP), the command runs on without the
claim. If claimctl is killed, Linux kills the one process that claimctl started, but
not the processes that this one started; other systems kill none of them. Processes
that leave the process group (setsid, daemons, jobs of an interactive shell) get no
signals and are not killed. Only fences stop the writes of all these.`

func (a *app) runCommand() *cobra.Command {
	r := &runner{app: a}
	cmd := &cobra.Command{
		Use: "run KEY -- COMMAND [ARG...]", GroupID: groupRun, Args: r.args, ValidArgsFunction: a.completeKeys,
		Short: "Run a command while holding a key", Long: runText,
		Example: `  claimctl run nightly -- ./report.sh
  claimctl run --wait 10m --max-hold 1h deploy/web -- make deploy
  claimctl run --once invoice/42 -- ./invoice 42
  claimctl run --slots 3 --wait 1h licence -- ./simulate
  claimctl run --shared --wait 1h dataset/eu -- ./read-it`,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context(), false) },
	}
	r.addFlags(cmd, "0")
	flags := cmd.Flags()
	flags.DurationVar(&r.minHold, "min-hold", 0, "keep the key held for at least this long, also after the command")
	flags.IntVar(&r.slots, "slots", 0, "up to N processes hold the key at the same time, each a slot of its own")
	flags.BoolVar(&r.shared, "shared", false, "hold the key together with all others that use --shared; runs without it exclude them")
	flags.BoolVar(&r.once, "once", false, "keep a record, and do not run the command again after it exited with 0")
	flags.BoolVar(&r.atMostOnce, "at-most-once", false, "with --once: do not run the command again if it died with this process")
	flags.IntVar(&r.maxAttempts, "max-attempts", etcdclaims.DefaultMaxAttempts, "with --once: attempts until the work is dead (negative: no limit)")
	flags.DurationVar(&r.retention, "retention", 24*time.Hour, "with --once: how long done work is remembered (negative: for ever)")
	return cmd
}

func (a *app) electCommand() *cobra.Command {
	r := &runner{app: a}
	cmd := &cobra.Command{
		Use: "elect KEY -- COMMAND [ARG...]", GroupID: groupRun, Args: r.args, ValidArgsFunction: a.completeKeys,
		Short: "Run a command as the leader, and stand again after the claim is lost",
		Long: `Wait in line for KEY and run a command while this process holds it, as run does. If
the claim is lost, the command is stopped, and this process waits in line again.
elect ends when the command ends by itself, and exits as the command did. If the claim
was lost by then, elect exits with 76 if the command exited with 0, and waits in line
again otherwise.

With --prefer, in all processes, a leader that ends hands the key to the process in line with
the greatest number. No leader gives way to a process that comes later.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context(), true) },
	}
	r.addFlags(cmd, "forever")
	cmd.Flags().IntVar(&r.prefer, "prefer", 0, "this process is preferred to those with a lower number, from 0 up")
	return cmd
}

func (r *runner) addFlags(cmd *cobra.Command, wait string) {
	flags := cmd.Flags()
	flags.StringVar(&r.wait, "wait", wait, "how long to wait in line for the key: a duration, 0 or forever")
	flags.DurationVar(&r.ttl, "ttl", etcdclaims.DefaultTTL, "lease time: how long the key stays held after this machine dies")
	flags.DurationVar(&r.maxHold, "max-hold", 0, "stop the command when the claim is this old (0: never)")
	flags.DurationVar(&r.grace, "grace", 0, "how long before SIGKILL the command is asked to end (default a fifth of the TTL)")
	flags.Int64Var(&r.seen, "fence", 0, "a fence that was seen in a log or a database: refuse to run if etcd is behind it, as after a restore")
	flags.StringVar(&r.signal, "signal", "TERM", "signal that asks the command to end")
	flags.StringVar(&r.note, "note", "", "note on the claim, for people")
	flags.StringToIntVarP(&r.codes, "exit-code", "E", nil, "replace exit codes: busy, timeout, lost, killed, unreachable or done, as in busy=0")
}

// args takes the key, and after "--" the command.
func (r *runner) args(cmd *cobra.Command, args []string) error {
	n := cmd.ArgsLenAtDash()
	if n != 1 || len(args) == 1 {
		return fmt.Errorf("%s: want a key, -- and a command", cmd.Name())
	}
	r.key, r.argv = args[0], args[1:]
	for name, code := range r.codes {
		if _, ok := ownCodes[name]; !ok || code < 0 || code > 255 {
			return fmt.Errorf("%s: --exit-code %s=%d: the names are busy, timeout, lost, killed, unreachable and done, the codes 0 to 255", cmd.Name(), name, code)
		}
	}
	for _, flag := range []string{"at-most-once", "max-attempts", "retention"} {
		if !r.once && cmd.Flags().Changed(flag) {
			return fmt.Errorf("%s: --%s needs --once", cmd.Name(), flag)
		}
	}
	r.prefers = cmd.Flags().Changed("prefer")
	for _, flags := range []struct {
		wrong bool
		text  string
	}{
		{r.once && (r.maxAttempts == 0 || r.retention == 0), "--max-attempts and --retention must not be 0; negative means no limit"},
		{r.prefers && (r.prefer < 0 || r.note != ""), "--prefer must not be negative, and does not go with --note"},
		{r.ttl <= 0, fmt.Sprintf("--ttl %s is not above 0", r.ttl)},
		{r.once && r.minHold != 0, "--min-hold does not go with --once, whose record keeps the command from running again"},
		{r.once && r.slots != 0, "--slots does not go with --once: work has one owner"},
		{r.shared && (r.once || r.slots != 0), "--shared does not go with --once and --slots"},
		{r.seen < 0, "--fence must not be negative"},
		{r.slots < 0, "--slots must not be negative"},
		{r.grace < 0 || r.maxHold < 0 || r.minHold < 0, "--grace, --max-hold and --min-hold must not be negative"},
	} {
		if flags.wrong {
			return fmt.Errorf("%s: %s", cmd.Name(), flags.text)
		}
	}
	var err error
	r.stop, err = parseSignal(r.signal)
	return err
}

// ownCodes are the exit codes of run itself, by the names of --exit-code.
var ownCodes = map[string]int{
	"busy": exitBusy, "timeout": exitTimeout, "lost": exitLost, "killed": exitKilled, "unreachable": exitUnreachable, "done": 0,
}

// ended is the end of claimctl for a reason of its own.
func (r *runner) ended(reason string, err error) error {
	code := ownCodes[reason]
	if c, ok := r.codes[reason]; ok {
		code = c
	}
	return &exitError{code, err}
}

func (r *runner) run(ctx context.Context, again bool) error {
	wait, err := parseWait(r.wait)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(r.argv[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return &exitError{exitNotFound, err}
	case err != nil:
		return &exitError{exitCannotRun, err}
	}
	cfg := etcdclaims.Config{TTL: r.ttl, Logger: r.logger(zapcore.WarnLevel)}
	if r.grace > 0 {
		cfg.Drain = r.grace + killAhead
	} else {
		r.grace = max(r.ttl/5-killAhead, 0)
	}
	if r.maxHold > 0 && r.maxHold <= r.grace+killAhead {
		return usageError("run: --max-hold %s is not longer than --grace and %s, when the command is stopped", r.maxHold, killAhead)
	}
	if _, err := r.login(); err != nil { // it may ask a person, whom signals are to interrupt
		return err
	}
	// From here on signals are passed on, or end the waiting.
	r.signals = make(chan os.Signal, 32)
	signal.Notify(r.signals, passedOn...)
	defer signal.Stop(r.signals)
	claims, end, err := r.client(cfg)
	if err != nil {
		return err
	}
	defer end()
	r.claims = claims
	if err := r.notRewound(ctx); err != nil {
		return err
	}
	if r.works, err = work.New(claims, work.Config{MaxAttempts: r.maxAttempts, Retention: r.retention}); err != nil {
		return err
	}
	for {
		h, err := r.acquire(ctx, wait)
		if err == nil {
			err = r.hold(path, h)
			r.lateSignals(h)
		}
		if !again || !lostOnly(h, err) {
			return err
		}
		r.complain(fmt.Sprintf("%v; waiting in line again", err), 0)
	}
}

// lostOnly reports whether a command ended because the claim was lost: while it ran, or before, as
// when claimctl was stopped while it got the key.
func lostOnly(h *holding, err error) bool {
	if h == nil {
		return errors.Is(err, etcdclaims.ErrLost)
	}
	return h.over && h.interrupted == nil
}

// notRewound refuses an etcd that is behind --fence, as doctor does.
func (r *runner) notRewound(ctx context.Context) error {
	e := doctor.Examination{Claims: r.claims, Fence: r.seen, Patience: r.commandTimeout, Commands: doctor.Commands{Claimctl: r.claimctl()}}
	if r.seen != 0 {
		e.Epoch(ctx) // if it cannot be read, acquiring returns an error
	}
	for _, f := range e.Findings {
		if f.Check == doctor.CheckRevision && f.Level == doctor.Error {
			return &exitError{exitFailure, fmt.Errorf("run %q: %s; %s: %s", r.key, f.Detail, f.Remedy, strings.Join(f.Commands, "; "))}
		}
	}
	return nil
}

// parseWait returns how long to wait; negative means for ever.
func parseWait(s string) (time.Duration, error) {
	if s == "forever" {
		return -1, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, usageError("--wait %q is not a duration, 0 or forever", s)
	}
	return d, nil
}

// lateSignals takes the signals that came after the command had ended.
func (r *runner) lateSignals(h *holding) {
	for len(r.signals) > 0 { // nobody else receives them
		if sig := <-r.signals; ends(sig) {
			h.interrupted = sig
		}
	}
}

// acquire claims the key. A signal ends the waiting.
func (r *runner) acquire(ctx context.Context, wait time.Duration) (*holding, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var h *holding
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		h, err = r.claim(ctx, wait)
	}()
	for {
		select {
		case <-done:
			return h, err
		case sig := <-r.signals:
			if !ends(sig) {
				continue
			}
			cancel()
			if <-done; h != nil { // work would stay claimed if only the client were closed
				if err := r.giveUp(h, nil); err != nil {
					r.complain(fmt.Sprintf("the key may stay held until its lease ends: %v", err), 0)
				}
			}
			return nil, &exitError{exitSignal + signalNumber(sig), fmt.Errorf("run %q: %s before the command ran", r.key, sig)}
		}
	}
}

// afterWait replaces the end of the context, with which an error ends, by how long was waited.
func afterWait(err error, wait time.Duration) error {
	text, cut := strings.CutSuffix(err.Error(), ": "+context.DeadlineExceeded.Error())
	if !cut {
		return err
	}
	return errors.New(strings.Replace(text, ": held by ", ": still held by ", 1) + ", after " + wait.String())
}

// notAcquired returns the exit of a command that did not run.
func (r *runner) notAcquired(wait time.Duration, err error) error {
	switch {
	case errors.Is(err, work.ErrDone):
		return r.ended("done", nil)
	case errors.Is(err, etcdclaims.ErrHeld), errors.Is(err, work.ErrBackoff):
		return r.ended("busy", err)
	case wait > 0 && errors.Is(err, context.DeadlineExceeded):
		var waited *etcdclaims.WaitError
		if errors.As(err, &waited) && waited.Info.Held && r.claims.Unreachable() == nil || r.reach(context.Background(), r.claims) == nil {
			return r.ended("timeout", afterWait(err, wait))
		}
		return r.ended("unreachable", err)
	case isUnreachable(err):
		return r.ended("unreachable", err)
	}
	return err
}
