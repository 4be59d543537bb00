package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/spf13/cobra"
)

// explanation is all that is known of one key.
type explanation struct {
	claimView
	Left     string       `json:"left,omitempty"` // of the lease
	Renewal  *renewal     `json:"renewal,omitempty"`
	Waiting  []waiterView `json:"waiting"`
	Next     *nextView    `json:"next,omitempty"`
	Work     *workView    `json:"work,omitempty"`
	Previous *termView    `json:"previous,omitempty"`
	Holders  []claimView  `json:"holders,omitempty"` // of its slots, or who share it: 100 at most
	unread   error        // see explain.Key
}

// renewal is the last renewal of the holder's lease, known to a second.
type renewal struct {
	TTL     string    `json:"ttl"`
	Renewed time.Time `json:"renewed"` // or granted, by the clock of this host
	Overdue bool      `json:"overdue"` // the holder should have renewed since
	is      explain.Renewal
}

type waiterView struct {
	Owner    string    `json:"owner"`
	Instance string    `json:"instance"`
	Claim    string    `json:"claim"`
	Since    time.Time `json:"since,omitzero"`
	Ghost    bool      `json:"ghost,omitempty"` // its lease is gone

	Preference int `json:"preference,omitempty"`
}

// nextView is the waiter that gets the key next.
type nextView struct {
	Owner string `json:"owner"`
	Claim string `json:"claim"`
	// At is when the waiter gets the key if the holder is dead.
	At time.Time `json:"at,omitzero"`
}

func (a *app) explainCommand() *cobra.Command {
	return a.command(spec{
		use: "explain KEY", group: groupSee, least: 1, most: 1, names: a.completeKeys,
		short: "Explain a key: its holder, its deadline, and the callers in line",
		long: `Explain a key. The command prints:

  - the holder, when it asked for the key (its wait in line is part of that time), the
    revision at which it got the key, and its last renewal
  - when the key is free if the holder is dead
  - the callers in line, in their order, with how long they wait, and the next of them
  - the record of the key's work, if there is one
  - how the previous term ended, unless etcd has compacted it

Callers in line are listed in the order in which they came. The release of a claim that
has a preference goes to the caller with the greatest one instead of the next.

The parts are read one after the other.

A renewal is overdue when the holder has missed one of those that it makes every
third of the lease time: it is cut off, stopped or dead.

Callers within the client that holds the key have no place in etcd and are
missing from the line.

If etcd has nothing of the key, the command fails, and names those with a similar name among
the keys that are held, the queues and the jobs.`,
		run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
			x, err := readExplanation(ctx, claims, args[0])
			if err != nil {
				return err
			}
			if x.unknown() {
				return fmt.Errorf("explain %q: the key has no claim, no record, no line and no earlier term that etcd still has; %s",
					args[0], a.instead(explain.Near(ctx, claims, args[0])))
			}
			if x.unread != nil {
				a.remark(x.unread.Error())
			}
			return printOne(a, x, func(w io.Writer) { x.text(w, time.Now(), a.claimctl()) })
		},
	})
}

// instead returns what to do about a key that etcd does not know: the commands for names like it.
func (a *app) instead(near []string) string {
	if len(near) == 0 {
		return "claimctl ls lists the keys that are held"
	}
	const most = 3
	shown := views(near[:min(len(near), most)], func(command string) string { return a.claimctl() + " " + command })
	return "near names: " + strings.Join(shown, "; ")
}

func readExplanation(ctx context.Context, claims *etcdclaims.Client, key string) (explanation, error) {
	works, err := work.New(claims, work.Config{})
	if err != nil {
		return explanation{}, err
	}
	r := explain.Reader{
		Claims:  claims,
		Works:   works,
		Sharers: 100,
		Line:    math.MaxInt,
		Terms:   100,
		Ghosts:  true,
	}
	is, err := r.Key(ctx, key)
	if err != nil {
		return explanation{}, err
	}
	if len(is.Line) == 0 {
		if is.Line, err = r.WholeLine(ctx, key); err != nil {
			return explanation{}, err
		}
	}
	x := explanation{claimView: viewClaim(is.Info), Holders: views(is.Holders, viewClaim), unread: is.Unread}
	if is.Info.Held && !is.Info.Expires.IsZero() {
		x.Left = is.Info.TTL.String()
	}
	if r := is.Renewal; r != nil {
		x.Renewal = &renewal{TTL: r.TTL.String(), Renewed: r.At.UTC(), Overdue: r.Overdue, is: *r}
	}
	x.Waiting = views(is.Line, func(w explain.Place) waiterView {
		return waiterView{
			Owner:      w.Owner,
			Instance:   w.Instance,
			Claim:      w.Claim,
			Since:      w.Since.UTC(),
			Ghost:      w.Ghost,
			Preference: w.Preference,
		}
	})
	if w := is.Next(); w != nil {
		x.Next = &nextView{Owner: w.Owner, Claim: w.Claim, At: x.Expires}
	}
	if is.Record != nil {
		x.Work = new(viewWork(*is.Record))
	}
	if t := is.Previous(); t != nil {
		x.Previous = new(viewTerm(*t))
	}
	return x, nil
}

// unknown reports whether etcd has nothing of the key, as of one that is misspelt.
func (x explanation) unknown() bool {
	return !x.Held && len(x.Waiting)+len(x.Holders) == 0 && x.Work == nil && x.Previous == nil && x.unread == nil
}

// full reports whether the next caller waits for a holder.
func (x explanation) full() bool {
	if x.Slots > 0 {
		return len(x.Holders) >= x.Slots
	}
	return x.Held
}

// text prints the explanation; claimctl is how a command of it begins.
func (x explanation) text(w io.Writer, now time.Time, claimctl string) {
	field := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%-10s %s\n", name+":", clean(value))
		}
	}
	field("Key", x.Key)
	switch {
	case x.Slots > 0:
		field("State", fmt.Sprintf("%s, %d held", errtext.Count(x.Slots, "slot", "slots"), len(x.Holders)))
		x.holders(w, now)
	case x.Shared > 0:
		field("State", fmt.Sprintf("shared by %s, with the fence %d", errtext.Count(x.Shared, "caller", "callers"), x.Fence))
		x.holders(w, now)
	case x.Newer:
		field("State", "held. The value was written by a newer version: look at it with a claimctl of that version")
	case x.Held:
		field("State", "held")
	case len(x.Waiting) > 0:
		field("State", "free, but others wait in line")
	default:
		field("State", "free")
	}
	if x.Held && x.Slots == 0 && x.Shared == 0 {
		field("Owner", x.Owner)
		field("Instance", x.Instance)
		field("Claim", x.Claim)
		field("Fence", fmt.Sprint(x.Fence))
		field("Attempt", column{}.number(int64(x.Attempt)))
		field("Kind", kindText(x.Kind))
		field("Asked", since(x.Since, now))
		if x.Began != 0 {
			field("Began", fmt.Sprintf("at revision %d of etcd, which keeps no times", x.Began))
		}
		switch {
		case x.Lease == "" && !x.Newer:
			field("Lease", "none: another program wrote the key, and it does not expire")
		case !x.Expires.IsZero() && x.Left != "":
			field("Lease", fmt.Sprintf("%s, %s left: if the owner is dead, the key is free within 2 s of %s",
				x.Lease, x.Left, explain.Stamp(x.Expires)))
		default:
			field("Lease", x.Lease)
		}
		field("Renewed", x.Renewal.text(now))
		field("Note", x.Note)
	}
	field("Waiting", fmt.Sprint(len(x.Waiting)))
	for i, waiter := range x.Waiting {
		more := ""
		if waiter.Preference > 0 {
			more = fmt.Sprintf("; preference %d", waiter.Preference)
		}
		if waiter.Ghost {
			more += "; a ghost: its lease is gone"
		}
		asked := cmp.Or(since(waiter.Since, now), "unknown")
		_, _ = fmt.Fprintf(w, "%10d. %s, since %s%s\n", i+1, clean(waiter.Owner), asked, more)
	}
	field("Next", x.Next.text(x.full()))
	if x.Work != nil {
		field("Work", x.Work.summary())
		field("Error", x.Work.Error)
	}
	if p := x.Previous; p != nil {
		field("Previous", fmt.Sprintf("fence %d of %s, ended at revision %d: %s", p.Fence, p.Owner, p.EndRevision, p.How))
	}
	if len(x.Holders) > 0 {
		field("To see one", fmt.Sprintf("%s explain%s", claimctl, explain.Arguments(x.Holders[0].Key)))
	}
	free := func(held claimView) {
		field("To free it", fmt.Sprintf("%s release --fence %d --reason WHY%s", claimctl, held.Fence, explain.Arguments(held.Key)))
	}
	if len(x.Holders) > 0 && x.Slots > 0 && !x.Holders[0].Newer {
		free(x.Holders[0])
	}
	if x.Held && x.Slots == 0 && !x.Newer {
		free(x.claimView)
	}
}

// holders prints the holders of the key's slots, or the callers that share it.
func (x explanation) holders(w io.Writer, now time.Time) {
	for _, h := range x.Holders {
		fence := fmt.Sprintf("fence %d, ", h.Fence)
		if x.Shared > 0 {
			fence = "" // their writes carry that of the key; release needs that of the claim, which explain of it shows
		}
		asked := cmp.Or(since(h.Since, now), "unknown")
		_, _ = fmt.Fprintf(w, "%11s%s: %s, %sasked %s\n", "", clean(h.Key), clean(h.Owner), fence, asked)
	}
}

func (r *renewal) text(now time.Time) string {
	if r == nil {
		return ""
	}
	ago := max(now.Sub(r.is.At), 0).Round(time.Second)
	if r.is.Overdue {
		return fmt.Sprintf("about %s ago, overdue: the holder renews every %s, and is cut off, stopped or dead",
			ago, r.is.Every())
	}
	return fmt.Sprintf("about %s ago, of a lease of %s", ago, r.TTL)
}

func (n *nextView) text(held bool) string {
	switch {
	case n == nil:
		return ""
	case !held:
		return n.Owner + ", at once"
	case n.At.IsZero():
		return n.Owner + ", when the key is released"
	}
	return fmt.Sprintf("%s, when the key is released; within 2 s of %s if the owner is dead", n.Owner, explain.Stamp(n.At))
}

// kindText says what the kinds of holders are that are no plain claims.
func kindText(kind string) string {
	return cmp.Or(map[string]string{
		"zombie":  "zombie: the handler did not stop in time, and the key is free when the lease ends",
		"resting": "resting: released before its MinHold was over, and free when the lease ends",
		"lock":    "lock: of an owner name, and free when the lease ends",
	}[kind], kind)
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago, by the clock of that process)", explain.Stamp(t), max(now.Sub(t), 0).Round(time.Second))
}
