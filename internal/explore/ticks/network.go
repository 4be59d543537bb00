package ticks

import (
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// kind is a kind of requests.
type kind int8

const (
	admission kind = iota
	prompt
	settle
	register
	starting // of a tick that waits
	end
)

var kinds = []string{"admission", "prompt begin", "settlement", "registration", "begin", "end"}

// request is a request to etcd, and then the reply to it.
type request struct {
	of       kind
	proc     int8
	life     int8 // of its sender
	waited   bool // its sender waits for the reply
	in       *pb.TxnRequest
	raw      string
	step     any // that built it
	guard    int64
	reply    *txn.Reply
	rawReply string
}

func (r request) String() string {
	text := fmt.Sprintf("the %s of process %c", kinds[r.of], 'A'+r.proc)
	if !r.waited {
		text += ", which nobody waits for,"
	}
	return text
}

// send puts a request on its way. held are the conditions that its sender adds.
func (w State) send(i int, of kind, step any, in *pb.TxnRequest, held ...*pb.Compare) State {
	if len(held) > 0 { // as txn.Within does
		in = &pb.TxnRequest{Compare: held, Success: []*pb.RequestOp{txn.Nest(in)}}
	}
	if w.Break != nil {
		w.Break(of, in)
	}
	p := w.procs[i]
	r := request{of: of, proc: int8(i), life: p.life, waited: true, in: in, raw: bytesOf(in), step: step, guard: p.term}
	w.flying = append(slices.Clone(w.flying), r)
	return w
}

// without returns the state without a request.
func (w State) without(n int) State {
	w.flying = slices.Delete(slices.Clone(w.flying), n, n+1)
	return w
}

// with returns the state with another request in the place of one.
func (w State) with(n int, r request) State {
	w.flying = slices.Clone(w.flying)
	w.flying[n] = r
	return w
}

// event is an event of the world. calm is whether it happens although nothing fails.
type event struct {
	calm bool
	tell func() string
	do   func() (State, error)
}

func (w State) network() (all []event) {
	for n, r := range w.flying {
		add := func(calm bool, what string, do func() (State, error)) {
			all = append(all, event{calm: calm, tell: func() string { return fmt.Sprintf("%v %s", r, what) }, do: do})
		}
		fault := func(what string, do func(w State) (State, error)) {
			if w.left.faults > 0 {
				less := w
				less.left.faults--
				add(false, what, func() (State, error) { return do(less) })
			}
		}
		if r.reply != nil {
			add(true, "got its reply", func() (State, error) { return w.without(n).replied(r) })
			fault("was carried out, and its reply was lost", func(w State) (State, error) { return w.without(n).unknown(r) })
			continue
		}
		add(r.waited, "arrived", func() (State, error) { return w.arrive(n, r, false) })
		if !r.waited {
			continue // it need not arrive
		}
		fault("is late or lost, and its sender stopped waiting", func(w State) (State, error) {
			late := r
			late.waited = false
			return w.with(n, late).unknown(r)
		})
		if w.Limit > 0 {
			// A begin that was refused for its slot could begin by a copy, unknown to its process: the claim of
			// the run would stand until its session ends. A client of etcd sends no copies. An exclusive begin is sent
			// while the claim of the job is free. Another begin of its own tick refuses it, and a copy finds no tick.
			continue
		}
		fault("arrived, and is still on its way a second time", func(w State) (State, error) { return w.arrive(n, r, true) })
	}
	return all
}

// arrive carries out a request. twice is whether a copy of it is still on its way.
func (w State) arrive(n int, r request, twice bool) (State, error) {
	before := w
	next, resp, err := w.etcd.Txn(r.in)
	w.etcd = next
	w = w.compact()
	copied := r
	copied.waited = false
	switch {
	case !r.waited:
		w = w.without(n)
	case err != nil: // its lease is gone: etcd has refused it
		w = w.without(n)
	default:
		reply := txn.ReplyIn((*clientv3.TxnResponse)(resp))
		answered := r
		answered.reply, answered.rawReply = &reply, bytesOf(resp)
		w = w.with(n, answered)
	}
	if twice {
		w.flying = append(slices.Clone(w.flying), copied)
	}
	if err != nil {
		if r.waited {
			return w.refused(r)
		}
		return w, nil
	}
	return w.carriedOut(before, r, resp)
}

// inner returns the reply to a step that was sent under a guard, or false if the guard failed.
func inner(r txn.Reply) (txn.Reply, bool) {
	if !r.Succeeded {
		return r, false
	}
	return r.Inner(1), true
}

// current reports whether the life of the process that has sent a request is still on.
func (w State) current(r request) bool {
	p := w.procs[r.proc]
	return r.waited && p.alive && p.life == r.life
}

// replied has the sender take over a reply.
func (w State) replied(r request) (State, error) {
	if !w.current(r) {
		return w, nil
	}
	p := &w.procs[r.proc]
	switch s := r.step.(type) {
	case *tick.Admission: // sched/due.go: admission
		p.busy = false
		reply, held := inner(*r.reply)
		if !held {
			return w.dethroned(int(r.proc)), nil
		}
		a := s.Judge(reply)
		if !a.Done {
			return w.known(int(r.proc)), nil
		}
		p.mark, p.refused = a.Mark, false
	case *tick.Settle: // sched/orphan.go: settled
		p.busy = false
		reply, held := inner(*r.reply)
		if !held {
			return w.dethroned(int(r.proc)), nil
		}
		s.Judge(reply)
	case *tick.Register: // sched/register.go: registration
		p.busy = false
		if _, held := inner(*r.reply); !held {
			return w.dethroned(int(r.proc)), nil
		}
		return w.known(int(r.proc)), nil
	case *tick.Prompt: // sched/due.go: knows, begun
		p.busy = false
		if !r.reply.Succeeded {
			p.refused = true
			return w.notBegun(int(r.proc)), nil
		}
		mark, is := s.Judge(r.reply.Rev)
		p.mark, p.refused = mark, false
		return w.begun(int(r.proc), is, r.reply.Rev)
	case *tick.Begin: // sched/starter.go: attempt
		if !r.reply.Succeeded {
			return w.notBegun(int(r.proc)), nil
		}
		run := s.Run
		return w.begun(int(r.proc), &run, r.reply.Rev)
	case *tick.End: // sched/ending.go: end
		reply, held := inner(*r.reply)
		if !held { // the claim is lost
			return w.abandon(int(r.proc)), nil
		}
		switch e, err := s.Judge(reply); {
		case e.Done || err != nil:
			p.run.phase = releasing
		default:
			p.run.phase = running // another try
		}
	}
	return w, nil
}

// unknown has the sender of a request stop waiting.
func (w State) unknown(r request) (State, error) {
	if !w.current(r) {
		return w, nil
	}
	p := &w.procs[r.proc]
	switch r.of {
	case admission, settle, register: // sched/leadership.go: take, lead
		p.busy = false
		return w.known(int(r.proc)), nil
	case prompt: // sched/due.go: knows
		p.busy = false
		p.run.phase = undoing
		return w.known(int(r.proc)), nil
	case starting:
		p.run.phase = undoing
	case end:
		p.run.phase = running
	}
	return w, nil
}

// refused has the sender hear that etcd has refused a request, because its lease is gone.
func (w State) refused(r request) (State, error) {
	if !w.current(r) {
		return w, nil
	}
	return w.noticed(int(r.proc)), nil
}

// claim returns the attempt to claim a key, and its request as package acquire sends it.
func (w State) claim(i int, id, key string, add *pb.TxnRequest) (*protocol.Try, *pb.TxnRequest) {
	t := &protocol.Try{
		Layout: layout, Mode: protocol.Exclusive{Layout: layout, Key: key}, ID: id, Value: id, Lease: w.procs[i].lease, Epoch: epoch,
		Ask: protocol.Ask{If: add.Compare, Then: add.Success},
	}
	in := protocol.Take{Try: t}.Build().In
	// As the batcher does: no void of its ticket, and its epoch.
	in.Compare = append(in.Compare, txn.CreatedAt([]byte(layout.Void(t.Ticket)), 0), txn.ModifiedAt([]byte(layout.Epoch()), 0))
	return t, in
}

// Events returns all that can happen next.
func (w State) Events() (all []search.Event[State]) {
	for _, ev := range w.all() {
		all = append(all, search.Event[State]{Tell: ev.tell, Do: ev.do})
	}
	return all
}

// Calm returns the first event that happens although nothing fails.
func (w State) Calm() (search.Event[State], bool) {
	w.left = budget{} // no faults
	parts := []func() []event{w.network}
	for i := range w.procs {
		parts = append(parts, func() []event { return w.runner(i) }, func() []event { return w.owner(i) }, func() []event { return w.living(i) })
	}
	for _, part := range append(parts, w.outside, w.leave) {
		for _, ev := range part() {
			if ev.calm {
				return search.Event[State]{Tell: ev.tell, Do: ev.do}, true
			}
		}
	}
	return search.Event[State]{}, false
}

func (w State) all() (all []event) {
	all = w.network()
	for i := range w.procs {
		all = slices.Concat(all, w.runner(i), w.owner(i), w.living(i))
	}
	return append(all, w.outside()...)
}
