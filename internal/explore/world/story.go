package world

import (
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/search"
)

// Describe names the faults of a scope.
func (s *Scope) Describe() string {
	var names []string
	total := 0
	for f, n := range s.Faults {
		if total += int(n); n > 0 {
			names = append(names, Fault(f).String())
		}
	}
	if s.Most == 0 || s.Most >= total {
		return "each of: " + strings.Join(names, ", ")
	}
	text := fmt.Sprintf("%d of: %s", s.Most, strings.Join(names, ", "))
	if s.Most > 1 && s.repeats() {
		text += "; or one of them again"
	}
	return text
}

// Trace goes a way in a scope. It returns what was done to etcd on it, what happened in words, and the violation.
func Trace(name string, way []int) (operations []Operation, story []string, err error) {
	for _, s := range Scopes() {
		if s.Name != name {
			continue
		}
		w := newAt(&s, 1) // where a real etcd begins
		w.observer = &operations
		var last World
		if last, story, err = search.Follow([]World{w}, way); err == nil {
			err = last.Check()
		}
		return operations, story, err
	}
	return nil, nil, fmt.Errorf("there is no scope %q", name)
}

// Source returns the source of a test that goes the way of a violation on a real etcd.
func Source(scope string, v *search.Violation) string {
	return fmt.Sprintf(`package world_test

import "testing"

// %s
//
%s
func TestReplay(t *testing.T) {
	replay(t, %q, %#v)
}
`, v.Err, "//\t"+strings.Join(v.Story, "\n//\t"), scope, v.Way)
}
