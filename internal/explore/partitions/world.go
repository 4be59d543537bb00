// Package partitions is a small world of a group: an etcd, and a few members that share its partitions. The
// claims of partitions run the machines of internal/protocol, and the plan is that of package group, as they
// ship. What drivers add is mirrored here: etcdclaims/group for members (step, handOver, deliver), internal/line
// and internal/acquire for attempts, internal/term for ends. An entry in the list of members is put and removed
// by one event each, without faults on the way.
//
// A state is a value. Package search visits all of them.
package partitions

import (
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	prefix = "/p/"
	list   = prefix + "group/member/" // of the entries
)

var (
	layout = protocol.Layout{Prefix: prefix}
	wire   = txn.Config{EpochKey: []byte(layout.Epoch()), VoidKey: layout.Void} // how a request is sent by itself
)

// key is the key of a partition.
func key(p int) string { return fmt.Sprintf("partition/%d", p) }

// World is a state of the world.
type World struct {
	scope   *Scope
	etcd    etcdmodel.State
	members []member
	strays  []*request // that nobody waits for any more
	left    Faults     // that may still happen
	closing bool       // all members are told to leave, in a calm run
	tries   int64      // attempts so far
	leases  int64      // granted so far

	tampered bool               // a claim may have ended before its owner could know
	doomed   []*mvccpb.KeyValue // by partition: the claim of a suspected member that will be ended, or nil
	guards   []protocol.Held    // of all claims that hold, for all that etcd knows
}

// New returns the state in which nothing has happened yet.
func New(s *Scope) World {
	w := World{scope: s, etcd: etcdmodel.New(revisions), left: s.Faults, doomed: make([]*mvccpb.KeyValue, s.Partitions)}
	if s.Recorded {
		w.etcd = etcdmodel.Recorded()
	}
	for i := range s.Members {
		w.members = append(w.members, member{
			name: string(rune('A' + i)), life: 1, runs: make([]run, s.Partitions),
			view: view{listed: make([]string, s.Members), owners: make([]string, s.Partitions)},
		})
	}
	return w
}

// Append is described at search.State.
func (w World) Append(b []byte) []byte {
	c := &code{Code: b, gaps: make([]gap, 0, 64)}
	for _, k := range w.etcd.Under("") {
		c.partition = -1
		c.Text(k.Name)
		c.Text(k.Value)
		if c.Int(k.Lease); c.partition >= 0 { // no request asks for the revision of an entry
			c.Int(k.Created)
			c.Int(k.Modified)
		}
	}
	for _, id := range w.etcd.Leases() {
		c.Int(id)
	}
	c.Int(0)
	for i := range w.members {
		c.add(w.members[i].encoded())
	}
	c.Int(int64(len(w.strays)))
	for _, r := range w.strays {
		c.add(&r.code)
	}
	for _, n := range w.left {
		c.Code = append(c.Code, byte(n))
	}
	c.Bool(w.closing)
	c.Bool(w.tampered)
	for _, own := range w.doomed {
		if c.Bool(own != nil); own != nil {
			c.Text(string(own.Value))
			c.Int(own.ModRevision)
		}
	}
	for i := range w.guards {
		c.Text(w.guards[i].ID)
	}
	return c.fill()
}

// Etcd returns the etcd.
func (w World) Etcd() etcdmodel.State { return w.etcd }

// fork returns a copy that may be changed.
func (w World) fork() *World {
	w.members = slices.Clone(w.members)
	return &w
}

// event is one that changes a copy of the state.
func (w World) event(tell func() string, do func(n *World) error) search.Event[World] {
	return search.Event[World]{Tell: tell, Do: func() (World, error) {
		n := w.fork()
		err := do(n)
		if err == nil && w.scope.Grain == Coarse {
			err = n.answerAll()
		}
		for i := range n.members {
			n.members[i].encoded()
		}
		return *n, err
	}}
}

// fault adds a fault, as long as it may happen.
func (w World) fault(all []event, f Fault, tell func() string, do func(n *World) error) []event {
	if w.left[f] == 0 {
		return all
	}
	return append(all, w.event(tell, func(n *World) error {
		n.left[f]--
		return do(n)
	}))
}

// answerAll carries out all requests that are under way.
func (w *World) answerAll() error {
	for i := range w.members {
		for all := w.slots(i); len(all) > 0; all = w.slots(i) {
			if err := w.arrive(all[0]); err != nil {
				return err
			}
			if err := w.answered(all[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// told is a sentence that is made when it is needed.
func told(format string, args ...any) func() string {
	return func() string { return fmt.Sprintf(format, args...) }
}

// change returns a member that is about to change.
func (w *World) change(i int) *member {
	m := &w.members[i]
	m.code = nil
	return m
}

// changeRun returns what a member does for a partition, which is about to change.
func (w *World) changeRun(i, p int) *run {
	m := w.change(i)
	m.runs = slices.Clone(m.runs)
	m.runs[p].code = nil
	return &m.runs[p]
}

// carryOut carries out a transaction.
func (w *World) carryOut(in *pb.TxnRequest) (*pb.TxnResponse, error) {
	next, resp, err := w.etcd.Txn(in)
	w.moveOn(next)
	return resp, err
}

// end ends a lease.
func (w *World) end(lease int64) error {
	next, err := w.etcd.Revoke(lease)
	w.moveOn(next)
	return err
}

// moveOn notes a change of etcd. The guards that hold no more never hold again.
func (w *World) moveOn(next etcdmodel.State) {
	w.etcd = next.Compact(next.Revision())
	w.guards = slices.DeleteFunc(slices.Clone(w.guards), func(h protocol.Held) bool { return !w.holds(&h) })
}

// request is one of a member, or the answer to it. It never changes.
type request struct {
	member int
	step   string
	in     *pb.TxnRequest
	resp   *pb.TxnResponse // nil until it was carried out
	err    error           // of etcd
	code
}

func (r *request) isAnswered() bool { return r.resp != nil || r.err != nil }
