package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/spf13/cobra"
)

// explanation is all that is known of one key.
type explanation struct {
	claimView
	Left     string       `json:"left,omitempty"` // of the lease
	Waiting  []waiterView `json:"waiting"`
	Work     *workView    `json:"work,omitempty"`
	Previous *termView    `json:"previous,omitempty"`
}

type waiterView struct {
	Owner    string     `json:"owner"`
	Instance string     `json:"instance"`
	Claim    string     `json:"claim"`
	Since    *time.Time `json:"since,omitempty"`
}

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain KEY", GroupID: groupSee, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKeys,
		Short: "Explain who holds a key, until when, and who waits for it",
		Long: `Explain who holds a key, since when, until when if the holder is dead, who waits
in which order, the record of its work if there is one, and how the previous term
ended if etcd still knows. The parts are read one after the other.

Callers within the client that holds the key have no place in etcd and are
missing from the line.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				x, err := explain(ctx, claims, args[0])
				if err != nil {
					return err
				}
				return printOne(a, x, func(w io.Writer) { x.text(w, time.Now()) })
			})
		},
	}
}

func explain(ctx context.Context, claims *etcdclaims.Client, key string) (explanation, error) {
	info, err := claims.Lookup(ctx, key)
	if err != nil {
		return explanation{}, err
	}
	x := explanation{claimView: viewClaim(info), Waiting: []waiterView{}}
	if info.Held && !info.Expires.IsZero() {
		x.Left = info.TTL.String()
	}
	line, err := claims.Line(ctx, key)
	if err != nil {
		return x, err
	}
	for _, w := range line {
		x.Waiting = append(x.Waiting, waiterView{Owner: w.Owner, Instance: w.Instance, Claim: w.Claim, Since: moment(w.Since)})
	}
	record, ok, err := claims.Record(ctx, key)
	if err == nil && ok {
		v := viewWork(record)
		x.Work = &v
	} else if err != nil {
		x.Work = &workView{Key: key, State: string(etcdclaims.StateUnreadable), Error: err.Error()}
	}
	history, err := claims.History(ctx, key)
	if err != nil {
		return x, err
	}
	for _, t := range history.Terms {
		if t.EndRevision != 0 {
			v := viewTerm(t)
			x.Previous = &v
		}
	}
	return x, nil
}

func (x explanation) text(w io.Writer, now time.Time) {
	field := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%-10s %s\n", name+":", clean(value))
		}
	}
	field("Key", x.Key)
	switch {
	case x.Held:
		field("State", "held")
	case len(x.Waiting) > 0:
		field("State", "free, but others wait in line")
	default:
		field("State", "free")
	}
	if x.Held {
		field("Owner", x.Owner)
		field("Instance", x.Instance)
		field("Claim", x.Claim)
		field("Fence", number(x.Fence))
		field("Attempt", number(x.Attempt))
		field("Kind", kindText(x.Kind))
		field("Since", since(x.Since, now))
		switch {
		case x.Lease == "":
			field("Lease", "none: another program wrote the key, and it does not expire")
		case x.Expires != nil && x.Left != "":
			field("Lease", fmt.Sprintf("%s, %s left: if the owner is dead, the key is free at %s", x.Lease, x.Left, at(x.Expires)))
		default:
			field("Lease", x.Lease)
		}
		field("Note", x.Note)
	}
	field("Waiting", fmt.Sprint(len(x.Waiting)))
	for i, waiter := range x.Waiting {
		_, _ = fmt.Fprintf(w, "%10d. %s, since %s\n", i+1, clean(waiter.Owner), fallback(since(waiter.Since, now), "unknown"))
	}
	if x.Work != nil {
		field("Work", x.Work.summary())
		field("Error", x.Work.Error)
	}
	if p := x.Previous; p != nil {
		field("Previous", fmt.Sprintf("fence %d of %s, ended at revision %d: %s", p.Fence, p.Owner, p.EndRevision, p.how()))
	}
}

// kindText says what the kinds of holders are that are no plain claims.
func kindText(kind string) string {
	switch kind {
	case "zombie":
		return "zombie: the handler did not stop in time, and the key is free when the lease ends"
	case "resting":
		return "resting: released before its MinHold was over, and free when the lease ends"
	case "lock":
		return "lock: of an owner name, and free when the lease ends"
	}
	return kind
}

func since(t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s ago, by the clock of that process)", at(t), max(now.Sub(*t), 0).Round(time.Second))
}
