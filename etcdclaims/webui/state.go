package webui

import (
	"fmt"
	"html/template"

	"github.com/etcdclaims/claims/internal/doctor"
)

// state is one of the things that all depends on.
type state struct {
	Name, Class, Text string
	Page              template.URL
}

// pageState is whether this page follows the claims.
func pageState(held int, reading bool, err error) state {
	switch {
	case err != nil:
		return state{"This page", "bad", "does not follow the claims", "health"}
	case reading:
		return state{"This page", "warn", "reads the claims", "health"}
	}
	return state{"This page", "good", fmt.Sprintf("claims followed: %d", held), "health"}
}

// membersState is how many members answer.
func membersState(members []doctor.Member) state {
	silent := 0
	for _, m := range members {
		if m.Err != "" {
			silent++
		}
	}
	s := state{"etcd", "good", fmt.Sprintf("members that answer: %d of %d", len(members)-silent, len(members)), "health"}
	switch {
	case 2*silent >= len(members):
		s.Class = "bad"
	case silent > 0:
		s.Class = "warn"
	}
	return s
}

// spaceState is how full the fullest member is.
func spaceState(members []doctor.Member) state {
	s := state{"Space", "", "not known", "health"}
	most := int64(-1)
	for _, m := range members {
		if m.Err == "" && m.Quota > 0 {
			most = max(most, 100*m.Size/m.Quota)
		}
	}
	if most >= 0 {
		s.Class, s.Text = "good", fmt.Sprintf("%d %% of the quota", most)
	}
	switch {
	case most >= 95:
		s.Class = "bad"
	case most >= 80:
		s.Class = "warn"
	}
	return s
}
