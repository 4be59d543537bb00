package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/explain"
)

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
