package main

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// claimView is a key as it is shown. Fences are strings in JSON: they do not fit
// into the numbers of every language once an epoch was raised.
type claimView struct {
	Key      string    `json:"key" col:"KEY"`
	Held     bool      `json:"held"`
	Fence    int64     `json:"fence,string" col:"FENCE"`
	Owner    string    `json:"owner,omitempty" col:"OWNER"`
	Instance string    `json:"instance,omitempty"`
	Claim    string    `json:"claim,omitempty"`
	Since    time.Time `json:"since,omitzero" col:"ASKED"` // when it asked for the key
	Began    int64     `json:"began,omitempty,string"`     // etcd's revision at which it got the key, where known
	Expires  time.Time `json:"expires,omitzero"`           // unless renewed
	Attempt  int       `json:"attempt,omitempty" col:"ATTEMPT"`
	Kind     string    `json:"kind,omitempty"`
	Newer    bool      `json:"newer,omitempty"`  // the value is of a newer version, and only the fence and the lease are known
	Shown    string    `json:"-" col:"KIND"`     // Kind, newer, or the number of slots
	Slots    int       `json:"slots,omitempty"`  // how many the key has
	Shared   int64     `json:"shared,omitempty"` // how many callers share the key, as far as known
	Note     string    `json:"note,omitempty" col:"NOTE,short"`
	Lease    string    `json:"lease,omitempty"` // as etcdctl shows it

	// The line of the key, which only ls reads: the number of waiters, and the owner label of
	// the first one with the time since when it waits, by the clock of its process.
	Waiters      int           `json:"waiters,omitempty" col:"WAITING"`
	WaitingOwner string        `json:"waitingOwner,omitempty"`
	WaitingSince time.Time     `json:"waitingSince,omitzero"`
	Longest      time.Duration `json:"-" col:"LONGEST"` // how long the first in line has waited
}

const claimColumns = "KEY,FENCE,OWNER,WAITING,LONGEST,KIND,NOTE,ASKED,ATTEMPT"

func viewClaim(i etcdclaims.Info) claimView {
	v := claimView{
		Key: i.Key, Held: i.Held, Fence: i.Fence, Owner: i.Owner, Instance: i.Instance, Claim: i.Claim,
		Since: i.Since.UTC(), Expires: i.Expires.UTC(), Attempt: i.Attempt, Kind: i.Kind, Newer: i.Newer, Shown: i.Kind,
		Slots: i.Slots, Shared: i.Shared, Note: text(i.Note),
	}
	switch {
	case i.Newer:
		v.Shown = "newer"
	case i.Slots > 0:
		v.Shown = errtext.Count(i.Slots, "slot", "slots")
	}
	// Those that share a key have one fence, which is as old as the first of them.
	if i.Held && !i.Newer && i.Slots == 0 && i.Shared == 0 && !strings.Contains(i.Key, etcdclaims.SharedPrefix("")) {
		v.Began = i.Revision()
	}
	if i.Lease != 0 {
		v.Lease = fmt.Sprintf("%016x", int64(i.Lease))
	}
	return v
}

func (v claimView) name() string { return v.Key }

func (a *app) listCommand() *cobra.Command {
	var mine string
	return a.command(spec{
		use: "ls [PREFIX]", alias: "list", table: claimColumns, group: groupSee, most: 1, names: a.completeKeys,
		short: "List the keys that are held",
		long: `List the keys that are held and begin with PREFIX, in the order of keys. All are
read at one revision of etcd, page by page, unless etcd compacts it meanwhile. A key
with slots has one line for their number, and one for each slot that is held:
KEY#slot-0 and so on; the first has those who wait for a slot. A key that callers
share has one line of the kind shared, and one for each of them: KEY#shared-NAME.

ASKED is when the holder asked for the key, by the clock of its process: its wait in
line is part of that time. etcd has no time at which it got the key, only the revision,
which is "began" in JSON.

WAITING is how many callers are in the key's line, LONGEST how long the first of them
has waited, by the clock of its process. Callers within the client that holds the key
have no place in etcd. All lines together are read page by page, as the keys are; the
output name leaves them out.`,
		example: `  claimctl ls orders/
  claimctl ls -o name orders/ | wc -l`,
		flags: func(flags *pflag.FlagSet) { flags.StringVar(&mine, "held-by", "", "only keys of this owner label") },
		run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
			held := listed(claims.List(ctx, append(args, "")[0]), mine)
			if a.format == formatName {
				return printList(a, claimColumns, held)
			}
			return a.printClaims(ctx, claims, held)
		},
	})
}

// printClaims prints the claims with their lines of waiters. If the lines cannot be read, the
// claims are printed without them.
func (a *app) printClaims(ctx context.Context, claims *etcdclaims.Client, held iter.Seq2[claimView, error]) error {
	all, _, failed := explain.First(held, math.MaxInt)
	if failed != nil { // what is known is shown, before the error
		return printList(a, claimColumns, sequence(all, failed))
	}
	keys, at := make([]string, len(all)), make(map[string]int, len(all))
	for i, v := range all {
		keys[i], at[v.Key] = v.Key, i
	}
	lines, _, unread := explain.First(admin.Lines(ctx, claims, keys), math.MaxInt)
	for _, l := range lines {
		v := &all[at[l.Key]]
		v.Waiters, v.WaitingOwner, v.WaitingSince = l.Waiting, l.Next.Owner, l.Next.Since.UTC()
		if !v.WaitingSince.IsZero() {
			v.Longest = max(time.Since(v.WaitingSince), 0).Round(time.Second)
		}
	}
	err := printList(a, claimColumns, sequence(all))
	switch {
	case err != nil || unread == nil:
		return err
	case explain.IsDenied(unread):
		a.remark(fmt.Sprintf("the waiters are not known: %v", unread)) // a role that may read claims only
		return nil
	}
	return fmt.Errorf("the keys are complete, but the waiters are not known: %w", unread)
}

func listed(infos iter.Seq2[etcdclaims.Info, error], owner string) iter.Seq2[claimView, error] {
	return func(yield func(claimView, error) bool) {
		for i, err := range infos {
			if err == nil && owner != "" && i.Owner != owner {
				continue
			}
			i.Expires = time.Time{} // the latest possible time is no news: see explain
			if !yield(viewClaim(i), err) {
				return
			}
		}
	}
}

// completeKeys completes the keys that are held.
func (a *app) completeKeys(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd, args, typed, func(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
		return mapped(claims.List(ctx, typed), func(i etcdclaims.Info) string { return i.Key })
	})
}

// completeFrom completes the first argument by names that etcd has, the first hundred.
func (a *app) completeFrom(cmd *cobra.Command, args []string, typed string,
	all func(context.Context, *etcdclaims.Client) iter.Seq2[string, error],
) (names []string, _ cobra.ShellCompDirective) {
	const most = 100
	a.completing = true
	if len(args) > 0 || a.fromEnvironment(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	_ = a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
		for name, err := range all(ctx, claims) {
			if err != nil || len(names) == most {
				break
			}
			if strings.HasPrefix(name, typed) {
				names = append(names, name)
			}
		}
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
