package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/errtext"
)

// Route is where requests for a partition go.
type Route struct {
	Partition int
	// Member describes the owner. Send the request to its Address.
	Member MemberInfo
	// Token is that of the owner's claim. Send it along, so that the receiver can refuse
	// a request that was meant for another owner; see [Member.Admit].
	Token fencing.Token
}

// Route returns who owns the partition, from memory. The answer may be outdated. The error
// matches ErrNoOwner if no member is known to own the partition. It matches ErrPartitions if the group
// was removed and made anew with another number of partitions. The caller then opens a new view
// and computes the partition with the new number.
func (v *View) Route(partition int) (Route, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, err := v.route(partition)
	if err != nil {
		err = errtext.Wrap(fmt.Sprintf("route: partition %d of group %q", partition, v.keys.group), err)
	}
	return r, err
}

// route is Route. The mutex is held.
func (v *View) route(partition int) (Route, error) {
	if now := v.resized(); now > 0 {
		return Route{}, fmt.Errorf("%w: it has %d, and had %d when the view was opened; open a new view", ErrPartitions, now, v.partitions)
	}
	if partition < 0 || partition >= v.partitions {
		return Route{}, fmt.Errorf("the group has %d partitions", v.partitions)
	}
	o := v.owners[partition]
	m, ok := v.known[o.Instance]
	if !ok || o.Instance == "" {
		return Route{}, ErrNoOwner
	}
	return Route{partition, m, o.Token}, nil
}

// Call calls fn with the owner of the partition. It waits until the partition has an owner. The
// view can be late: fn then returns the fencing.ErrStale of the receiver's gate. If an
// error of fn matches it, Call waits for a later owner and calls fn once more.
//
// The context of fn carries the owner's token, so that middleware.Transport and
// grpcmw.Stamp send it. ctx bounds the waiting and the calls. If there is no later owner
// by then, the error is that of the first call, joined with the cause of ctx's end. An error
// that matches ErrPartitions is as Route returns it.
func (v *View) Call(ctx context.Context, partition int, fn func(ctx context.Context, r Route) error) error {
	r, err := v.await(ctx, partition, 0)
	if err != nil {
		return err
	}
	err = fn(fencing.NewContext(ctx, r.Token), r)
	if !errors.Is(err, fencing.ErrStale) {
		return err
	}
	again, waited := v.await(ctx, partition, r.Token.Fence)
	if waited != nil {
		return errors.Join(err, waited)
	}
	return fn(fencing.NewContext(ctx, again.Token), again)
}

// await waits until the partition has an owner with a fence above the given one, or never can.
func (v *View) await(ctx context.Context, partition int, above int64) (r Route, err error) {
	var refused error
	err = v.until(ctx, func() bool {
		r, refused = v.route(partition)
		if errors.Is(refused, ErrNoOwner) {
			return false
		}
		return refused != nil || r.Token.Fence > above
	})
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrNoOwner, err)
	case refused != nil:
		err = refused
	default:
		return r, nil
	}
	return Route{}, errtext.Wrap(fmt.Sprintf("route: partition %d of group %q", partition, v.keys.group), err)
}
