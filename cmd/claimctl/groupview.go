package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/doctor"
)

// groupState is a group as the commands show it.
type groupState struct{ doctor.PartitionGroup }

// readGroup reads a group.
func readGroup(ctx context.Context, claims *etcdclaims.Client, name string) (groupState, error) {
	g, err := doctor.ReadPartitionGroup(ctx, claims, name)
	if errors.Is(err, etcdclaims.ErrInvalidKey) {
		err = &exitError{exitUsage, err}
	}
	return groupState{g}, err
}

// groupView is a group in a list.
type groupView struct {
	Group      string `json:"group"`
	Partitions int    `json:"partitions"`
	Members    int    `json:"members"` // on the list and there
	Away       int    `json:"away"`
	Evicted    int    `json:"evicted"`
	Free       int    `json:"free"`     // partitions that nobody owns
	Reserved   int    `json:"reserved"` // of these, for members that are away
	Moving     int    `json:"moving"`   // owned partitions that are to go to another member

	MemberList []memberView `json:"memberList,omitempty"` // of show
}

func (g groupState) view() groupView {
	n := g.Counts()
	return groupView{
		Group: g.Group, Partitions: g.Partitions, Members: n.Members, Away: n.Away, Evicted: n.Evicted, Free: n.Free, Reserved: n.Reserved, Moving: n.Moving,
	}
}

func (v groupView) name() string { return v.Group }

var groupHeader = []string{"GROUP", "PARTITIONS", "MEMBERS", "AWAY", "EVICTED", "FREE", "RESERVED", "MOVING"}

func (v groupView) cells() []string {
	return []string{v.Group, fmt.Sprint(v.Partitions), fmt.Sprint(v.Members), number(v.Away), number(v.Evicted), number(v.Free), number(v.Reserved), number(v.Moving)}
}

// text prints the group and its members.
func (v groupView) text(w io.Writer) {
	fields(w, 10, [][2]string{
		{"Group", v.Group}, {"Partitions", fmt.Sprint(v.Partitions)}, {"Free", number(v.Free)}, {"Reserved", number(v.Reserved)}, {"Moving", number(v.Moving)},
	})
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line(table, memberHeader)
	for _, m := range v.MemberList {
		line(table, m.cells())
	}
	_ = table.Flush()
}

// memberView is a member of a group.
type memberView struct {
	Member   string     `json:"member"`
	State    string     `json:"state"` // member, away, evicted, unlisted or unreadable
	Weight   int        `json:"weight,omitempty"`
	Zone     string     `json:"zone,omitempty"`
	Address  string     `json:"address,omitempty"`
	Instance string     `json:"instance,omitempty"`
	Owns     int        `json:"owns"`
	Wants    int        `json:"wants"`
	Reserved int        `json:"reserved,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Until    *time.Time `json:"until,omitempty"` // the end of the reservation or of the eviction
	By       string     `json:"by,omitempty"`    // who evicted it
	Why      string     `json:"why,omitempty"`
}

// members returns the members, and then the owners that are not on the list.
func (g groupState) members() (all []memberView) {
	for _, m := range g.AllMembers() {
		all = append(all, memberView{
			Member: m.Name, State: m.State, Weight: m.Weight, Zone: m.Zone, Address: m.Address, Instance: m.Instance,
			Owns: m.Owns, Wants: m.Wants, Reserved: m.Reserved, Since: moment(m.Since), Until: moment(m.Until), By: m.By, Why: m.Why,
		})
	}
	return all
}

func (v memberView) name() string { return v.Member }

var memberHeader = []string{"MEMBER", "STATE", "WEIGHT", "ZONE", "OWNS", "WANTS", "RESERVED", "SINCE", "UNTIL", "WHY"}

func (v memberView) cells() []string {
	why := v.Why
	if v.By != "" {
		why = v.By + ": " + why
	}
	return []string{v.Member, v.State, number(v.Weight), v.Zone, fmt.Sprint(v.Owns), fmt.Sprint(v.Wants), number(v.Reserved), at(v.Since), at(v.Until), shorten(why)}
}

// partitionView is a partition of a group.
type partitionView struct {
	Partition int        `json:"partition"`
	Key       string     `json:"key"`
	Member    string     `json:"member,omitempty"` // empty if nobody owns it, or an owner that is not on the list
	Owner     string     `json:"owner,omitempty"`  // label of the client
	Instance  string     `json:"instance,omitempty"`
	Fence     int64      `json:"fence,string"`
	Since     *time.Time `json:"since,omitempty"`
	Reserved  string     `json:"reserved,omitempty"`
	Target    string     `json:"target,omitempty"`
}

func (g groupState) partition(partition int) partitionView {
	i, o := g.Holder(partition), g.Assigned.Owners[partition]
	return partitionView{
		Partition: partition, Key: g.PartitionKey(partition), Member: o.Member, Owner: i.Owner, Instance: i.Instance, Fence: i.Fence, Since: moment(i.Since),
		Reserved: o.Reserved, Target: g.Plan.Target[partition],
	}
}

func (v partitionView) name() string { return v.Key }

var partitionHeader = []string{"PARTITION", "MEMBER", "OWNER", "FENCE", "SINCE", "RESERVED", "TARGET"}

func (v partitionView) cells() []string {
	return []string{fmt.Sprint(v.Partition), v.Member, v.Owner, number(v.Fence), at(v.Since), v.Reserved, v.Target}
}

func (v partitionView) text(w io.Writer) {
	fields(w, 10, [][2]string{
		{"Partition", fmt.Sprint(v.Partition)},
		{"Key", v.Key},
		{"Member", v.Member},
		{"Owner", v.Owner},
		{"Instance", v.Instance},
		{"Fence", number(v.Fence)},
		{"Since", at(v.Since)},
		{"Reserved", v.Reserved},
		{"Target", v.Target},
	})
}

// moveView is a partition that is to go to a member.
type moveView struct {
	Partition int    `json:"partition"`
	From      string `json:"from,omitempty"` // empty if no member owns it
	To        string `json:"to"`
	Why       string `json:"why"`
}

func (v moveView) name() string    { return fmt.Sprint(v.Partition) }
func (v moveView) cells() []string { return []string{fmt.Sprint(v.Partition), v.From, v.To, v.Why} }

var moveHeader = []string{"PARTITION", "FROM", "TO", "WHY"}

func viewMove(m group.Move) moveView { return moveView{m.Partition, m.From, m.To, m.Why} }

// evictedUntil is when an eviction ends, for people.
func evictedUntil(d time.Duration) string { return doctor.Stamp(time.Now().Add(d)) }
