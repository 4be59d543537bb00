package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/internal/explain"
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

// namesOf returns the names of the suspects of a kind.
func namesOf(all []suspect, kind string) (names []string) {
	for _, s := range all {
		if s.kind == kind {
			names = append(names, s.name)
		}
	}
	return names
}

// goneLeases returns the leases that etcd does not have, as far as they are known after the first of
// the given ones were read, and how many of these could not be read. A lease that is gone does not
// come back, so it is not read again.
func (e *Examination) goneLeases(ctx context.Context, leases map[clientv3.LeaseID]bool) (gone map[clientv3.LeaseID]bool, failed int) {
	if e.gone == nil {
		e.gone = map[clientv3.LeaseID]bool{}
	}
	delete(leases, clientv3.NoLease)
	asked := slices.Sorted(maps.Keys(leases)) // two runs ask for the same ones
	for _, id := range asked[:min(len(asked), e.Leases)] {
		if e.gone[id] {
			continue
		}
		switch lease, err := explain.LiveLease(ctx, e.etcd(), id); {
		case err != nil:
			failed++
		case lease == nil:
			e.gone[id] = true
		}
	}
	return maps.Clone(e.gone), failed
}
