package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/spf13/cobra"
)

type termView struct {
	Fence       int64      `json:"fence,string"`
	Owner       string     `json:"owner"`
	Instance    string     `json:"instance,omitempty"`
	Claim       string     `json:"claim,omitempty"`
	Since       *time.Time `json:"since,omitempty"` // when it asked for the key
	Began       int64      `json:"began,string"`    // etcd's revision
	Attempt     int        `json:"attempt,omitempty"`
	Kind        string     `json:"kind,omitempty"`
	EndRevision int64      `json:"endRevision,omitempty,string"`
	Ending      string     `json:"ending,omitempty"`
	Cause       string     `json:"cause,omitempty"`
}

func viewTerm(t admin.Term) termView {
	return termView{
		Fence: t.Fence, Owner: t.Owner, Instance: t.Instance, Claim: t.Claim, Since: moment(t.Since), Began: t.Revision(), Attempt: t.Attempt,
		Kind: t.Kind, EndRevision: t.EndRevision, Ending: string(t.Ending), Cause: t.Cause,
	}
}

func (v termView) name() string { return fmt.Sprint(v.Fence) }

var termHeader = []string{"FENCE", "OWNER", "ASKED", "ATTEMPT", "KIND", "BEGAN AT", "ENDED AT", "HOW"}

func (v termView) cells() []string {
	return []string{fmt.Sprint(v.Fence), v.Owner, at(v.Since), number(v.Attempt), v.Kind, number(v.Began), number(v.EndRevision), v.how()}
}

// how says how the term ended.
func (v termView) how() string {
	switch {
	case v.Ending == "":
		return "held"
	case v.Cause != "":
		return v.Ending + " by " + v.Cause
	}
	return v.Ending
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
	cmd := &cobra.Command{
		Use: "history KEY", GroupID: groupSee, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKeys,
		Short: "Show the terms of a key, oldest first",
		Long: `Show the terms of a key, oldest first, and how each ended. They are read from
etcd's own revisions, back to its last compaction, and nothing is written.

ASKED is when the holder asked for the key, by the clock of its process: its wait in
line is part of that time. BEGAN AT and ENDED AT are revisions of etcd, which keeps no
times.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usageError("--limit %d is negative", limit)
			}
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				var newest []admin.HistoryOption
				if limit > 0 {
					newest = append(newest, admin.Newest(min(limit, 10_000)))
				}
				h, err := admin.History(ctx, claims, args[0], newest...)
				if err != nil {
					return err
				}
				v := historyView{Key: args[0], From: h.From, Revision: h.Revision, Terms: []termView{}}
				for _, t := range h.Terms {
					v.Terms = append(v.Terms, viewTerm(t))
				}
				if a.format == formatJSON {
					return a.printJSON(v)
				}
				err = printList(a, termHeader, sequence(v.Terms))
				if h.From > 1 {
					a.say("etcd was compacted: terms that ended before revision %d are not known", h.From)
				}
				return err
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "show only the newest terms (0: all that are known, at most 10,000)")
	return cmd
}

// sequence yields a slice as printList takes it.
func sequence[T any](all []T) func(func(T, error) bool) {
	return func(yield func(T, error) bool) {
		for v := range slices.Values(all) {
			if !yield(v, nil) {
				return
			}
		}
	}
}
