package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/spf13/cobra"
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
	list := &cobra.Command{
		Use: "ls", Args: cobra.NoArgs, Short: "List the groups, with their members and the partitions that nobody owns",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				return printList(a, groupHeader, groupViews(ctx, claims))
			})
		},
	}
	remove := &cobra.Command{
		Use: "remove GROUP", Args: cobra.ExactArgs(1), Short: "Remove a group that has no members, with its number of partitions",
		Long: `Remove what a group without members leaves in etcd: its number of partitions, and the
names that are away or evicted. The next process to join sets the number of partitions
anew. It is refused, with exit code 1, while the group has members or owned partitions.`,
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				if _, err := group.Read(ctx, claims, args[0]); errors.Is(err, group.ErrNoGroup) || errors.Is(err, etcdclaims.ErrInvalidKey) {
					return err
				}
				return a.done(group.Remove(ctx, claims, args[0]), doneView{Done: "removed", Group: args[0]}, "removed group %q", args[0])
			})
		},
	}
	cmd.AddCommand(list, a.groupShowCommand(), a.groupPartitionCommand(), a.groupPlanCommand(), a.groupEvictCommand(), a.groupReadmitCommand(), remove)
	return cmd
}

// groupViews yields all groups.
func groupViews(ctx context.Context, claims *etcdclaims.Client) func(func(groupView, error) bool) {
	return func(yield func(groupView, error) bool) {
		for name, err := range group.Names(ctx, claims) {
			var g groupState
			if err == nil {
				g, err = readGroup(ctx, claims, name)
			}
			if errors.Is(err, group.ErrNoGroup) {
				continue // it was removed meanwhile
			}
			if err != nil {
				yield(groupView{}, err)
				return
			}
			if !yield(g.view(), nil) {
				return
			}
		}
	}
}

func (a *app) groupShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show GROUP [PARTITION]", Args: cobra.RangeArgs(1, 2), Short: "Show a group and its members, or one partition with its owner and fence",
		Long: `Show a group and its members, or one partition with its owner and fence.

WANTS is the share of the member in the plan that all members compute. A member that
is away has left and its partitions are reserved; one that is evicted may not be there. An
owner that is unlisted is not on the list and still has partitions: it drains them, or its
lease is about to lapse.`,
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				g, err := readGroup(ctx, claims, args[0])
				if err != nil {
					return err
				}
				if len(args) == 1 {
					v := g.view()
					v.MemberList = g.members()
					return printOne(a, v, v.text)
				}
				partition, err := strconv.Atoi(args[1])
				if err != nil || partition < 0 || partition >= g.Partitions {
					return usageError("show group %q: partition %q is not a number from 0 to %d", g.Group, args[1], g.Partitions-1)
				}
				v := g.partition(partition)
				return printOne(a, v, v.text)
			})
		},
	}
}

func (a *app) groupPartitionCommand() *cobra.Command {
	var member string
	var free bool
	cmd := &cobra.Command{
		Use: "partitions GROUP", Args: cobra.ExactArgs(1), Short: "List the partitions of a group with their owners and fences",
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				g, err := readGroup(ctx, claims, args[0])
				if err != nil {
					return err
				}
				return printList(a, partitionHeader, func(yield func(partitionView, error) bool) {
					for partition := range g.Partitions {
						v := g.partition(partition)
						if member != "" && v.Member != member || free && v.Fence != 0 {
							continue
						}
						if !yield(v, nil) {
							return
						}
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&member, "member", "", "only those of this member")
	cmd.Flags().BoolVar(&free, "free", false, "only those that nobody owns")
	return cmd
}

func (a *app) groupPlanCommand() *cobra.Command {
	var join, leave []string
	cmd := &cobra.Command{
		Use: "plan GROUP", Args: cobra.ExactArgs(1), Short: "List the partitions that are to move, now or after joins and leaves",
		Long: `List the partitions that are to move. With --join and --leave it is a dry run: the partitions
that would move if these members came and went. Nothing is changed.`,
		Example:           `  claimctl group plan orders --join pod-7=2 --leave pod-3`,
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			newcomers, err := parseMembers(join)
			if err != nil {
				return err
			}
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				g, err := readGroup(ctx, claims, args[0])
				if err != nil {
					return err
				}
				for _, name := range leave {
					if !slices.ContainsFunc(g.Assigned.Members, func(m group.MemberInfo) bool { return m.Name == name }) {
						return &exitError{exitFailure, fmt.Errorf("plan of group %q: %q is not a member", g.Group, name)}
					}
				}
				return printList(a, moveHeader, mapped(sequence(g.Assigned.Plan(newcomers, leave...).Moves), viewMove))
			})
		},
	}
	cmd.Flags().StringSliceVar(&join, "join", nil, "names of members to join, each with =WEIGHT if it is not 1")
	cmd.Flags().StringSliceVar(&leave, "leave", nil, "names of members to leave")
	return cmd
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
	var reason string
	var length time.Duration
	cmd := &cobra.Command{
		Use: "evict GROUP MEMBER --reason WHY", Args: cobra.ExactArgs(2), Short: "Take a member off the list, and keep its name off for a while",
		Long: `Take a member off the list that renews its claims but does not work, and keep its name
off the list for a while. A member that works hands its partitions over. After 5 s, what is
left is taken from it: only fences stop what its handlers still write. A name that is
no member is only kept off. readmit ends it early.`,
		Example:           `  claimctl group evict orders pod-3 --reason "hangs, INC-311" --for 30m`,
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(reason) == "" {
				return usageError("evict %q from group %q: --reason is required: the member's log and show have it", args[1], args[0])
			}
			if length < time.Second {
				return usageError("evict %q from group %q: --for %v is shorter than 1s", args[1], args[0], length)
			}
			return a.viewed(cmd, args[0], func(ctx context.Context, v *group.View) error {
				done := doneView{Done: "evicted", Group: args[0], Member: args[1], Reason: reason}
				return a.done(v.Evict(ctx, args[1], reason, length), done, "evicted %q from group %q until %s: %s", args[1], args[0], evictedUntil(length), reason)
			})
		},
	}
	addReason(cmd, &reason, "why, for the member's log and for show (required)")
	cmd.Flags().DurationVar(&length, "for", time.Hour, "how long the name is kept off the list")
	return cmd
}

func (a *app) groupReadmitCommand() *cobra.Command {
	return &cobra.Command{
		Use: "readmit GROUP MEMBER", Args: cobra.ExactArgs(2), Short: "End the eviction of a member: its name may join again",
		Long: `End the eviction of a member: a process may join with its name. A process that was
evicted does not join again by itself: start it again.`,
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.viewed(cmd, args[0], func(ctx context.Context, v *group.View) error {
				return a.done(v.Readmit(ctx, args[1]), doneView{Done: "readmitted", Group: args[0], Member: args[1]}, "readmitted %q to group %q", args[1], args[0])
			})
		},
	}
}

// viewed calls f with a view of a group, and with the time that an eviction takes.
func (a *app) viewed(cmd *cobra.Command, name string, f func(ctx context.Context, v *group.View) error) error {
	return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
		v, err := group.Open(ctx, claims, name)
		if err != nil {
			return err
		}
		defer v.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), a.commandTimeout+handOverTime)
		defer cancel()
		return f(ctx, v)
	})
}

// completeGroups completes the names of groups.
func (a *app) completeGroups(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeFrom(cmd, typed, group.Names)
}
