package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/explain"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// partitionGroups looks for partitions that no member owns, and for members that are not there.
func (e *Examination) partitionGroups(ctx context.Context) {
	failed := 0
	var suspects []suspect
	members := map[string]int{} // of groups with suspects
	of := source{"groups", Warning, "see claimctl group ls", "cannot be read", 50}
	seen, unread, ok := each(ctx, e, of, group.Names(ctx, e.Claims), func(name string) error {
		found, n, unread, err := e.readGroup(ctx, name)
		failed += unread
		if len(found) > 0 {
			members[name] = n
			suspects = append(suspects, found...)
		}
		return err
	}) // after an error, what looks wrong in the others is still reported
	suspects, unconfirmed := confirm(ctx, suspects, func(ctx context.Context) (again []suspect, err error) {
		for name := range members {
			found, _, unread, err := e.readGroup(ctx, name)
			if err != nil {
				return nil, err
			}
			failed += unread
			again = append(again, found...)
		}
		return again, nil
	})
	for name, n := range members {
		e.accuse(name, n, suspects, unconfirmed)
	}
	if unread == "" {
		unread = unreadLeases(failed)
	}
	if ok && len(suspects) == 0 {
		e.Judge("groups", unread, "%s of partitions, without partitions that nobody owns", count(seen, "group", "groups"))
	}
}

// readGroup returns what looks wrong in a group, the number of members that are there, and the
// number of their leases that could not be read.
func (e *Examination) readGroup(ctx context.Context, name string) (found []suspect, members, unread int, err error) {
	g, err := explain.ReadPartitionGroup(ctx, e.Claims, name)
	if errors.Is(err, group.ErrNoGroup) { // it was removed meanwhile
		return nil, 0, 0, nil
	}
	if err != nil {
		return nil, 0, 0, err
	}
	leases := map[clientv3.LeaseID]bool{}
	for _, m := range g.Members {
		if m.Instance != "" && m.Evicted == nil {
			members++
			leases[m.Lease] = true
		}
	}
	gone, unread := e.goneLeases(ctx, leases)
	for _, m := range g.Members {
		if m.Instance != "" && (gone[m.Lease] || m.Lease == clientv3.NoLease) {
			found = append(found, suspect{name + " ghost", fmt.Sprint(m.Name, m.Lease), m.Name})
		}
	}
	for partition, target := range g.Plan.Target {
		if members == 0 || g.Assigned.Owners[partition].Reserved != "" || target == "" ||
			g.Holder(partition).Held || isAway(g.Assigned.Members, target) {
			continue
		}
		number := fmt.Sprintf("%05d", partition)
		found = append(found,
			suspect{name + " free", number + target, number}, suspect{name + " target", number + target, target})
	}
	return found, members, unread, nil
}

// isAway reports whether a member is away: nobody is to claim its partitions.
func isAway(members []group.MemberInfo, name string) bool {
	return slices.ContainsFunc(members, func(m group.MemberInfo) bool { return m.Name == name && m.Instance == "" })
}

// accuse reports what both readings of a group have found.
func (e *Examination) accuse(name string, members int, suspects []suspect, unconfirmed string) {
	free, ghosts := namesOf(suspects, name+" free"), namesOf(suspects, name+" ghost")
	if len(free) > 0 {
		targets := namesOf(suspects, name+" target")
		slices.Sort(targets)
		remedy := fmt.Sprintf("%[1]s group show%[2]s; look at the log of the member that is to have them, "+
			"and if it cannot claim: %[1]s group evict%[2]s MEMBER --reason WHY", e.Commands.Claimctl, explain.Arguments(name))
		e.Add(Warning, "groups", remedy, "group %q has %s, and nobody owns %s: %s, which %s is to have%s",
			name, count(members, "member", "members"), count(len(free), "partition", "partitions"),
			several(free), several(slices.Compact(targets)), unconfirmed)
	}
	if len(ghosts) > 0 {
		slices.Sort(ghosts)
		e.Add(Warning, "groups", fmt.Sprintf("etcd should have deleted the entry with its lease: "+
			"%[1]s group evict%[2]s --reason ghost --for 1s", e.Commands.Claimctl, explain.Arguments(name, ghosts[0])),
			"members of group %q whose lease is gone: %s%s", name, several(ghosts), unconfirmed)
	}
}
