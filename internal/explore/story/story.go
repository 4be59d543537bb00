// Package story explains violations that were found in any world, and writes tests that replay them on a real etcd.
package story

import (
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/items"
	"github.com/etcdclaims/claims/internal/explore/partitions"
	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/explore/ticks"
	"github.com/etcdclaims/claims/internal/explore/world"
)

// Scope is one of a world.
type Scope struct {
	Name   string
	Faults string
	Run    func(o search.Options) search.Result
	// Trace goes a way, and on until nothing is left to be done. It returns what that has done to etcd, the story, and
	// what is wrong.
	Trace func(way []int) ([]etcdmodel.Operation, []string, error)
}

// String names the scope with its faults.
func (s *Scope) String() string { return fmt.Sprintf("%s (%s)", s.Name, s.Faults) }

// Find returns the scope of a name with faults.
func Find(name string) (Scope, error) {
	for _, s := range Scopes() {
		if s.String() == name {
			return s, nil
		}
	}
	return Scope{}, fmt.Errorf("there is no scope %q", name)
}

// World is a state of a world.
type World[S any] interface {
	search.State[S]
	Etcd() etcdmodel.State
}

// scopeOf returns a scope that begins as start says: with an etcd that is recorded, or not.
func scopeOf[S World[S]](name, faults string, start func(recorded bool) []S) Scope {
	return Scope{
		Name: name, Faults: faults,
		Run:   func(o search.Options) search.Result { return search.Run(start(false), o) },
		Trace: func(way []int) ([]etcdmodel.Operation, []string, error) { return Trace(start(true), way) },
	}
}

// Trace goes a way from starts whose etcd is recorded, as Scope.Trace does.
func Trace[S World[S]](starts []S, way []int) ([]etcdmodel.Operation, []string, error) {
	last, told, err := search.Follow(starts, way)
	if err == nil {
		err = last.Check()
	}
	if err == nil {
		var calm []string
		last, calm, err = search.Calm(last)
		told = append(told, calm...)
	}
	return last.Etcd().History(), told, err
}

// Scopes returns those of all worlds.
func Scopes() (all []Scope) {
	for _, s := range world.Scopes() {
		all = append(all, scopeOf("claims: "+s.Name, s.Describe(), func(recorded bool) []world.World {
			s.Recorded = recorded
			return []world.World{world.New(&s)}
		}))
	}
	for _, s := range partitions.Scopes() {
		all = append(all, scopeOf("groups: "+s.String(), s.Describe(), func(recorded bool) []partitions.World {
			s.Recorded = recorded
			return []partitions.World{partitions.New(&s)}
		}))
	}
	for _, s := range items.Scopes() {
		all = append(all, scopeOf("queue: "+s.Name, s.Describe(), func(recorded bool) []items.State {
			s.Recorded = recorded
			return []items.State{items.Start(s)}
		}))
	}
	for _, s := range ticks.Scopes() {
		all = append(all, scopeOf("schedules: "+s.Name, s.Describe(), func(recorded bool) []ticks.State {
			s.Recorded = recorded
			return ticks.New(s)
		}))
	}
	return all
}

// Source returns the source of a test that does to a real etcd what has led to a violation. Its package is that of
// the tests that have one.
func Source(s *Scope, v *search.Violation) string {
	return fmt.Sprintf(`package etcdmodel_test

import "testing"

// %s
//
%s
func TestReplay(t *testing.T) {
	replay(t, %q, %#v)
}
`, v.Err, "//\t"+strings.Join(v.Story, "\n//\t"), s, v.Way)
}
