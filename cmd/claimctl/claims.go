package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// claimView is a key as it is shown. Fences are strings in JSON: they do not fit
// into the numbers of every language once an epoch was raised.
type claimView struct {
	Key      string     `json:"key"`
	Held     bool       `json:"held"`
	Fence    int64      `json:"fence,string"`
	Owner    string     `json:"owner,omitempty"`
	Instance string     `json:"instance,omitempty"`
	Claim    string     `json:"claim,omitempty"`
	Since    *time.Time `json:"since,omitempty"`        // when it asked for the key
	Began    int64      `json:"began,omitempty,string"` // etcd's revision at which it got the key, where known
	Expires  *time.Time `json:"expires,omitempty"`      // unless renewed
	Attempt  int        `json:"attempt,omitempty"`
	Kind     string     `json:"kind,omitempty"`
	Slots    int        `json:"slots,omitempty"`  // how many the key has
	Shared   int64      `json:"shared,omitempty"` // how many callers share the key, as far as known
	Note     string     `json:"note,omitempty"`
	Lease    string     `json:"lease,omitempty"` // as etcdctl shows it

	// The line of the key, which only ls reads: the number of waiters, and the owner label of
	// the first one with the time since when it waits, by the clock of its process.
	Waiters      int        `json:"waiters,omitempty"`
	WaitingOwner string     `json:"waitingOwner,omitempty"`
	WaitingSince *time.Time `json:"waitingSince,omitempty"`
}

func viewClaim(i etcdclaims.Info) claimView {
	v := claimView{
		Key: i.Key, Held: i.Held, Fence: i.Fence, Owner: i.Owner, Instance: i.Instance, Claim: i.Claim,
		Since: moment(i.Since), Expires: moment(i.Expires), Attempt: i.Attempt, Kind: i.Kind, Slots: i.Slots, Shared: i.Shared, Note: text(i.Note),
	}
	// Those that share a key have one fence, which is as old as the first of them.
	if i.Held && i.Slots == 0 && i.Shared == 0 && !strings.Contains(i.Key, etcdclaims.SharedPrefix("")) {
		v.Began = i.Revision()
	}
	if i.Lease != 0 {
		v.Lease = fmt.Sprintf("%016x", int64(i.Lease))
	}
	return v
}

// moment is a time in JSON, absent if it is not known.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func at(t *time.Time) string {
	if t == nil {
		return ""
	}
	return doctor.Stamp(*t)
}

// text is a note as text.
func text(b []byte) string {
	if !utf8.Valid(b) {
		return fmt.Sprintf("%q", b)
	}
	return string(b)
}

func (v claimView) name() string { return v.Key }

var claimHeader = []string{"KEY", "FENCE", "OWNER", "ASKED", "ATTEMPT", "KIND", "WAITING", "LONGEST", "NOTE"}

func (v claimView) cells() []string {
	kind := v.Kind
	if v.Slots > 0 {
		kind = fmt.Sprintf("%d slots", v.Slots)
	}
	return []string{v.Key, number(v.Fence), v.Owner, at(v.Since), number(v.Attempt), kind, number(v.Waiters), v.longest(time.Now()), shorten(v.Note)}
}

// longest is how long the first in line has waited.
func (v claimView) longest(now time.Time) string {
	if v.WaitingSince == nil {
		return ""
	}
	return max(now.Sub(*v.WaitingSince), 0).Round(time.Second).String()
}

// shorten is a note in a table.
func shorten(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func (a *app) listCommand() *cobra.Command {
	var mine string
	cmd := &cobra.Command{
		Use: "ls [PREFIX]", Aliases: []string{"list"}, GroupID: groupSee, Args: cobra.MaximumNArgs(1),
		Short: "List the keys that are held",
		Long: `List the keys that are held and begin with PREFIX, in the order of keys. All are
read at one revision of etcd, page by page, unless etcd compacts it meanwhile. A key
with slots has one line for their number, and one for each slot that is held:
KEY#slot-0 and so on; the first has those who wait for a slot. A key that callers
share has one line of the kind shared, and one for each of them: KEY#shared-ID.

ASKED is when the holder asked for the key, by the clock of its process: its wait in
line is part of that time. etcd has no time at which it got the key, only the revision,
which is "began" in JSON.

WAITING is how many callers are in the key's line, LONGEST how long the first of them
has waited, by the clock of its process. Callers within the client that holds the key
have no place in etcd. All lines together are read page by page, as the keys are; the
output name leaves them out.`,
		Example: `  claimctl ls orders/
  claimctl ls -o name orders/ | wc -l`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				held := listed(claims.List(ctx, append(args, "")[0]), mine)
				if a.format == formatName {
					return printList(a, claimHeader, held)
				}
				return a.printClaims(ctx, claims, held)
			})
		},
	}
	cmd.Flags().StringVar(&mine, "held-by", "", "only keys of this owner label")
	cmd.ValidArgsFunction = a.completeKeys
	return cmd
}

// printClaims prints the claims with their lines of waiters. If the lines cannot be read, the claims are
// printed without them.
func (a *app) printClaims(ctx context.Context, claims *etcdclaims.Client, held iter.Seq2[claimView, error]) error {
	var all []claimView
	var keys []string
	var failed error
	for v, err := range held {
		if err != nil {
			failed = err // what is known is shown, before the error
			break
		}
		all, keys = append(all, v), append(keys, v.Key)
	}
	at := make(map[string]int, len(keys))
	for i, key := range keys {
		at[key] = i
	}
	var unread error
	if failed == nil {
		for l, err := range admin.Lines(ctx, claims, keys) {
			if err != nil {
				unread = err
				break
			}
			v := &all[at[l.Key]]
			v.Waiters, v.WaitingOwner, v.WaitingSince = l.Waiting, l.Next.Owner, moment(l.Next.Since)
		}
	}
	err := printList(a, claimHeader, func(yield func(claimView, error) bool) {
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
		if failed != nil {
			yield(claimView{}, failed)
		}
	})
	switch {
	case err != nil || unread == nil:
		return err
	case errors.Is(unread, etcdclaims.ErrPermissionDenied) || errors.Is(unread, rpctypes.ErrPermissionDenied):
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
	if len(args) > 0 && cmd.Name() != "run" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeFrom(cmd, typed, func(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
		return mapped(claims.List(ctx, typed), func(i etcdclaims.Info) string { return i.Key })
	})
}

// completeFrom completes names that etcd has, the first hundred.
func (a *app) completeFrom(cmd *cobra.Command, typed string, all func(context.Context, *etcdclaims.Client) iter.Seq2[string, error]) ([]string, cobra.ShellCompDirective) {
	const most = 100
	a.completing = true
	if a.fromEnvironment(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
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
