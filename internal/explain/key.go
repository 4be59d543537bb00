// Package explain reads the state of a key or of a group of partitions: the holder, the callers
// in line, and the next of them. The program claimctl, the page of etcdclaims/webui, and
// internal/doctor show it to people.
package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Kinds of keys that have several claims. Such a key has a record in the place of its claim, and
// the claims have keys of their own.
const (
	KindSlots  = "slots"
	KindShared = "shared"
)

// IsRecord reports whether a holder of the kind is the record of a key that has several claims.
func IsRecord(kind string) bool { return kind == KindSlots || kind == KindShared }

// FeatureOf returns the feature of this SDK that a key is kept for, such as "queues", or "".
func FeatureOf(key string) string { return keyspace.FeatureOf(key) }

// Key is all that is known of one key.
type Key struct {
	Info    etcdclaims.Info
	Renewal *Renewal          // of the holder's lease
	Holders []etcdclaims.Info // of its slots, or who share it
	Partial bool              // there are more of these
	Line    []Place
	More    int          // in line, beside those
	Record  *work.Record // of the key's work
	History admin.KeyHistory
	Unread  error // permission denied for Record or History, which are not known then
}

// Place is a place in line.
type Place struct {
	admin.Waiter
	Ghost bool // its lease is gone: no caller waits there
	Next  bool // the first that is alive
}

// Reader reads keys.
type Reader struct {
	Claims *etcdclaims.Client
	Works  *work.Runner

	Sharers int  // how many callers that share a key are read at most
	Line    int  // how many places in line are returned at most
	Terms   int  // how many terms are read at most: the newest
	Ghosts  bool // whether to look for ghosts behind the first caller that is alive
}

// Key reads a key. The parts are read one after the other.
func (r Reader) Key(ctx context.Context, key string) (x Key, err error) {
	if x.Info, err = r.Claims.Lookup(ctx, key); err != nil {
		return x, err
	}
	if x.Renewal, err = LastRenewal(ctx, r.Claims, x.Info); err != nil {
		return x, fmt.Errorf("explain %q: read its lease: %w", key, err)
	}
	switch x.Info.Kind {
	case KindSlots:
		x.Holders, x.Partial, err = SlotHolders(ctx, r.Claims, key)
	case KindShared:
		x.Holders, x.Partial, err = First(r.Claims.List(ctx, etcdclaims.SharedPrefix(key)), r.Sharers)
	}
	if err != nil {
		return x, err
	}
	if x.Line, x.More, err = r.line(ctx, key); err != nil {
		return x, err
	}
	record, ok, err := r.Works.Record(ctx, key)
	switch {
	case err == nil && ok:
		x.Record = &record
	case IsDenied(err):
		x.Unread = errtext.Wrap("its work is not known", err)
	case err != nil && ctx.Err() == nil && r.Claims.Unreachable() == nil:
		x.Record = &work.Record{Key: key, State: work.StateUnreadable, Error: err.Error()}
	case err != nil:
		return x, err
	}
	x.History, err = admin.History(ctx, r.Claims, key, admin.Newest(r.Terms))
	if IsDenied(err) {
		x.Unread, err = errtext.Both(x.Unread, errtext.Wrap("its earlier terms are not known", err)), nil
	}
	return x, err
}

// IsDenied reports whether etcd refused for want of permission.
func IsDenied(err error) bool {
	return errors.Is(err, etcdclaims.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrPermissionDenied)
}

// WholeLine reads the line of the key that has the given one as a slot: all slots have one. It
// is empty for any other key.
func (r Reader) WholeLine(ctx context.Context, slotKey string) ([]Place, error) {
	whole := WholeOf(slotKey)
	if whole == "" {
		return nil, nil
	}
	i, err := r.Claims.Lookup(ctx, whole)
	if err != nil || i.Slots == 0 {
		return nil, err
	}
	line, _, err := r.line(ctx, whole)
	return line, err
}

// line reads the places in the line of a key, and how many more there are.
func (r Reader) line(ctx context.Context, key string) (places []Place, more int, err error) {
	const mostAsked = 20 // leases
	line, err := admin.Line(ctx, r.Claims, key)
	if err != nil {
		return nil, 0, err
	}
	more = max(len(line)-r.Line, 0)
	gone, sought := map[clientv3.LeaseID]bool{clientv3.NoLease: true}, true
	for _, waiter := range line[:len(line)-more] {
		isGone, known := gone[waiter.Lease]
		if !known && len(gone) <= mostAsked && (sought || r.Ghosts) {
			lease, err := LiveLease(ctx, r.Claims.Etcd(), waiter.Lease)
			if err != nil {
				return nil, 0, fmt.Errorf("explain %q: read the lease of a caller in line: %w", key, err)
			}
			isGone, known = lease == nil, true
			gone[waiter.Lease] = isGone
		}
		places = append(places, Place{Waiter: waiter, Ghost: isGone, Next: sought && known && !isGone})
		sought = sought && isGone // the next is not known if too many are ghosts
	}
	return places, more, nil
}

// Next returns the first caller in line that is alive. It returns nil if it is not known.
func (x Key) Next() *Place {
	if i := slices.IndexFunc(x.Line, func(p Place) bool { return p.Next }); i >= 0 {
		return &x.Line[i]
	}
	return nil
}

// Previous returns the last term of a claim that has ended. It returns nil if none is known.
func (x Key) Previous() *admin.Term {
	for _, t := range slices.Backward(x.History.Terms) {
		if t.EndRevision != 0 && !IsRecord(t.Kind) {
			return &t
		}
	}
	return nil
}

// IsRisky reports whether the effect of work may have happened, and must not happen twice.
// Work that has failed is not risky: callers begin it again by themselves.
func IsRisky(r work.Record) bool {
	return r.AtMostOnce && (r.State == work.StateOrphaned || r.State == work.StateDead)
}

// Renewal is the last renewal of a holder's lease. Etcd returns the rest of a lease in full
// seconds, so the time is known to a second.
type Renewal struct {
	At      time.Time // by the clock of this host; of the grant if there was no renewal yet
	TTL     time.Duration
	Overdue bool // the holder has missed a renewal: it is cut off, stopped or dead
}

// Every returns how often the holder renews.
func (r Renewal) Every() time.Duration { return (r.TTL / 3).Round(time.Second) }

// LastRenewal asks etcd how old the lease of a holder is. It returns nil without an error
// if the key has no lease, or the lease is gone and the key is about to follow.
func LastRenewal(ctx context.Context, claims *etcdclaims.Client, i etcdclaims.Info) (*Renewal, error) {
	if !i.Held || i.Lease == clientv3.NoLease {
		return nil, nil
	}
	asked := clock.Mono()
	lease, err := LiveLease(ctx, claims.Etcd(), i.Lease)
	if err != nil || lease == nil {
		return nil, err
	}
	ttl := time.Duration(lease.GrantedTTL) * time.Second
	ago := max(ttl-time.Duration(lease.TTL)*time.Second-time.Second/2, 0)
	// A lock, and what stays held after its claim, are renewed on demand or by nobody. A renewal
	// is due when a third of the lease time has passed; etcd counts in full seconds.
	overdue := i.Kind == "" && !i.Newer && ago > ttl/3+2*time.Second
	return &Renewal{At: asked.Add(-ago).Round(time.Second), TTL: ttl, Overdue: overdue}, nil
}

// LiveLease asks for a lease. It returns nil without an error if etcd does not have it.
func LiveLease(ctx context.Context, etcd *clientv3.Client,
	id clientv3.LeaseID,
) (*clientv3.LeaseTimeToLiveResponse, error) {
	lease, err := etcd.TimeToLive(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && lease.TTL < 0 {
		return nil, nil
	}
	return lease, err
}
