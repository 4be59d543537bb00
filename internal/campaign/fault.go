package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
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

// A faultLog is all faults so far, which are written to a file, too.
type faultLog struct {
	mu     sync.Mutex
	began  time.Time
	file   *os.File
	faults []*fault
}

func openFaultLog(path string) (*faultLog, error) {
	file, err := os.Create(path)
	return &faultLog{file: file, began: time.Now()}, err
}

// begin notes a fault that lasts until end is called.
func (l *faultLog) begin(kind faultKind, worker, note string) *fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &fault{kind: kind, worker: worker, note: note, from: time.Now()}
	l.faults = append(l.faults, f)
	l.write("%s %s %s", kind, worker, note)
	return f
}

// end notes that the fault is over, or could not be made.
func (l *faultLog) end(f *fault, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.to = time.Now()
	if err != nil {
		f.failed = true
		l.write("%s %s %s failed: %v", f.kind, f.worker, f.note, err)
		return
	}
	l.write("%s %s %s is over after %v", f.kind, f.worker, f.note, f.to.Sub(f.from).Round(time.Millisecond))
}

func (l *faultLog) write(format string, args ...any) {
	// For people who look into a run that failed. The run itself does not need it.
	_, _ = fmt.Fprintf(l.file, "%9.3f %s\n", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
}

// close returns all faults, once they are over.
func (l *faultLog) close() []fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.file.Close()
	faults := make([]fault, len(l.faults))
	for i, f := range l.faults {
		faults[i] = *f
	}
	return faults
}

// now says how many faults there were, and which last.
func (l *faultLog) now() (count int, lasting string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, f := range l.faults {
		if f.to.IsZero() {
			names = append(names, strings.TrimSpace(string(f.kind)+" "+f.worker))
		}
	}
	slices.Sort(names)
	return len(l.faults), strings.Join(names, ", ")
}
