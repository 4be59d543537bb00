package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

const drillText = `Show what a take-over of KEY would do. The command names the caller that is next in
line, and the latest time at which it has the key if the holder dies now. It also
names the callers that would be passed over. Nothing is written.

With --yes the command makes the take-over. It ends the holder's claim, as release
does, and times each step until the next owner has the key. Then it tries a write to
a key of its own under the ended fence, which etcd must refuse. The key begins with
--scratch; where the user may not write it, the output says that. The holder's handler may
run on for a while, so its writes must be fenced. The command refuses while nobody
waits for the key, unless --alone is given.

The exit code is 124 if nobody has the key within --timeout.`

// drillView is the plan of a take-over, and its steps once it was made.
type drillView struct {
	Key    string     `json:"key"`
	Owner  string     `json:"owner"`
	Fence  int64      `json:"fence,string"`
	Next   *nextView  `json:"next,omitempty"`
	Ghosts []string   `json:"passedOver,omitempty"` // owners of places without a lease
	Steps  []stepView `json:"steps,omitempty"`
}

// stepView is one step of a take-over.
type stepView struct {
	After string `json:"after"` // since the drill began
	What  string `json:"what"`
}

func (v drillView) name() string    { return v.Key }
func (v drillView) cells() []string { return []string{v.Key, v.Owner, number(v.Fence)} }

func (a *app) drillCommand() *cobra.Command {
	var yes, alone bool
	var reason, scratch string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "drill KEY", GroupID: groupRepair, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKeys,
		Short: "Show what a take-over would do, or make and time one", Long: drillText,
		Example: `  claimctl drill leader/mailer
  claimctl drill leader/mailer --yes --reason "game day"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				v, err := planDrill(ctx, claims, args[0])
				if err != nil {
					return err
				}
				text := func(w io.Writer) { v.text(w, a.claimctl()) }
				if !yes {
					return printOne(a, v, text)
				}
				if v.Next == nil && !alone {
					return fmt.Errorf("drill %q: nobody waits for the key, which would be free: repeat with --alone to end the claim of %s all the same", v.Key, v.Owner)
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
				defer cancel()
				err = v.takeOver(ctx, claims, fallback(reason, "drill"), scratch)
				return errors.Join(printOne(a, v, text), err)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "end the claim of the holder")
	cmd.Flags().BoolVar(&alone, "alone", false, "with --yes: also while nobody waits")
	addReason(cmd, &reason, "with --yes: why, for the holder's log (default \"drill\")")
	cmd.Flags().StringVar(&scratch, "scratch", "/claimctl-drill/", "with --yes: prefix of the key in etcd to which the write under the old fence is tried")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "with --yes: how long to wait for the next owner")
	return cmd
}

// planDrill finds out what would happen.
func planDrill(ctx context.Context, claims *etcdclaims.Client, key string) (*drillView, error) {
	x, err := explain(ctx, claims, key)
	if err != nil {
		return nil, err
	}
	switch {
	case !x.Held:
		return nil, fmt.Errorf("drill %q: the key is free", key)
	case x.Slots > 0:
		return nil, &exitError{exitUsage, fmt.Errorf("drill %q: the key has %d slots: drill one of them, such as %q, which explain shows", key, x.Slots, etcdclaims.SlotKey(key, 0))}
	case x.Shared > 0:
		return nil, &exitError{exitUsage, fmt.Errorf("drill %q: %d callers share the key, and nobody takes over from one of them; release ends the claims of all", key, x.Shared)}
	}
	v := &drillView{Key: key, Owner: x.Owner, Fence: x.Fence, Next: x.Next}
	for _, w := range x.Waiting {
		if w.Ghost {
			v.Ghosts = append(v.Ghosts, w.Owner)
		}
	}
	return v, nil
}

// takeOver ends the claim, and notes the steps until another has the key.
func (v *drillView) takeOver(ctx context.Context, claims *etcdclaims.Client, reason, scratch string) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	events, synced := make(chan etcdclaims.Event, 64), make(chan error, 1)
	go watchKey(watching, claims, v.Key, events, synced)
	if err := <-synced; err != nil {
		return err
	}
	begun := time.Now()
	step := func(format string, args ...any) {
		v.Steps = append(v.Steps, stepView{doctor.Round(time.Since(begun)).String(), fmt.Sprintf(format, args...)})
	}
	old := fencing.Token{Key: v.Key, Fence: v.Fence}
	err := admin.ForceReleaseTerm(ctx, claims, old, reason)
	var held *etcdclaims.HeldError
	if errors.As(err, &held) || errors.Is(err, etcdclaims.ErrRefused) {
		return &exitError{exitFailure, fmt.Errorf("drill %q: not made: the key changed hands meanwhile", v.Key)}
	}
	if err != nil {
		return err
	}
	step("the claim of %s is ended; a notice is in etcd for it, if it lives", v.Owner)
	for {
		var ev etcdclaims.Event
		select {
		case ev = <-events:
		case <-ctx.Done():
			return &exitError{exitTimeout, fmt.Errorf("drill %q: nobody has the key: see claimctl explain", v.Key)}
		}
		switch {
		case ev.Info.Fence <= v.Fence && ev.Kind == etcdclaims.Freed:
			step("etcd sees the key free at revision %d", ev.Revision)
			if v.Next == nil {
				return v.refused(ctx, claims, old, scratch, step)
			}
		case ev.Kind == etcdclaims.Claimed && ev.Info.Fence > v.Fence:
			step("%s has the key, with fence %d", ev.Info.Owner, ev.Info.Fence)
			return v.refused(ctx, claims, old, scratch, step)
		}
	}
}

// refused writes as the old owner would, guarded by its fence. The write must be refused.
func (v *drillView) refused(ctx context.Context, claims *etcdclaims.Client, old fencing.Token, scratch string, step func(string, ...any)) error {
	key := scratch + rand.Text()
	_, err := etcdguard.NewKV(claims.Etcd(), etcdguard.Bearer(claims.Prefix(), old)).Put(ctx, key, "")
	switch {
	case errors.Is(err, fencing.ErrStale):
		step("a write under fence %d is refused", old.Fence)
		return nil
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		step("no write under fence %d was tried: this user may not write %s; --scratch takes another prefix", old.Fence, scratch)
		return nil
	case err == nil:
		err = errors.New("it was carried out")
	} // else whether it was carried out is not known
	_, left := claims.Etcd().Delete(ctx, key)
	return errors.Join(fmt.Errorf("drill %q: a write under fence %d was not refused: %w", v.Key, old.Fence, err), left)
}

// watchKey sends the events of one key after it told that the watch has begun.
func watchKey(ctx context.Context, claims *etcdclaims.Client, key string, events chan<- etcdclaims.Event, synced chan<- error) {
	known := false
	for ev, err := range claims.Watch(ctx, key) {
		if err != nil {
			if !known {
				synced <- err
			}
			return
		}
		if ev.Kind == etcdclaims.Synced && !known {
			known = true
			synced <- nil
		}
		if known && ev.Info.Key == key {
			select {
			case events <- ev:
			case <-ctx.Done():
				return
			}
		}
	}
	if !known {
		synced <- context.Cause(ctx)
	}
}

// text prints the drill; claimctl is how a command of it begins.
func (v *drillView) text(w io.Writer, claimctl string) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, "%s\n", clean(fmt.Sprintf(format, args...))) }
	say("%s is held by %s with fence %d", v.Key, v.Owner, v.Fence)
	for _, owner := range v.Ghosts {
		say("passed over: %s, whose lease is gone", owner)
	}
	if v.Next == nil {
		say("next: nobody waits; the key is free for the first that asks")
	} else {
		say("next: %s", v.Next.text(true))
	}
	for _, s := range v.Steps {
		say("%10s  %s", "+"+s.After, s.What)
	}
	if len(v.Steps) == 0 {
		say("to make it: %s drill --yes%s", claimctl, doctor.Arguments(v.Key))
	}
}
