package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/spf13/cobra"
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
		c := viewClaim(ev.Info)
		v.Claim = &c
	}
	return v
}

func (a *app) watchCommand() *cobra.Command {
	var until string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "watch [PREFIX]", GroupID: groupSee, Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.completeKeys,
		Short: "Show changes of ownership as they happen, or wait for one",
		Long: `Show changes of ownership of the keys that begin with PREFIX, as they happen. It
begins with the keys that are held, followed by "synced". "resynced" means that
events were missed, and that the difference follows.

With --until the argument is one key, and watch prints nothing and exits with 0
as soon as that key is free or held. It exits with 124 after --timeout.`,
		Example: `  claimctl watch -o jsonl orders/
  claimctl watch --until free --timeout 5m orders/42`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if until != "" && (until != "free" && until != "held" || len(args) == 0) {
				return usageError("--until takes free or held, and a key as argument")
			}
			if _, err := a.login(); err != nil { // it may ask a person, whom signals are to interrupt
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), interrupts...)
			defer stop()
			claims, done, err := a.client(etcdclaims.Config{})
			if err != nil {
				return err
			}
			defer func() { _ = done() }() // it holds nothing
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
			switch {
			case err == nil || cmd.Context().Err() == nil && errors.Is(err, context.Canceled):
				return nil // interrupted
			case errors.Is(err, context.DeadlineExceeded) && until != "":
				return &exitError{exitTimeout, fmt.Errorf("watch %q: not %s within %s", key, until, timeout)}
			case errors.Is(err, context.DeadlineExceeded):
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "wait until the key is free or held")
	complete(cmd, "until", "free", "held")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "end after this time (0: never)")
	return cmd
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
	case a.format == formatJSON || a.format == formatLines:
		return a.printLine(v)
	case v.Claim == nil && a.format == formatName:
		return nil
	case a.format == formatName:
		_, err := fmt.Fprintln(a.out, v.Claim.Key)
		return err
	}
	columns := []string{doctor.Stamp(v.Time), fmt.Sprintf("%-8s", v.Event)}
	if v.Claim != nil {
		columns = append(columns, clean(v.Claim.Key), fmt.Sprintf("fence %d", v.Claim.Fence), clean(v.Claim.Owner))
	}
	_, err := fmt.Fprintln(a.out, strings.TrimRight(strings.Join(columns, "  "), " "))
	return err
}

// await returns nil when the key is held, or free.
func (a *app) await(ctx context.Context, claims *etcdclaims.Client, key string, held bool) error {
	is, known := false, false
	for ev, err := range claims.Watch(ctx, key) {
		switch {
		case err != nil:
			return err
		case ev.Kind == etcdclaims.Synced:
			known = true
		case ev.Info.Key == key:
			is = ev.Kind == etcdclaims.Claimed
		}
		if known && is == held {
			return nil
		}
	}
	return ctx.Err()
}
