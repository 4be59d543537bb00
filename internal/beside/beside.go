// Package beside is how a package of this module keeps a key of its own beside the claims that it
// makes, such as a record of work. The transactions that claim and release change that key, too, so
// that both are changed or neither. Package etcdclaims knows nothing of the key's value. It is no
// API for users, so no option for it is exported.
package beside

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/option"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Option claims a key together with that of a companion.
type Option struct {
	option.ForAcquire
	Companion Companion
}

// Companion is the key beside a claim, as one acquiring call sees it. A call makes one attempt
// after the other, so its methods are not called at the same time.
type Companion interface {
	// Key names the key in etcd.
	Key() string
	// Rev returns the ModRevision that the key must have when the claim is made, 0 if it must
	// not exist.
	Rev() int64

	// Begin is called once, before the first request.
	Begin(Call)
	// Turn waits until the call may ask for the key, if it is one that waits in line. It calls
	// waits if that takes time.
	Turn(ctx context.Context, waits func()) error
	// Prepare is called before each request for a key that may be free. An error that may pass
	// is tried again. Any other ends the call.
	Prepare(ctx context.Context) error
	// Put returns what an attempt puts.
	Put(Attempt) *Put

	// Changed takes over what etcd has under the key, nil if nothing. It reports whether that
	// is news.
	Changed(kv *mvccpb.KeyValue) bool
	// Known returns what Changed was given last.
	Known() *mvccpb.KeyValue
	// LeaseGone handles an answer that a lease does not exist. It reports whether that was the
	// lease of the put: another attempt has another.
	LeaseGone(put *Put, err error) bool

	// InLine is called when the call has its place in line. After wake, Prepare is called.
	InLine(wake func())
	// Saw is called with the claim that the call waits for.
	Saw(own *mvccpb.KeyValue)

	// Granted is called when the call has the key. It reports whether the last holder has died
	// without releasing it.
	Granted(superseded bool) (tookOver bool)
	// Undo returns how what an attempt has put, or may yet put, is undone.
	Undo(put *Put) Undo
	// Undone waits until the last attempt of the call is undone, if it is.
	Undone(ctx context.Context) error
}

// Call is what a companion learns of the call's options.
type Call struct {
	TTL       time.Duration
	Note      []byte // nil: none
	Supersede bool
	OutOfTurn bool // it may get the key before others that came first
}

// Attempt is what a companion learns of an attempt.
type Attempt struct {
	Claim string    // its id
	Epoch int64     // of its fence
	Since time.Time // by the wall clock
}

// Put is what an attempt puts under the companion's key.
type Put struct {
	Key, Value string
	Lease      clientv3.LeaseID
	Number     int // of the attempt; the value of the claim shows it
	On         any // the companion's own
}

// Attempt returns the number of the attempt, or 0 without a put.
func (p *Put) Attempt() int {
	if p == nil {
		return 0
	}
	return p.Number
}

// Undo puts back what was under the key before an attempt.
type Undo interface {
	// Ops do that, or nothing if the attempt has put nothing: each has a condition of its own.
	Ops() []*pb.RequestOp
	// LeaseGone is called when etcd has answered that a lease does not exist, which is not that of
	// the claim. It reports whether Ops are others now.
	LeaseGone(ctx context.Context) (changed bool, err error)
	// Settled is called when it is done, or with why etcd refuses it. It is tried again in that
	// case.
	Settled(err error)
}

// Verdict is an error of Prepare or Turn that names its call and key itself.
type Verdict struct{ Err error }

func (v *Verdict) Error() string { return v.Err.Error() }

// Unwrap returns Err.
func (v *Verdict) Unwrap() error { return v.Err }
