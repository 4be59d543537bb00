package group

import (
	"slices"
	"testing"
)

// The successors of all members that are there form one ring, whatever the order of the list.
func TestSuccessorsFormOneRing(t *testing.T) {
	list := []MemberInfo{{Name: "c", Instance: "3"}, {Name: "a", Instance: "1"}, {Name: "away"}, {Name: "b", Instance: "2"}, {Name: "d", Instance: "4"}}
	for n := range len(list) + 1 {
		members := list[:n]
		names := []string{}
		for _, m := range members {
			if m.Instance != "" {
				names = append(names, m.Name)
			}
		}
		if len(names) < 2 {
			if next := successorOf("c", members); next != "" {
				t.Errorf("the successor of a member without others is %q", next)
			}
			continue
		}
		slices.Sort(names)
		for i, name := range names {
			if next, want := successorOf(name, members), names[(i+1)%len(names)]; next != want {
				t.Errorf("%v: the successor of %s is %q, want %q", names, name, next, want)
			}
		}
	}
}
