// Explore searches every order of events in small worlds of claims, groups, queues and schedules, and prints a table of
// what it has searched. A violation is printed as a story, and written as a test that does the same to a real etcd.
//
//	go run ./internal/explore                    all scopes
//	go run ./internal/explore -scope exclusive   those that a regular expression matches
//	go run ./internal/explore -drop              drops each condition of each step in turn: see world.Unneeded
package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/explore/story"
	"github.com/etcdclaims/claims/internal/explore/world"
)

func main() {
	only := flag.String("scope", "", "searches the scopes that the regular expression matches")
	most := flag.Int("most", 0, "bounds the states of each scope; 0 means no bound, and 20000 with -drop")
	drop := flag.Bool("drop", false, "drops each condition in turn")
	flag.Parse()
	debug.SetGCPercent(400) // most of what is allocated lives for one event
	debug.SetMemoryLimit(8 << 30)
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ok := false
	if *drop {
		ok = dropEach(pattern, cmp.Or(*most, 20_000)) // without a bound, an unneeded condition would take hours
	} else {
		ok = table(pattern, *most)
	}
	if !ok {
		os.Exit(1)
	}
}

// table searches scopes, and prints a row for each.
func table(only *regexp.Regexp, most int) bool {
	ok := true
	fmt.Println("| scope | faults | states | events | depth | s | complete |\n|---|---|---:|---:|---:|---:|---|")
	for _, s := range story.Scopes() {
		if !only.MatchString(s.Name) {
			continue
		}
		r := s.Run(search.Options{Most: most})
		complete := "yes"
		if !r.Complete {
			complete = "no"
		}
		fmt.Printf("| %s | %s | %d | %d | %d | %.0f | %s |\n", s.Name, s.Faults, r.States, r.Events, r.Depth, r.Elapsed.Seconds(), complete)
		if r.Bad == nil {
			continue
		}
		ok = false
		fmt.Printf("\n%v\n\n", r.Bad)
		write(story.Source(&s, r.Bad))
	}
	return ok
}

// write writes a test that replays a violation.
func write(source string) {
	name := fmt.Sprintf("internal/explore/etcdmodel/replay_%d_test.go", time.Now().Unix()) //nolint:forbidigo // the name of a file
	if err := os.WriteFile(name, []byte(source), 0o644); err != nil {                      //nolint:gosec // source code
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Printf("go test -run TestReplay ./internal/explore/etcdmodel   # %s\n\n", name)
}

// dropEach drops each condition of each step in turn, and says why those are there that no scope needs. False means that
// a condition is needed and has a reason, or, if all scopes are searched, that one has neither or is missing.
func dropEach(only *regexp.Regexp, most int) bool {
	takes := world.Taken(func(s *world.Scope) bool { return only.MatchString(s.Name) })
	all := only.String() == ""
	ok, needed := !all || complete(takes), 0
	for _, c := range slices.SortedFunc(maps.Keys(takes), world.Condition.Compare) {
		why, has := world.Unneeded[c]
		scope, r := world.Needs(takes[c], c, most)
		switch {
		case r != nil:
			needed++
			fmt.Printf("%v: %v, after %d events (%s, %d states)\n", c, r.Bad.Err, len(r.Bad.Way)-1, scope, r.States)
			if has {
				ok = false
				fmt.Printf("\tIT IS NEEDED, although %s\n", why)
			}
		case has:
			fmt.Printf("%v: not needed, since %s\n", c, why)
		case !all:
			fmt.Printf("%v: not needed in these scopes\n", c)
		default:
			ok = false
			fmt.Printf("%v: NOT NEEDED, and no reason\n", c)
		}
	}
	fmt.Printf("%d of %d conditions are needed in what was searched.\n", needed, len(takes))
	return ok
}

// complete reports whether all scopes together take the conditions and the steps that there are.
func complete(takes map[world.Condition][]world.Scope) bool {
	ok := len(takes) == world.Conditions
	if !ok {
		fmt.Printf("there are %d conditions, not %d: see world.Conditions\n", len(takes), world.Conditions)
	}
	for _, step := range world.Untaken(takes) {
		ok = false
		fmt.Printf("%s: no scope sends it\n", step)
	}
	for c := range world.Unneeded {
		if takes[c] == nil {
			ok = false
			fmt.Printf("%v: there is no such condition\n", c)
		}
	}
	return ok
}
