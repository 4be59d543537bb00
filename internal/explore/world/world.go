// Package world is a small world of claims: an etcd, the requests that are under way, and a few clients
// with one key. The clients run the steps and the machines of internal/protocol, as they ship. What
// their drivers add is mirrored here: internal/acquire for attempts and cleanups, internal/line for
// waits, internal/term for ends.
//
// A state is a value. Package search visits all of them.
package world

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	prefix   = "/p/"
	resource = "/resource" // that holders write to
	absent   = "/absent"   // that calls require not to exist
	done     = "/done"     // that a claim's end puts
	proof    = "/proof"    // that the ends of all claims put
	nobody   = -1
)

var layout = protocol.Layout{Prefix: prefix}

// wire is how a request is sent by itself.
var wire = txn.Config{EpochKey: []byte(layout.Epoch()), VoidKey: layout.Void}

// World is a state of the world.
type World struct {
	scope   *Scope
	etcd    etcdmodel.State
	clients []client
	net     []message
	left    Faults // that may still happen
	most    int8   // how many in all

	saved    *etcdmodel.State // what etcd may be restored to
	restored bool             // and no greater epoch was set since
	rewound  bool             // it has been restored
	tampered bool             // a claim may have ended before its holder could know
	newest   int64            // the greatest fence of a claim on the whole key
	written  int64            // the fence of the last write to the resource
	counted  string           // of each attempt that the record counts: see recordChanged
	begun    int8             // how many callers got an attempt at work
	guards   []protocol.Held  // of all claims that hold, for all that etcd knows
}

// New returns the state in which nothing has happened yet.
func New(s *Scope) World {
	w := World{scope: s, etcd: etcdmodel.New(values.Revisions), left: s.Faults, most: s.most()}
	if s.Recorded {
		w.etcd = etcdmodel.Recorded()
	}
	if s.isSymmetric() {
		s.renamings = renamings(len(s.Callers))
	}
	for i := range s.Callers {
		c := client{name: string(letter(i)), epoch: &txn.Epoch{}}
		c.encode()
		w.clients = append(w.clients, c)
	}
	return w
}

// Etcd returns the etcd.
func (w World) Etcd() etcdmodel.State { return w.etcd }

// fork returns a copy that may be changed.
func (w World) fork() *World {
	w.clients, w.net = slices.Clone(w.clients), slices.Clone(w.net)
	return &w
}

// Append is described at search.State. Of states that differ in the names of clients alone, one stands for all. So it
// does for states that differ in revisions, and not in the order of these.
func (w World) Append(b []byte) []byte {
	at, groups := len(b), w.groups()
	b = appendGroups(b, groups, nil)
	for i := range w.scope.renamings {
		end := len(b)
		b = appendGroups(b, groups, &w.scope.renamings[i])
		if bytes.Compare(b[end:], b[at:end]) < 0 {
			copy(b[at:], b[end:])
		}
		b = b[:at+(len(b)-end)]
	}
	for _, n := range w.left {
		b = append(b, byte(n))
	}
	b = append(b, byte(w.most), flag(w.restored)|flag(w.tampered)<<1|flag(w.rewound)<<3)
	newest := w.newest
	if w.scope.Faults[Restore] == 0 { // then each revision is greater than those before, and only the epoch counts
		newest = keyspace.Epoch(newest)
	}
	b = append(appendInt(appendInt(b, w.written), newest), byte(w.begun))
	return values.Rank(append(appendInt(b, int64(len(w.counted))), w.counted...), at)
}

// groups are what may name clients. The order within a group does not count.
func (w World) groups() [][][]byte {
	var saved, clients, net, guards [][]byte
	if w.saved != nil {
		saved = partsOf(*w.saved)
	}
	for i := range w.clients {
		clients = append(clients, w.clients[i].bytes)
	}
	for i := range w.net {
		net = append(net, w.net[i].bytes)
	}
	for i := range w.guards {
		part := []byte(w.guards[i].ID)
		if w.scope.Faults[Restore] > 0 { // others may have the same id
			part = appendValue(part, reflect.ValueOf(&w.guards[i]))
		}
		guards = append(guards, part)
	}
	return [][][]byte{partsOf(w.etcd), saved, clients, net, guards}
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// event is one that changes a copy of the state.
func (w World) event(tell func() string, do func(n *World) error) search.Event[World] {
	return search.Event[World]{Tell: tell, Do: func() (World, error) {
		n := w.fork()
		if err := do(n); err != nil {
			return *n, err
		}
		for i := range n.clients {
			n.clients[i].encode()
		}
		n.forget()
		return *n, nil
	}}
}

// fault adds a fault, as long as it may happen.
func (w World) fault(all []event, f Fault, tell func() string, do func(n *World) error) []event {
	if !w.may(f) {
		return all
	}
	return append(all, w.event(tell, func(n *World) error {
		n.spend(f)
		return do(n)
	}))
}

// spend takes a fault from what may still happen.
func (w *World) spend(f Fault) {
	if w.most--; !w.scope.repeats() {
		w.left[f]--
	}
}

// may reports whether a fault may still happen.
func (w World) may(f Fault) bool { return w.left[f] > 0 && w.most > 0 }

// forget compacts etcd up to what a watch, or a proof of an end, may still ask for. It forgets requests that nobody
// waits for and that can change nothing any more.
func (w *World) forget() {
	if w.scope.Faults[Restore] == 0 {
		w.net = slices.DeleteFunc(w.net, func(m message) bool { return m.of == stray && w.spent(m.in) })
	}
	oldest := w.etcd.Revision()
	for i := range w.clients {
		c := &w.clients[i]
		if c.cursor > 0 {
			oldest = min(oldest, c.cursor)
		}
		if t := c.term; t != nil && t.end != nil && t.end.Ops != nil {
			oldest = min(oldest, keyspace.Revision(t.held.Fence))
		}
	}
	w.etcd = w.etcd.Compact(oldest)
}

// spent reports whether a request changes nothing, now and later: a condition wants a revision that its key has no
// longer, what it puts is for a lease that has ended, or will have ended when its void is gone.
func (w *World) spent(in *pb.TxnRequest) bool {
	never := func(c *pb.Compare) bool { return w.never(c, in.Success) }
	return (slices.ContainsFunc(in.Compare, never) || w.allSpent(in.Success)) && w.allSpent(in.Failure)
}

func (w *World) never(c *pb.Compare, then []*pb.RequestOp) bool {
	if c.Result != pb.Compare_EQUAL || len(c.RangeEnd) > 0 {
		return false
	}
	k := w.etcd.Get(string(c.Key))
	switch c.Target {
	case pb.Compare_CREATE:
		if strings.HasPrefix(k.Name, layout.Void("")) { // nobody deletes it but the end of its lease
			return slices.ContainsFunc(then, func(op *pb.RequestOp) bool { return op.GetRequestPut().GetLease() == k.Lease })
		}
		return c.GetCreateRevision() > 0 && k.Created != c.GetCreateRevision()
	case pb.Compare_MOD:
		return c.GetModRevision() > 0 && k.Modified != c.GetModRevision()
	}
	return false
}

// allSpent reports whether a branch changes nothing, or is refused.
func (w *World) allSpent(ops []*pb.RequestOp) bool {
	changes := false
	for _, op := range ops {
		switch {
		case op.GetRequestPut() != nil:
			if lease := op.GetRequestPut().Lease; lease != 0 && !w.etcd.Lives(lease) {
				return true
			}
			changes = true
		case op.GetRequestDeleteRange() != nil, op.GetRequestTxn() != nil && !w.spent(op.GetRequestTxn()):
			changes = true
		}
	}
	return !changes
}

// transact carries out a transaction, and looks at what it has done.
func (w *World) transact(in *pb.TxnRequest) (*pb.TxnResponse, error, error) {
	before := w.etcd
	next, resp, err := w.etcd.Txn(in)
	if err != nil {
		return nil, err, nil
	}
	w.etcd = next
	return resp, nil, w.changed(before)
}

// take carries out the request of a client, which may end a claim, or delete a note, that is its own.
func (w *World) take(m *message) (*pb.TxnResponse, error, error) {
	before, guards := w.etcd, w.guards
	resp, err, bad := w.transact(m.in)
	if err != nil || bad != nil {
		return resp, err, bad
	}
	for i := range guards {
		h := &guards[i]
		if h.ID == m.claim || h.ID == m.over || !before.Holds(h.Guard()) {
			continue
		}
		if !w.etcd.Holds(h.Guard()) {
			return nil, nil, fmt.Errorf("the claim of %s was ended by the %s of another", h.ID, m.step)
		}
		if note := before.Get(h.Note(h.Key)); note.Lease == h.Lease && w.etcd.Get(note.Name).Modified != note.Modified {
			return nil, nil, fmt.Errorf("the note of %s was changed by the %s of another", h.ID, m.step)
		}
	}
	return resp, nil, nil
}

// grantLease grants a lease.
func (w *World) grantLease(id int64) error {
	next, err := w.etcd.Grant(id)
	if err != nil {
		return err
	}
	w.etcd = next
	return nil
}

// end ends a lease.
func (w *World) end(lease int64) error {
	before := w.etcd
	next, err := w.etcd.Revoke(lease)
	if err != nil {
		return err
	}
	w.etcd = next
	return w.changed(before)
}
