package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// handOverTime is how long an evicted member has to hand over its partitions, and what is taken
// from it by force after that.
const handOverTime = 15 * time.Second

func (a *app) groupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "group", GroupID: groupRepair, Short: "Show and repair groups: partitions of work and their members",
		Long: `Show and repair groups: a fixed number of partitions, spread over the members that are
there (package etcdclaims/group).`,
	}
	cmd.AddCommand(
		a.command(spec{
			use: "ls", table: groupColumns, short: "List the groups, with their members and the partitions that nobody owns",
			run: func(ctx context.Context, claims *etcdclaims.Client, _ []string) error {
				return printList(a, groupColumns, groupViews(ctx, claims))
			},
		}),
		a.command(on(spec{
			use: "show GROUP [PARTITION]", least: 1, most: 2, names: a.completeGroups,
			short: "Show a group and its members, or one partition with its owner and fence",
			long: `Show a group and its members, or one partition with its owner and fence.

WANTS is the share of the member in the plan that all members compute. A member that
is away has left and its partitions are reserved; one that is evicted may not be there. An
owner that is unlisted is not on the list and still has partitions: it drains them, or its
lease is about to lapse.`,
		}, readGroup, func(_ context.Context, g explain.PartitionGroup, args []string) error {
			if len(args) == 1 {
				return a.printGroup(g)
			}
			partition, err := strconv.Atoi(args[1])
			if err != nil || partition < 0 || partition >= g.Partitions {
				return usageError("show group %q: partition %q is not a number from 0 to %d",
					g.Group, args[1], g.Partitions-1)
			}
			return printOne(a, viewPartition(g, partition), nil)
		})),
		a.groupPartitionCommand(), a.groupPlanCommand(), a.groupEvictCommand(),
		a.command(spec{
			use: "readmit GROUP MEMBER", least: 2, most: 2, names: a.completeGroups,
			short: "End the eviction of a member: its name may join again",
			long: `End the eviction of a member: a process may join with its name. A process that was
evicted does not join again by itself: start it again.`,
			run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
				err := inGroup(ctx, claims, args[0], func(v *group.View) error { return v.Readmit(ctx, args[1]) })
				done := doneView{Done: "readmitted", Group: args[0], Member: args[1]}
				return a.done(err, done, "readmitted %q to group %q", args[1], args[0])
			},
		}),
		a.command(spec{
			use: "remove GROUP", least: 1, most: 1, names: a.completeGroups,
			short: "Remove a group that has no members, with its number of partitions",
			long: `Remove what a group without members leaves in etcd: its number of partitions, and the
names that are away or evicted. The next process to join sets the number of partitions
anew. It is refused, with exit code 1, while the group has members or owned partitions.`,
			run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
				if _, err := group.Read(ctx, claims, args[0]); errors.Is(err, group.ErrNoGroup) || errors.Is(err, etcdclaims.ErrInvalidKey) {
					return err
				}
				return a.done(group.Remove(ctx, claims, args[0]), doneView{Done: "removed", Group: args[0]}, "removed group %q", args[0])
			},
		}))
	return cmd
}

// inGroup calls f with access to the members of a group.
func inGroup(ctx context.Context, claims *etcdclaims.Client, name string, f func(v *group.View) error) error {
	v, err := group.Open(ctx, claims, name)
	if err != nil {
		return err
	}
	defer v.Close()
	return f(v)
}

// groupViews yields all groups.
func groupViews(ctx context.Context, claims *etcdclaims.Client) func(func(groupView, error) bool) {
	return func(yield func(groupView, error) bool) {
		for name, err := range group.Names(ctx, claims) {
			var g explain.PartitionGroup
			if err == nil {
				g, err = explain.ReadPartitionGroup(ctx, claims, name)
			}
			if errors.Is(err, group.ErrNoGroup) {
				continue // it was removed meanwhile
			}
			if !yield(viewGroup(g), err) || ctx.Err() != nil { // it ends the others as well
				return
			}
		}
	}
}

func (a *app) groupPartitionCommand() *cobra.Command {
	var member string
	var free bool
	return a.command(on(spec{
		use: "partitions GROUP", table: partitionColumns, least: 1, most: 1, names: a.completeGroups,
		short: "List the partitions of a group with their owners and fences",
		flags: func(flags *pflag.FlagSet) {
			flags.StringVar(&member, "member", "", "only those of this member")
			flags.BoolVar(&free, "free", false, "only those that nobody owns")
		},
	}, readGroup, func(_ context.Context, g explain.PartitionGroup, _ []string) error {
		var all []partitionView
		for partition := range g.Partitions {
			v := viewPartition(g, partition)
			if (member == "" || v.Member == member) && (!free || v.Fence == 0) {
				all = append(all, v)
			}
		}
		return printList(a, partitionColumns, sequence(all))
	}))
}

func (a *app) groupPlanCommand() *cobra.Command {
	var join, leave []string
	var newcomers []group.MemberInfo
	return a.command(on(spec{
		use: "plan GROUP", table: moveColumns, least: 1, most: 1, names: a.completeGroups,
		short: "List the partitions that are to move, now or after joins and leaves",
		long: `List the partitions that are to move. With --join and --leave it is a dry run: the partitions
that would move if these members came and went. Nothing is changed.`,
		example: `  claimctl group plan orders --join pod-7=2 --leave pod-3`,
		flags: func(flags *pflag.FlagSet) {
			flags.StringSliceVar(&join, "join", nil, "names of members to join, each with =WEIGHT if it is not 1")
			flags.StringSliceVar(&leave, "leave", nil, "names of members to leave")
		},
		check: func([]string) (err error) {
			newcomers, err = parseMembers(join)
			return err
		},
	}, readGroup, func(_ context.Context, g explain.PartitionGroup, _ []string) error {
		for _, name := range leave {
			if !slices.ContainsFunc(g.Assigned.Members, func(m group.MemberInfo) bool { return m.Name == name }) {
				return &exitError{exitFailure, fmt.Errorf("plan of group %q: %q is not a member", g.Group, name)}
			}
		}
		moves := sequence(g.Assigned.Plan(newcomers, leave...).Moves)
		return printList(a, moveColumns, mapped(moves, viewMove))
	}))
}

// maxWeight is the greatest group.Config.Weight.
const maxWeight = 1_000_000

// parseMembers reads the members of --join.
func parseMembers(join []string) (members []group.MemberInfo, err error) {
	for _, j := range join {
		name, weight := j, 1
		if before, after, found := strings.Cut(j, "="); found {
			name = before
			if weight, err = strconv.Atoi(after); err != nil || weight < 1 || weight > maxWeight {
				return nil, usageError("plan: --join %q: the weight is not a number from 1 to %d", j, maxWeight)
			}
		}
		if name == "" {
			return nil, usageError("plan: --join %q has no name", j)
		}
		members = append(members, group.MemberInfo{Name: name, Weight: weight})
	}
	return members, nil
}

func (a *app) groupEvictCommand() *cobra.Command {
	var length time.Duration
	return a.command(spec{
		use: "evict GROUP MEMBER --reason WHY", least: 2, most: 2, names: a.completeGroups,
		short: "Take a member off the list, and keep its name off for a while",
		long: `Take a member off the list that renews its claims but does not work, and keep its name
off the list for a while. A member that works hands its partitions over. After 5 s, what is
left is taken from it: only fences stop what its handlers still write. A name that is
no member is only kept off. readmit ends it early.`,
		example: `  claimctl group evict orders pod-3 --reason "hangs, INC-311" --for 30m`,
		flags: func(flags *pflag.FlagSet) {
			flags.DurationVar(&length, "for", time.Hour, "how long the name is kept off the list")
		},
		check: func(args []string) error {
			return usageIf(length < time.Second, "evict %q from group %q: --for %v is shorter than 1s",
				args[1], args[0], length)
		},
		run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
			handing, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.commandTimeout+handOverTime)
			defer cancel()
			done := doneView{Done: "evicted", Group: args[0], Member: args[1], Reason: a.reason}
			until := explain.Stamp(time.Now().Add(length))
			err := inGroup(ctx, claims, args[0], func(v *group.View) error {
				return v.Evict(handing, args[1], a.reason, length)
			})
			return a.done(err, done, "evicted %q from group %q until %s: %s", args[1], args[0], until, a.reason)
		},
	})
}

// completeGroups completes the names of groups.
func (a *app) completeGroups(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd, args, typed, group.Names)
}

// readGroup reads the group that is the first argument.
func readGroup(ctx context.Context, claims *etcdclaims.Client, args []string) (explain.PartitionGroup, error) {
	g, err := explain.ReadPartitionGroup(ctx, claims, args[0])
	if errors.Is(err, etcdclaims.ErrInvalidKey) {
		err = &exitError{exitUsage, err}
	}
	return g, err
}

// groupView is a group in a list.
type groupView struct {
	Group      string `json:"group" col:"GROUP"`
	Partitions int    `json:"partitions" col:"PARTITIONS,0"`
	Members    int    `json:"members" col:"MEMBERS,0"` // on the list and there
	Away       int    `json:"away" col:"AWAY"`
	Evicted    int    `json:"evicted" col:"EVICTED"`
	Free       int    `json:"free" col:"FREE"`         // partitions that nobody owns
	Reserved   int    `json:"reserved" col:"RESERVED"` // of these, for members that are away
	Moving     int    `json:"moving" col:"MOVING"`     // owned partitions that are to go to another member

	MemberList []memberView `json:"memberList,omitempty"` // of show
}

const groupColumns = "GROUP,PARTITIONS,MEMBERS,AWAY,EVICTED,FREE,RESERVED,MOVING"

func viewGroup(g explain.PartitionGroup) groupView {
	n := g.Counts()
	return groupView{
		Group: g.Group, Partitions: g.Partitions, Members: n.Members, Away: n.Away, Evicted: n.Evicted,
		Free: n.Free, Reserved: n.Reserved, Moving: n.Moving,
	}
}

// memberView is a member of a group.
type memberView struct {
	Member   string    `json:"member" col:"MEMBER"`
	State    string    `json:"state" col:"STATE"` // member, away, evicted, unlisted or unreadable
	Weight   int       `json:"weight,omitempty" col:"WEIGHT"`
	Zone     string    `json:"zone,omitempty" col:"ZONE"`
	Address  string    `json:"address,omitempty"`
	Instance string    `json:"instance,omitempty"`
	Owns     int       `json:"owns" col:"OWNS,0"`
	Wants    int       `json:"wants" col:"WANTS,0"`
	Reserved int       `json:"reserved,omitempty" col:"RESERVED"`
	Since    time.Time `json:"since,omitzero" col:"SINCE"`
	Until    time.Time `json:"until,omitzero" col:"UNTIL"` // the end of the reservation or of the eviction
	By       string    `json:"by,omitempty"`               // who evicted it
	Why      string    `json:"why,omitempty"`
	Reason   string    `json:"-" col:"WHY,short"` // By and Why
}

const memberColumns = "MEMBER,STATE,OWNS,WANTS,WHY,UNTIL,WEIGHT,ZONE,RESERVED,SINCE"

func viewMember(m explain.PartitionMember) memberView {
	v := memberView{
		Member: m.Name, State: m.State, Weight: m.Weight, Zone: m.Zone, Address: m.Address, Instance: m.Instance,
		Owns: m.Owns, Wants: m.Wants, Reserved: m.Reserved, Since: m.Since.UTC(), Until: m.Until.UTC(),
		By: m.By, Why: m.Why, Reason: m.Why,
	}
	if v.By != "" {
		v.Reason = v.By + ": " + v.Why
	}
	return v
}

// partitionView is a partition of a group.
type partitionView struct {
	Partition int       `json:"partition" col:"PARTITION,0"`
	Key       string    `json:"key" col:"KEY"`
	Member    string    `json:"member,omitempty" col:"MEMBER"` // empty if nobody owns it, or an owner that is not on the list
	Owner     string    `json:"owner,omitempty" col:"OWNER"`   // label of the client
	Instance  string    `json:"instance,omitempty" col:"INSTANCE"`
	Fence     int64     `json:"fence,string" col:"FENCE"`
	Since     time.Time `json:"since,omitzero" col:"SINCE"`
	Reserved  string    `json:"reserved,omitempty" col:"RESERVED"`
	Target    string    `json:"target,omitempty" col:"TARGET"`
}

const partitionColumns = "PARTITION,MEMBER,TARGET,FENCE,OWNER,RESERVED,SINCE"

func viewPartition(g explain.PartitionGroup, partition int) partitionView {
	i, o := g.Holder(partition), g.Assigned.Owners[partition]
	return partitionView{
		Partition: partition, Key: g.PartitionKey(partition), Member: o.Member, Owner: i.Owner, Instance: i.Instance,
		Fence: i.Fence, Since: i.Since.UTC(), Reserved: o.Reserved, Target: g.Plan.Target[partition],
	}
}

func (v partitionView) name() string { return v.Key }

// moveView is a partition that is to go to a member.
type moveView struct {
	Partition int    `json:"partition" col:"PARTITION,0"`
	From      string `json:"from,omitempty" col:"FROM"` // empty if no member owns it
	To        string `json:"to" col:"TO"`
	Why       string `json:"why" col:"WHY"`
}

const moveColumns = "PARTITION,FROM,TO,WHY"

func viewMove(m group.Move) moveView { return moveView{m.Partition, m.From, m.To, m.Why} }

// printGroup prints a group and its members.
func (a *app) printGroup(g explain.PartitionGroup) error {
	v := viewGroup(g)
	v.MemberList = views(g.AllMembers(), viewMember)
	return printOne(a, v, func(w io.Writer) {
		details(w, v)
		_ = printList(a, memberColumns, sequence(v.MemberList)) // it writes to w, too
	})
}
