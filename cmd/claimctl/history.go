package main

import (
	"cmp"
	"context"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type termView struct {
	Fence       int64     `json:"fence,string" col:"FENCE"`
	Owner       string    `json:"owner" col:"OWNER"`
	Instance    string    `json:"instance,omitempty"`
	Claim       string    `json:"claim,omitempty"`
	Since       time.Time `json:"since,omitzero" col:"ASKED"`  // when it asked for the key
	Began       int64     `json:"began,string" col:"BEGAN AT"` // etcd's revision
	Attempt     int       `json:"attempt,omitempty" col:"ATTEMPT"`
	Kind        string    `json:"kind,omitempty" col:"KIND"`
	EndRevision int64     `json:"endRevision,omitempty,string" col:"ENDED AT"`
	Ending      string    `json:"ending,omitempty"`
	Cause       string    `json:"cause,omitempty"`
	How         string    `json:"-" col:"HOW,short"` // Ending and Cause
}

const termColumns = "FENCE,OWNER,HOW,ASKED,ENDED AT,BEGAN AT,ATTEMPT,KIND"

func viewTerm(t admin.Term) termView {
	v := termView{
		Fence: t.Fence, Owner: t.Owner, Instance: t.Instance, Claim: t.Claim, Since: t.Since.UTC(), Began: t.Revision(),
		Attempt: t.Attempt, Kind: t.Kind, EndRevision: t.EndRevision, Ending: string(t.Ending), Cause: t.Cause,
		How: cmp.Or(string(t.Ending), "held"),
	}
	if v.Ending != "" && v.Cause != "" {
		v.How += " by " + v.Cause
	}
	return v
}

// historyView is the history of a key as one JSON value.
type historyView struct {
	Key      string     `json:"key"`
	From     int64      `json:"from,string"`
	Revision int64      `json:"revision,string"`
	Terms    []termView `json:"terms"`
}

func (a *app) historyCommand() *cobra.Command {
	var limit int
	return a.command(spec{
		use: "history KEY", table: termColumns, group: groupSee, least: 1, most: 1, names: a.completeKeys,
		short: "Show the terms of a key, oldest first",
		long: `Show the terms of a key, oldest first, and how each ended. They are read from
etcd's own revisions, back to its last compaction, and nothing is written.

ASKED is when the holder asked for the key, by the clock of its process: its wait in
line is part of that time. BEGAN AT and ENDED AT are revisions of etcd, which keeps no
times.`,
		flags: func(flags *pflag.FlagSet) {
			flags.IntVarP(&limit, "limit", "n", 0, "show only the newest terms (0: all that are known, at most 10,000)")
		},
		check: func([]string) error {
			return usageIf(limit < 0, "--limit %d is negative", limit)
		},
		run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
			var newest []admin.HistoryOption
			if limit > 0 {
				newest = append(newest, admin.Newest(min(limit, 10_000)))
			}
			h, err := admin.History(ctx, claims, args[0], newest...)
			if err != nil {
				return err
			}
			v := historyView{Key: args[0], From: h.From, Revision: h.Revision, Terms: views(h.Terms, viewTerm)}
			if a.format == formatJSON || a.format == formatYAML {
				sortRows(v.Terms, a.sortBy)
				return a.printJSON(v)
			}
			err = printList(a, termColumns, sequence(v.Terms))
			if h.From > 1 {
				a.say("etcd was compacted: terms that ended before revision %d are not known", h.From)
			}
			return err
		},
	})
}

func (a *app) auditCommand() *cobra.Command {
	var limit int
	var since time.Duration
	return a.command(spec{
		use: "audit", table: actionColumns, group: groupSee,
		short: "Show what operators did, newest first",
		long: `Show what operators did by claimctl, the page or a program: who, what, why, and at
which revision of etcd. What changed nothing is not shown. Each command that
changes something takes --as and --reason. Programs make some calls, too, such as
cancelling an item: these are shown only if a person made them.

At most 10,000 actions of 90 days are kept.`,
		example: `  claimctl audit --since 24h
  claimctl audit -n 1000 -o json | jq '.[] | select(.queue == "thumbnails")'`,
		flags: func(flags *pflag.FlagSet) {
			flags.IntVarP(&limit, "limit", "n", 100, "show only the newest actions")
			flags.DurationVar(&since, "since", 0, "show only actions of this time until now (0: all)")
		},
		check: func([]string) error {
			return usageIf(limit < 1 || since < 0, "audit: --limit must be positive, and --since must not be negative")
		},
		run: func(ctx context.Context, claims *etcdclaims.Client, _ []string) error {
			var from time.Time
			if since > 0 {
				from = time.Now().Add(-since)
			}
			all, err := admin.Actions(ctx, claims, limit, from)
			if err != nil {
				return err
			}
			return printList(a, actionColumns, sequence(views(all, viewAction)))
		},
	})
}

// actionView is what an operator did.
type actionView struct {
	Revision int64     `json:"revision,string" col:"REVISION"`
	At       time.Time `json:"at" col:"AT"`
	Who      string    `json:"who,omitempty" col:"WHO"`
	Verb     string    `json:"verb,omitempty"`
	Key      string    `json:"key,omitempty"`
	Group    string    `json:"group,omitempty"`
	Job      string    `json:"job,omitempty"`
	Member   string    `json:"member,omitempty"`
	Queue    string    `json:"queue,omitempty"`
	Item     string    `json:"item,omitempty"`
	Detail   string    `json:"detail,omitempty" col:"DETAIL,short"`
	Why      string    `json:"why,omitempty" col:"WHY,short"`
	Error    string    `json:"error,omitempty"` // why it cannot be read

	What string `json:"-" col:"WHAT,short"` // the verb and its object
}

const actionColumns = "AT,WHO,WHAT,WHY,DETAIL,REVISION"

func viewAction(is admin.Action) actionView {
	v := actionView{
		Revision: is.Revision, At: is.At.UTC(), Who: is.Who, Verb: is.Verb, Key: is.Key, Group: is.Group, Job: is.Job,
		Member: is.Member, Queue: is.Queue, Item: is.Item, Detail: is.Detail, Why: is.Why, What: explain.Action(is),
	}
	if is.Err != nil {
		v.Error = is.Err.Error()
	}
	return v
}
