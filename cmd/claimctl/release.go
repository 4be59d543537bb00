package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) releaseCommand() *cobra.Command {
	var fence int64
	return a.command(spec{
		use: "release KEY --fence N", group: groupRepair, least: 1, most: 1, names: a.completeKeys,
		short: "Free a key that another process holds",
		long: `Free a key that another process holds. The fence is that of the holder, as ls and
explain show it: if the key has changed hands since, nothing is released and the
exit code is 1.

Of a key with slots the one with that fence is freed; KEY#slot-0 and so on name it, too.
Callers that share a key have one fence, and all of them lose the key; KEY#shared-NAME
is one of them.

The holder is notified with the reason and loses its claim. Its handler may run on
for a while: only fences stop its writes.`,
		example: `  claimctl release orders/42 --fence 8812 --reason "host api-7 is gone"`,
		flags: func(flags *pflag.FlagSet) {
			flags.Int64Var(&fence, "fence", 0, "fence of the term to end (required)")
		},
		check: func(args []string) error {
			return usageIf(fence <= 0, "release %q: --fence is required: the fence of its holder, as explain shows it", args[0])
		},
		run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
			key := args[0]
			err := admin.ForceReleaseTerm(ctx, claims, fencing.Token{Key: key, Fence: fence}, a.reason)
			var held *etcdclaims.HeldError
			if errors.Is(err, etcdclaims.ErrSlots) || errors.As(err, &held) && held.Info.Slots > 0 {
				if key, err = slotWith(ctx, claims, key, fence); err == nil {
					err = admin.ForceReleaseTerm(ctx, claims, fencing.Token{Key: key, Fence: fence}, a.reason)
				}
			}
			switch {
			case errors.As(err, &held):
				return notReleased(key, "fence %d is over; the key is held by %s with fence %d",
					fence, held.Info.Owner, held.Info.Fence)
			case errors.Is(err, etcdclaims.ErrRefused):
				return notReleased(key, "fence %d is over, and the key is free", fence)
			}
			return a.done(err, doneView{Done: "released", Key: key, Fence: fence, Reason: a.reason},
				"released %q; its holder is notified: %s", key, cmp.Or(a.reason, "(no reason)"))
		},
	})
}

func notReleased(key, format string, args ...any) error {
	return &exitError{exitFailure, fmt.Errorf("release %q: not released: "+format, append([]any{key}, args...)...)}
}

// slotWith returns the key of the slot that has the fence, of a key that has slots.
func slotWith(ctx context.Context, claims *etcdclaims.Client, key string, fence int64) (string, error) {
	held, _, err := explain.SlotHolders(ctx, claims, key)
	if err != nil {
		return key, err
	}
	for _, slot := range held {
		if slot.Held && slot.Fence == fence {
			return slot.Key, nil
		}
	}
	return key, notReleased(key, "none of its slots has fence %d; explain shows those that are held", fence)
}

func (a *app) resizeCommand() *cobra.Command {
	var n int
	return a.command(spec{
		use: "resize KEY SLOTS", group: groupRepair, least: 2, most: 2, names: a.completeKeys,
		short: "Change how many processes may hold a key at the same time",
		long: `Change the number of slots of a key. From then on processes must ask for that
number; those in line go on waiting and take new slots at once. Holders of surplus
slots keep them until they release them.

0 removes the number, so that the next process to ask sets it. It is refused, with
exit code 1, while anybody holds a slot or waits.`,
		example: `  claimctl resize licence 5`,
		check: func(args []string) (err error) {
			n, err = strconv.Atoi(args[1])
			return usageIf(err != nil || n < 0, "resize %q: the number of slots is %q, not a number from 0 on", args[0], args[1])
		},
		run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
			err := admin.Resize(ctx, claims, args[0], n)
			if errors.Is(err, etcdclaims.ErrHeld) {
				return &exitError{exitFailure, err}
			}
			return a.done(err, doneView{Done: "resized", Key: args[0], Slots: &n},
				"resized %q to %s", args[0], errtext.Count(n, "slot", "slots"))
		},
	})
}

// epochView is the epoch of a prefix; 0 if it was never raised.
type epochView struct {
	Epoch int64 `json:"epoch"`
}

func (a *app) epochCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "epoch", GroupID: groupRepair,
		Short: "Show or raise the epoch, after a restore of etcd",
		Long: `Fences rise with etcd's revisions. After a restore from a snapshot without
--bump-revision revisions go back, and clients refuse to claim. A raised epoch
makes all fences greater than before, and ends all claims of earlier epochs.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return usageError("epoch: say show or raise")
		},
	}
	var above int64
	cmd.AddCommand(
		a.command(spec{
			use: "show", short: "Show the epoch, 0 if it was never raised",
			run: func(ctx context.Context, claims *etcdclaims.Client, _ []string) error {
				epoch, _, err := explain.Epoch(ctx, claims.Etcd(), claims.Prefix())
				return a.done(err, epochView{epoch}, "epoch %d", epoch)
			},
		}),
		a.command(spec{
			use: "raise", short: "Raise the epoch: all claims end",
			long: `Raise the epoch. All claims under the prefix end, and every fence from now on is
greater than all before.

If the snapshot may be older than the last raise, give the greatest epoch that was
ever used with --above: the error of clients that refuse to claim names it, and
the highest bits of every fence contain it.`,
			flags: func(flags *pflag.FlagSet) {
				flags.Int64Var(&above, "above", 0, "the greatest epoch that was ever used, if etcd may have forgotten it")
			},
			check: func([]string) error {
				return usageIf(above < 0, "epoch raise: --above %d is negative", above)
			},
			run: func(ctx context.Context, claims *etcdclaims.Client, _ []string) error {
				if a.dry {
					return a.printClaims(ctx, claims, listed(claims.List(ctx, ""), ""))
				}
				epoch, err := admin.RaiseEpoch(ctx, claims.Etcd(), claims.Prefix(), above)
				return a.done(err, epochView{epoch}, "raised the epoch to %d", epoch)
			},
		}))
	return cmd
}
