package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/group"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// suspicion is what looks wrong in a group at one reading. It counts if a second reading
// finds the same, or fails.
type suspicion struct {
	members map[string]clientv3.LeaseID // that are there, with their leases
	free    map[int]string              // targets of partitions that nobody owns, by partition
	ghosts  map[string]clientv3.LeaseID // members whose lease is gone
	unread  int                         // leases of members that could not be read
}

// partitionGroups looks for partitions that no member owns, and for members that are not there.
func (e *Examination) partitionGroups(ctx context.Context) {
	const most = 50
	seen, well, unread, failed := 0, true, "", 0
	suspects := map[string]suspicion{}
	var names []string
	for name, err := range group.Names(ctx, e.Claims) {
		if seen == most {
			unread = others
			break
		}
		var s suspicion
		if err == nil {
			s, err = e.suspect(ctx, name)
		}
		if !e.readable(err) {
			well = false
			break // what looks wrong in the others is still reported
		}
		failed += s.unread
		if seen++; len(s.free)+len(s.ghosts) > 0 {
			suspects[name], names = s, append(names, name)
		}
	}
	if len(names) > 0 {
		select {
		case <-time.After(patience):
		case <-ctx.Done(): // then the second reading fails
		}
	}
	for _, name := range names {
		before := suspects[name]
		later, err := e.suspect(ctx, name)
		switch {
		case errors.Is(err, group.ErrNoGroup): // it was removed meanwhile
			err = nil
		case err != nil:
			later = before
		default:
			later.recall(before)
			failed += later.unread
		}
		well = e.accuse(name, before, later, err) && well
	}
	if unread == "" {
		unread = unreadLeases(failed)
	}
	if well {
		e.Judge("groups", unread, "%s of partitions, without partitions that nobody owns", count(seen, "group", "groups"))
	}
}

// readable reports an error unless there is none, or a group was removed meanwhile.
func (e *Examination) readable(err error) bool {
	switch {
	case err == nil || errors.Is(err, group.ErrNoGroup):
		return true
	case isDenied(err):
		e.unread("groups")
		return false
	}
	e.Add(Warning, "groups", "see claimctl group ls", "cannot be read: %v", err)
	return false
}

// suspect reads a group.
func (e *Examination) suspect(ctx context.Context, name string) (s suspicion, err error) {
	g, err := ReadPartitionGroup(ctx, e.Claims, name)
	if err != nil {
		return s, err
	}
	leases := map[clientv3.LeaseID]bool{}
	s.members, s.free, s.ghosts = map[string]clientv3.LeaseID{}, map[int]string{}, map[string]clientv3.LeaseID{}
	for _, m := range g.Members {
		if m.Instance != "" && m.Evicted == nil {
			s.members[m.Name] = m.Lease
			leases[m.Lease] = true
		}
	}
	gone, failed := e.goneLeases(ctx, leases)
	s.unread = failed
	for _, m := range g.Members {
		if m.Instance != "" && (gone[m.Lease] || m.Lease == clientv3.NoLease) {
			s.ghosts[m.Name] = m.Lease
		}
	}
	for partition, target := range g.Plan.Target {
		if len(s.members) > 0 && g.Assigned.Owners[partition].Reserved == "" && target != "" && !g.Holder(partition).Held && !isAway(g.Assigned.Members, target) {
			s.free[partition] = target
		}
	}
	return s, nil
}

// isAway reports whether a member is away: nobody is to claim its partitions.
func isAway(members []group.MemberInfo, name string) bool {
	return slices.ContainsFunc(members, func(m group.MemberInfo) bool { return m.Name == name && m.Instance == "" })
}

// recall adds the ghosts of an earlier reading that are still members on the same lease: a
// lease that was gone does not come back, also if it could not be read again.
func (s suspicion) recall(before suspicion) {
	for member, lease := range before.ghosts {
		if now, there := s.members[member]; there && now == lease {
			s.ghosts[member] = lease
		}
	}
}

// accuse adds what both readings of a group have found, and returns true if that is nothing.
// err is why the second reading failed.
func (e *Examination) accuse(name string, before, after suspicion, err error) bool {
	var partitions, targets, ghosts []string
	for partition, target := range after.free {
		if before.free[partition] == target {
			partitions = append(partitions, fmt.Sprintf("%05d", partition))
			targets = append(targets, target)
		}
	}
	for member, lease := range after.ghosts {
		if first, found := before.ghosts[member]; found && first == lease {
			ghosts = append(ghosts, member)
		}
	}
	slices.Sort(partitions)
	slices.Sort(ghosts)
	slices.Sort(targets)
	targets = slices.Compact(targets)
	if len(partitions) > 0 {
		e.Add(Warning, "groups", fmt.Sprintf("%[1]s group show%[2]s; look at the log of the member that is to have them, and if it cannot claim: %[1]s group evict%[2]s MEMBER --reason WHY", e.Commands.Claimctl, Arguments(name)),
			"group %q has %s, and nobody owns %s: %s, which %s is to have%s", name, count(len(after.members), "member", "members"), count(len(partitions), "partition", "partitions"), several(partitions), several(targets), unconfirmed(err))
	}
	if len(ghosts) > 0 {
		e.Add(Warning, "groups", fmt.Sprintf("etcd should have deleted the entry with its lease: %[1]s group evict%[2]s --reason ghost --for 1s", e.Commands.Claimctl, Arguments(name, ghosts[0])),
			"members of group %q whose lease is gone: %s%s", name, several(ghosts), unconfirmed(err))
	}
	return len(partitions)+len(ghosts) == 0
}
