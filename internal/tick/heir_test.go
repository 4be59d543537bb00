package tick_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/tick"
)

// An owner hands over to a client that has all that it has, and a job more, and only in the term that was asked for.
func TestHeir(t *testing.T) {
	t.Parallel()
	type names = []string
	for name, tt := range map[string]struct {
		heir        tick.Heir
		jobs, kinds names
		want        bool
	}{
		"a job more":                 {tick.Heir{Instance: "i", Term: 7, Jobs: names{"a", "b", "c"}}, names{"a", "c"}, nil, true},
		"jobs of an owner with none": {tick.Heir{Instance: "i", Term: 7, Jobs: names{"a"}}, nil, nil, true},
		"the same jobs":              {tick.Heir{Instance: "i", Term: 7, Jobs: names{"a", "b"}}, names{"a", "b"}, nil, false},
		"a job less":                 {tick.Heir{Instance: "i", Term: 7, Jobs: names{"a"}}, names{"a", "b"}, nil, false},
		"other jobs":                 {tick.Heir{Instance: "i", Term: 7, Jobs: names{"b", "c", "d"}}, names{"a", "b"}, nil, false},
		"another term":               {tick.Heir{Instance: "i", Term: 6, Jobs: names{"a", "b"}}, names{"a"}, nil, false},
		"nobody":                     {tick.Heir{Term: 7, Jobs: names{"a", "b"}}, names{"a"}, nil, false},
		"without a kind": {
			tick.Heir{Instance: "i", Term: 7, Jobs: names{"a", "b"}, Kinds: names{"l"}},
			names{"a"},
			names{"k"},
			false,
		},
		"a job and a kind more": {
			tick.Heir{Instance: "i", Term: 7, Jobs: names{"a", "b"}, Kinds: names{"k", "l"}},
			names{"a"},
			names{"k"},
			true,
		},
		"only a kind more": {tick.Heir{Instance: "i", Term: 7, Jobs: names{"a"}, Kinds: names{"k"}}, names{"a"}, nil, false},
	} {
		if got := tt.heir.Inherits(7, tt.jobs, tt.kinds); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
