package main

import (
	"context"
	"sync"
	"time"
)

// A faultKind is what the nemesis can do.
type faultKind string

// The faults. Those of a worker's process and of its links name the worker.
const (
	killWorker   faultKind = "kill a worker"
	stopWorker   faultKind = "stop a worker"
	killLeader   faultKind = "kill the leader"
	killFollower faultKind = "kill a follower"
	stopLeader   faultKind = "stop the leader past the TTL"
	stopFollower faultKind = "stop a follower"
	moveLeader   faultKind = "move the leader"
	loseQuorum   faultKind = "stop two members"
	cutLinks     faultKind = "cut links"
	halfCutLinks faultKind = "cut links one way"
	breakLinks   faultKind = "break links"
	deleteClaim  faultKind = "delete a claim's key"
	revokeLease  faultKind = "revoke a lease"
	compactAll   faultKind = "compact"
)

// ofLeader reports whether the fault takes etcd's leader away.
func (k faultKind) ofLeader() bool { return k == killLeader || k == stopLeader || k == moveLeader }

// ofMembers reports whether the fault is one of etcd's members.
func (k faultKind) ofMembers() bool {
	return k.ofLeader() || k == killFollower || k == stopFollower || k == loseQuorum
}

// ofLinks reports whether the fault is one of a worker's links.
func (k faultKind) ofLinks() bool { return k == cutLinks || k == halfCutLinks || k == breakLinks }

// A fault is something the nemesis did. A worker that was killed stays dead, so
// the end of that fault is its beginning.
type fault struct {
	kind   faultKind
	worker string // whose process, links or lease; empty for those of members
	note   string
	from   time.Time
	to     time.Time // zero while it lasts
	failed bool      // it could not be made
}

// A plannedFault is a fault that was chosen and not yet made. Its functions run on a
// goroutine of their own, so all random choices are made before, in its fields.
type plannedFault struct {
	fault
	needs *sync.Mutex // what no other fault may have at the same time, or nil
	slot  int         // of the worker
	begin func(context.Context) error
	lasts time.Duration
	heal  func() error // nil if there is nothing to heal
}
