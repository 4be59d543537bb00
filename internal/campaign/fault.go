package main

import (
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

// A faultLog is all faults so far, which are printed as they begin and end.
type faultLog struct {
	print  func(format string, args ...any)
	mu     sync.Mutex
	faults []*fault
}

// begin notes a fault that lasts until end is called.
func (l *faultLog) begin(kind faultKind, worker, note string) *fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &fault{kind: kind, worker: worker, note: note, from: time.Now()}
	l.faults = append(l.faults, f)
	l.print("%s %s %s", kind, worker, note)
	return f
}

// end notes that the fault is over, or could not be made.
func (l *faultLog) end(f *fault, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.to = time.Now()
	if err != nil {
		f.failed = true
		l.print("%s %s %s failed: %v", f.kind, f.worker, f.note, err)
		return
	}
	l.print("%s %s %s is over after %v", f.kind, f.worker, f.note, f.to.Sub(f.from).Round(time.Millisecond))
}

// all returns all faults, once they are over.
func (l *faultLog) all() []fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	faults := make([]fault, len(l.faults))
	for i, f := range l.faults {
		faults[i] = *f
	}
	return faults
}
