package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// eventView is one change of ownership, or "synced" and "resynced".
type eventView struct {
	Time     time.Time  `json:"time"` // when it was seen
	Event    string     `json:"event"`
	Revision int64      `json:"revision,string"`
	Claim    *claimView `json:"claim,omitempty"`
}

func viewEvent(ev etcdclaims.Event, now time.Time) eventView {
	v := eventView{Time: now.UTC(), Event: ev.Kind.String(), Revision: ev.Revision}
	if ev.Kind == etcdclaims.Claimed || ev.Kind == etcdclaims.Freed {
		ev.Info.Expires = time.Time{}
		v.Claim = new(viewClaim(ev.Info))
	}
	return v
}

func (a *app) watchCommand() *cobra.Command {
	var until string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "watch [PREFIX]", GroupID: groupSee, Args: arguments(0, 1), ValidArgsFunction: a.completeKeys,
		Short: "Show changes of ownership as they happen, or wait for one",
		Long: `Show changes of ownership of the keys that begin with PREFIX, as they happen. It
begins with the keys that are held, followed by "synced". "resynced" means that
events were missed, and that the difference follows.

With --until the argument is one key, and watch prints nothing and exits with 0
as soon as that key is free or held. It exits with 124 after --timeout, and with
128+n if signal n ends it. A key with slots, or one that callers share, is held
while any caller holds it; a slot has a key of its own.`,
		Example: `  claimctl watch -o jsonl orders/
  claimctl watch --until free --timeout 5m orders/42`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if until != "" && (until != "free" && until != "held" || len(args) == 0) {
				return usageError("--until takes free or held, and a key as argument")
			}
			if _, err := a.login(); err != nil { // it may ask a person, whom signals are to interrupt
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			claims, end, err := a.client(etcdclaims.Config{})
			if err != nil {
				return err
			}
			defer end()
			if err := a.reach(ctx, claims); err != nil {
				return err
			}
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			key := append(args, "")[0]
			if until == "" {
				err = a.follow(ctx, claims, key)
			} else {
				err = a.await(ctx, claims, key, until == "held")
			}
			var interrupt *exitError
			interrupted, late := errors.As(context.Cause(ctx), &interrupt), errors.Is(err, context.DeadlineExceeded)
			switch {
			case err == nil || until == "" && (interrupted || late):
				return nil
			case interrupted:
				return interrupt
			case late:
				return &exitError{exitTimeout, fmt.Errorf("watch %q: not %s within %s", key, until, timeout)}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "wait until the key is free or held")
	complete(cmd, "until", "free", "held")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "end after this time (0: never)")
	return cmd
}

// interruptible returns a context that ends at a signal that ends claimctl. Its cause is then
// the exit with that signal.
func interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, interrupts...)
	go func() {
		select {
		case sig := <-signals:
			cancel(&exitError{exitSignal + signalNumber(sig), fmt.Errorf("watch: ended by a signal: %s", sig)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// again calls a command again and again until a signal comes, and prints what it printed
// whenever that has changed. Of etcd's outages it prints the errors.
func (a *app) again(cmd *cobra.Command, once func() error) error {
	if _, err := a.login(); err != nil { // it may ask a person, whom signals are to interrupt
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	cmd.SetContext(ctx)
	out, last := a.out, ""
	defer func() { a.out = out }()
	clear := ""
	if terminal, ok := out.(*os.File); ok && term.IsTerminal(int(terminal.Fd())) {
		clear = "\x1b[H\x1b[2J"
	}
	for {
		var text bytes.Buffer
		a.out = &text
		err := once()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (last == "" || !isUnreachable(err)):
			return err
		case err != nil:
			a.complain(err.Error(), codeOf(err))
		case text.String() != last:
			last = text.String()
			if _, err := io.WriteString(out, clear+last); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(a.every):
		}
	}
}

// reach returns an error if etcd does not answer in the time of a command.
func (a *app) reach(ctx context.Context, claims *etcdclaims.Client) error {
	ctx, cancel := context.WithTimeout(ctx, a.commandTimeout)
	defer cancel()
	_, err := claims.Health(ctx)
	return err
}

// follow prints events until ctx ends.
func (a *app) follow(ctx context.Context, claims *etcdclaims.Client, prefix string) error {
	for ev, err := range claims.Watch(ctx, prefix) {
		if err != nil {
			return err
		}
		if err := a.printEvent(viewEvent(ev, time.Now())); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (a *app) printEvent(v eventView) error {
	switch {
	case a.format == formatJSON || a.format == formatLines || a.format == formatYAML:
		return a.printLine(v)
	case v.Claim == nil && a.format == formatName:
		return nil
	case a.format == formatName:
		_, err := fmt.Fprintln(a.out, v.Claim.Key)
		return err
	}
	columns := []string{explain.Stamp(v.Time), fmt.Sprintf("%-8s", v.Event)}
	if v.Claim != nil {
		columns = append(columns, clean(v.Claim.Key), fmt.Sprintf("fence %d", v.Claim.Fence), clean(v.Claim.Owner))
	}
	_, err := fmt.Fprintln(a.out, strings.TrimRight(strings.Join(columns, "  "), " "))
	return err
}

// await returns nil when the key is held, or free. The record of a key with slots, or of one
// that callers share, is no holder: it stays when the last of them has released.
func (a *app) await(ctx context.Context, claims *etcdclaims.Client, key string, held bool) error {
	holders, known := map[string]bool{}, false
	for ev, err := range claims.Watch(ctx, key) {
		switch {
		case err != nil:
			return err
		case ev.Kind == etcdclaims.Synced:
			known = true
		case isClaimOf(key, ev):
			holders[ev.Info.Key] = true
		default:
			delete(holders, ev.Info.Key)
		}
		if known && (len(holders) > 0) == held {
			return nil
		}
	}
	return ctx.Err()
}

// isClaimOf reports whether an event is a claim on the key, on a slot of it, or one that shares it.
func isClaimOf(key string, ev etcdclaims.Event) bool {
	i := ev.Info
	return ev.Kind == etcdclaims.Claimed && !explain.IsRecord(i.Kind) &&
		(i.Key == key || explain.SlotOf(key, i.Key) >= 0 || strings.HasPrefix(i.Key, etcdclaims.SharedPrefix(key)))
}
