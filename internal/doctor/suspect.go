package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A suspect is what looks wrong at one reading. Keys change hands, and follow their leases, so
// it counts only if a second reading finds the same.
type suspect struct {
	kind string // of what is reported together
	id   string // the same in both readings only if nothing has changed
	name string // for people
}

// patience is how long what looks wrong may take to right itself.
const patience = time.Second

// confirm returns the suspects that a second reading finds, too. If that reading fails, it
// returns all of them, and a text that says so: while etcd is slow, each run would drop them.
func confirm(ctx context.Context, before []suspect, read func(context.Context) ([]suspect, error)) ([]suspect, string) {
	if len(before) == 0 {
		return nil, ""
	}
	select {
	case <-time.After(patience):
	case <-ctx.Done(): // then the second reading fails
	}
	again, err := read(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return before, fmt.Sprintf("; found once only, the second reading failed: %v", err)
	}
	return slices.DeleteFunc(slices.Clone(before), func(s suspect) bool { return !slices.Contains(again, s) }), ""
}

// confirmEach is confirm where each suspect is read for itself.
func confirmEach(ctx context.Context, before []suspect, still func(context.Context, suspect) (bool, error)) ([]suspect, string) {
	return confirm(ctx, before, func(ctx context.Context) (again []suspect, err error) {
		for _, s := range before {
			is, err := still(ctx, s)
			if err != nil {
				return nil, err
			}
			if is {
				again = append(again, s)
			}
		}
		return again, nil
	})
}

// namesOf returns the names of the suspects of a kind.
func namesOf(all []suspect, kind string) (names []string) {
	for _, s := range all {
		if s.kind == kind {
			names = append(names, s.name)
		}
	}
	return names
}
