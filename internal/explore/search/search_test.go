package search_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/search"
)

// jugs are two jugs of 3 and 5 litres, which can be filled, emptied and poured into each other.
type jugs struct {
	three, five int
	forbidden   func(jugs) error
	stuck       func(jugs) bool
}

func (j jugs) Append(b []byte) []byte { return append(b, byte(j.three), byte(j.five)) }

func (j jugs) Events() []search.Event[jugs] {
	with := func(tell string, three, five int) search.Event[jugs] {
		return search.Event[jugs]{
			Tell: func() string { return tell },
			Do: func() (jugs, error) {
				j.three, j.five = three, five
				return j, nil
			},
		}
	}
	right, left := min(j.three, 5-j.five), min(j.five, 3-j.three)
	return []search.Event[jugs]{
		with("fill 3", 3, j.five), with("fill 5", j.three, 5), with("empty 3", 0, j.five), with("empty 5", j.three, 0),
		with("pour 3 into 5", j.three-right, j.five+right), with("pour 5 into 3", j.three+left, j.five-left),
	}
}

func (j jugs) Check() error {
	if j.forbidden != nil {
		return j.forbidden(j)
	}
	return nil
}

// Calm empties both jugs.
func (j jugs) Calm() (search.Event[jugs], bool) {
	switch {
	case j.stuck != nil && j.stuck(j):
		return j.Events()[0], true // full already
	case j.three > 0:
		return j.Events()[2], true
	case j.five > 1:
		return j.Events()[3], true
	}
	return search.Event[jugs]{}, false
}

func (j jugs) Settled() error {
	if j.five > 0 {
		return fmt.Errorf("%d litres are left", j.five)
	}
	return nil
}

// The search meets each state once, and finds a shortest way.
func TestSearch(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4} {
		r := search.Run([]jugs{{}}, search.Options{Workers: workers})
		if r.Bad == nil { // five == 1 is left in a calm run
			t.Fatalf("with %d workers: the litre that is left was not found", workers)
		}
		if !strings.Contains(r.Bad.Error(), "1 litres are left") || r.Complete {
			t.Errorf("with %d workers: %v", workers, r.Bad)
		}
	}
	four := func(j jugs) error {
		if j.five == 4 {
			return errors.New("4 litres")
		}
		return nil
	}
	r := search.Run([]patient{{jugs{forbidden: four}}}, search.Options{})
	want := []string{"fill 5", "pour 5 into 3", "empty 3", "pour 5 into 3", "fill 5", "pour 5 into 3"}
	if r.Bad == nil || !slices.Equal(r.Bad.Story, want) {
		t.Fatalf("story %v", r.Bad)
	}
	if _, story, err := search.Follow([]patient{{jugs{forbidden: four}}}, r.Bad.Way); err != nil || !slices.Equal(story, want) {
		t.Errorf("followed: %q, %v", story, err)
	}
	r = search.Run([]patient{{jugs{}}}, search.Options{})
	if !r.Complete || r.Bad != nil || r.States != 16 || r.Events != 16*6 {
		t.Errorf("all: %+v", r)
	}
	if r = search.Run([]patient{{jugs{}}}, search.Options{Most: 5}); r.Complete || r.States < 5 {
		t.Errorf("five: %+v", r)
	}
}

// patient is jugs whose calm run ends at once.
type patient struct{ jugs }

func (p patient) Events() (all []search.Event[patient]) {
	for _, ev := range p.jugs.Events() {
		all = append(all, search.Event[patient]{Tell: ev.Tell, Do: func() (patient, error) {
			j, err := ev.Do()
			return patient{j}, err
		}})
	}
	return all
}

func (patient) Calm() (search.Event[patient], bool) { return search.Event[patient]{}, false }
func (patient) Settled() error                      { return nil }

// A run that goes on for ever although nothing fails is a violation.
func TestCalmRunThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	stuck := func(j jugs) bool { return j.three == 3 && j.five == 0 }
	r := search.Run([]jugs{{stuck: stuck}}, search.Options{})
	if r.Bad == nil || !strings.Contains(r.Bad.Err.Error(), "does not come to rest") {
		t.Errorf("%v", r.Bad)
	}
}
