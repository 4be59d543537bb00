package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
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
}

// renewal is the last renewal of the holder's lease, known to a second.
type renewal struct {
	TTL     string     `json:"ttl"`
	Renewed *time.Time `json:"renewed"` // or granted, by the clock of this host
	Overdue bool       `json:"overdue"` // the holder should have renewed since
	ago     time.Duration
	ttl     time.Duration
}

type waiterView struct {
	Owner    string     `json:"owner"`
	Instance string     `json:"instance"`
	Claim    string     `json:"claim"`
	Since    *time.Time `json:"since,omitempty"`
	Ghost    bool       `json:"ghost,omitempty"` // its lease is gone

	Preference int `json:"preference,omitempty"`
}

// nextView is the waiter that gets the key next.
type nextView struct {
	Owner string `json:"owner"`
	Claim string `json:"claim"`
	// At is when the waiter gets the key if the holder is dead.
	At *time.Time `json:"at,omitempty"`
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

If etcd has nothing of the key, the command fails: the key may be misspelt.`,
		run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
			x, err := explain(ctx, claims, args[0])
			if err != nil {
				return err
			}
			if x.unknown() {
				return fmt.Errorf("explain %q: the key has no claim, no record, no line and no earlier term that etcd still has; "+
					"claimctl ls lists the keys that are held", args[0])
			}
			return printOne(a, x, func(w io.Writer) { x.text(w, time.Now(), a.claimctl()) })
		},
	})
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
	if x.Renewal, err = viewRenewal(ctx, claims, info); err != nil {
		return x, err
	}
	if err := x.line(ctx, claims, key); err != nil {
		return x, err
	}
	if whole := doctor.WholeOf(key); whole != "" && len(x.Waiting) == 0 { // all slots of a key have one line
		info, err := claims.Lookup(ctx, whole)
		if err != nil {
			return x, err
		}
		if info.Slots > 0 {
			if err := x.line(ctx, claims, whole); err != nil {
				return x, err
			}
		}
	}
	if x.Holders, err = viewHolders(ctx, claims, info); err != nil {
		return x, err
	}
	works, err := work.New(claims, work.Config{})
	if err != nil {
		return x, err
	}
	record, ok, err := works.Record(ctx, key)
	if err == nil && ok {
		v := viewWork(record)
		x.Work = &v
	} else if err != nil {
		x.Work = &workView{Key: key, State: string(work.StateUnreadable), Error: err.Error()}
	}
	history, err := admin.History(ctx, claims, key, admin.Newest(100))
	if err != nil {
		return x, err
	}
	for _, t := range history.Terms {
		if t.EndRevision != 0 && t.Kind != kindSlots && t.Kind != kindShared { // whose claims have keys of their own
			v := viewTerm(t)
			x.Previous = &v
		}
	}
	return x, nil
}

// unknown reports whether etcd has nothing of the key, as of one that is misspelt.
func (x explanation) unknown() bool {
	return !x.Held && len(x.Waiting)+len(x.Holders) == 0 && x.Work == nil && x.Previous == nil
}

// viewHolders reads the claims on the slots of a key, or the first of those that share it.
func viewHolders(ctx context.Context, claims *etcdclaims.Client, i etcdclaims.Info) (views []claimView, err error) {
	var held []etcdclaims.Info
	switch {
	case i.Shared > 0:
		held, _, err = doctor.Sharers(ctx, claims, i.Key, 100)
	case i.Slots > 0:
		held, _, err = doctor.SlotHolders(ctx, claims, i.Key, math.MaxInt)
	}
	for _, h := range held {
		views = append(views, viewClaim(h))
	}
	return views, err
}

// viewRenewal reads the last renewal of a holder.
func viewRenewal(ctx context.Context, claims *etcdclaims.Client, i etcdclaims.Info) (*renewal, error) {
	r, err := doctor.LastRenewal(ctx, claims, i)
	if err != nil {
		return nil, fmt.Errorf("explain %q: read its lease: %w", i.Key, err)
	}
	if r == nil {
		return nil, nil
	}
	return &renewal{TTL: r.TTL.String(), Renewed: moment(r.At), Overdue: r.Overdue, ago: r.Ago, ttl: r.TTL}, nil
}

// line reads the line of a key, and finds the next owner: the first waiter that is alive.
func (x *explanation) line(ctx context.Context, claims *etcdclaims.Client, key string) error {
	const most = 20 // leases to ask for
	line, err := admin.Line(ctx, claims, key)
	if err != nil {
		return err
	}
	gone := map[clientv3.LeaseID]bool{clientv3.NoLease: true}
	for _, w := range line {
		if _, known := gone[w.Lease]; !known && len(gone) <= most {
			lease, err := doctor.LiveLease(ctx, claims.Etcd(), w.Lease)
			gone[w.Lease] = err == nil && lease == nil
		}
		v := waiterView{Owner: w.Owner, Instance: w.Instance, Claim: w.Claim, Since: moment(w.Since), Ghost: gone[w.Lease], Preference: w.Preference}
		x.Waiting = append(x.Waiting, v)
		if !v.Ghost && x.Next == nil {
			x.Next = &nextView{Owner: w.Owner, Claim: w.Claim, At: x.Expires}
		}
	}
	return nil
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
		field("State", fmt.Sprintf("%d slots, %d held", x.Slots, len(x.Holders)))
		x.holders(w, now)
	case x.Shared > 0:
		field("State", fmt.Sprintf("shared by %d callers, with the fence %d", x.Shared, x.Fence))
		x.holders(w, now)
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
		case x.Lease == "":
			field("Lease", "none: another program wrote the key, and it does not expire")
		case x.Expires != nil && x.Left != "":
			field("Lease", fmt.Sprintf("%s, %s left: if the owner is dead, the key is free within 2 s of %s", x.Lease, x.Left, at(x.Expires)))
		default:
			field("Lease", x.Lease)
		}
		field("Renewed", x.Renewal.text())
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
		_, _ = fmt.Fprintf(w, "%10d. %s, since %s%s\n", i+1, clean(waiter.Owner), fallback(since(waiter.Since, now), "unknown"), more)
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
		field("To see one", fmt.Sprintf("%s explain%s", claimctl, doctor.Arguments(x.Holders[0].Key)))
	}
	free := func(held claimView) {
		field("To free it", fmt.Sprintf("%s release --fence %d --reason WHY%s", claimctl, held.Fence, doctor.Arguments(held.Key)))
	}
	if len(x.Holders) > 0 && x.Slots > 0 {
		free(x.Holders[0])
	}
	if x.Held && x.Slots == 0 {
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
		_, _ = fmt.Fprintf(w, "%11s%s: %s, %sasked %s\n", "", clean(h.Key), clean(h.Owner), fence, fallback(since(h.Since, now), "unknown"))
	}
}

func (r *renewal) text() string {
	switch {
	case r == nil:
		return ""
	case r.Overdue:
		return fmt.Sprintf("about %s ago, overdue: the holder renews every %s, and is cut off, stopped or dead", r.ago.Round(time.Second), (r.ttl / 3).Round(time.Second))
	}
	return fmt.Sprintf("about %s ago, of a lease of %s", r.ago.Round(time.Second), r.TTL)
}

func (n *nextView) text(held bool) string {
	switch {
	case n == nil:
		return ""
	case !held:
		return n.Owner + ", at once"
	case n.At == nil:
		return n.Owner + ", when the key is released"
	}
	return fmt.Sprintf("%s, when the key is released; within 2 s of %s if the owner is dead", n.Owner, at(n.At))
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
