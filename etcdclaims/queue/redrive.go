package queue

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// RedriveAll redrives all dead letters, many with each request, and returns how many. They
// are visible in the order in which they died. After an error some have been redriven.
func (q *Queue) RedriveAll(ctx context.Context) (n int, err error) {
	if err := q.closed(); err != nil {
		return 0, q.fail("redrive", err)
	}
	act := q.act(ctx, audit.RedriveAll, "", "")
	defer func() { err = ended(ctx, act, n, err) }()
	for {
		some, err := q.redriveListed(ctx, act)
		n += some
		if some == 0 || !errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, etcdclaims.ErrUnknown) {
			return n, err
		}
		// What is left is listed anew.
	}
}

// redriveListed redrives the dead letters that there are now. It fails if etcd compacts the
// revision of the list meanwhile.
func (q *Queue) redriveListed(ctx context.Context, act *audit.Act) (n int, err error) {
	var some []found
	at := q.now() // a nanosecond later for each, so that their order stays
	for f, err := range q.listFrom(ctx, q.keys.Dead(), q.keys.Dead(), 0) {
		if err != nil {
			return n, err
		}
		at = at.Add(1)
		f.entry.State.Vesting = at
		if some = append(some, f); len(some) < q.size.items(opsToRedrive) {
			continue
		}
		redriven, err := q.redriveSome(ctx, act, some)
		if n += redriven; err != nil {
			return n, err
		}
		some = nil
	}
	redriven, err := q.redriveSome(ctx, act, some)
	return n + redriven, err
}

// redriveSome redrives dead letters, as many with each request as fit. Those that it refuses
// were moved, or have no content: Redrive, which reads it, decides. So it is with a second key of a
// letter, if that comes first.
func (q *Queue) redriveSome(ctx context.Context, act *audit.Act, letters []found) (n int, err error) {
	letters = distinct(letters, func(f found) string { return f.ID })
	for try := 0; len(letters) > 0; {
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return n, q.fail("redrive", err)
		}
		some := fitting(letters[:min(len(letters), q.size.items(opsToRedrive))], redrivenSize)
		all := item.RedriveAll{Keys: q.keys}
		for _, f := range some {
			all.Letters = append(all.Letters, f.entry)
		}
		resp, again, err := s.commit(ctx, act.With(all.Build()))
		var moved func(i int) (bool, error)
		switch {
		case err == nil && !again && resp.Succeeded:
			done := all.Judge(resp)
			moved = func(i int) (bool, error) { return done[i], nil }
		case err == nil, q.size.refusedItems(err, len(some), opsToRedrive):
		case errors.Is(err, etcdclaims.ErrUnknown):
			moved = func(i int) (bool, error) {
				done, verr := q.changed(ctx, s, some[i], item.VerbRedrive)
				if verr != nil {
					return false, q.fail("redrive", errors.Join(err, verr))
				}
				return done, nil
			}
		case errors.Is(err, etcdclaims.ErrLost), passing(err):
		default:
			return n, q.fail("redrive", err)
		}
		if moved != nil {
			redriven, err := q.redriveRest(ctx, act, some, moved)
			if n += redriven; err != nil {
				return n, err
			}
			letters, try = letters[len(some):], 0
			continue
		}
		if !retry.Pause(ctx, try) {
			return n, q.fail("redrive", context.Cause(ctx))
		}
		try++
	}
	return n, nil
}

// redriveRest redrives one by one the dead letters that a request did not move, and returns how
// many of all were redriven.
func (q *Queue) redriveRest(ctx context.Context, act *audit.Act, some []found, moved func(i int) (bool, error)) (n int, err error) {
	for i, f := range some {
		q.lanes.noteKey(f.PartitionKey)
		done, err := moved(i)
		if err == nil && !done {
			done, err = q.redriveOne(ctx, act, f.ID)
		}
		if err != nil {
			return n, err
		}
		if done {
			n++
		}
	}
	return n, nil
}

// redriveOne redrives a dead letter alone, and reports whether it did: another process can be
// faster.
func (q *Queue) redriveOne(ctx context.Context, act *audit.Act, id string) (bool, error) {
	err := q.redrive(ctx, act, id)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// redrivenSize bounds what a request needs to redrive a dead letter.
func redrivenSize(f found) int { return len(item.Encode(f.entry.State)) + 1024 }
