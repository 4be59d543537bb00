package items

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// worker is a process. It does one thing after the other, and waits for each.
type worker struct {
	dead    bool
	session int8  // its number; 0: none
	fence   int64 // of the session's claim
	gen     int64 // the session's generation
	sent    *request
	reply   *pb.TxnResponse
	answer  []byte // stands for the reply and its request
	nested  bool   // the request is nested in that of the guard
	step    any    // of the request that it waits for
	holds   []hold
	fresh   []hold // that etcd has given to it, and it does not know
	unsure  string // the verb of the first hold whose outcome is unknown
	doubt   bool   // the session may have items that no hold is of
	todo    int8   // items to be enqueued
	since   int64  // a revision before the enqueue that is under way
}

// hold is an item that a worker has.
type hold struct {
	item.Held
	state string // stands for the state
	// How the hold ended, as etcd's history tells it from then on.
	end *ending
}

// ending is how a hold has ended.
type ending struct {
	item.Ending
	step string // of the request
	by   string // see item.Held.By
}

func (w *worker) name(i int) string { return []string{"worker 1", "worker 2"}[i] }

func sessionOf(i int, n int8) string { return "s" + strconv.Itoa(i+1) + strconv.Itoa(int(n)) }

func leaseOf(i int, n int8) int64 { return int64(100*(i+1)) + int64(n) }

// claim is the claim that is the session.
func (w *worker) claim(i int) *protocol.Held {
	layout, key := protocol.Layout{Prefix: prefix}, keys.SessionKey(sessionOf(i, w.session))
	return &protocol.Held{
		Layout: layout, Mode: protocol.Exclusive{Layout: layout, Key: key}, Key: key,
		Fence: w.fence, Lease: leaseOf(i, w.session),
	}
}

func (w *worker) generation(i int) item.Generation {
	return item.Generation{Keys: keys, Session: sessionOf(i, w.session), Rev: w.gen}
}

func (w *worker) append(b []byte) []byte {
	c := values.Code(b)
	for _, is := range [...]bool{w.dead, w.doubt, w.sent != nil, w.reply != nil} {
		c.Bool(is)
	}
	c = append(c, byte(w.session), byte(w.todo), byte(len(w.holds)), byte(len(w.fresh)))
	c = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(c, w.fence), w.gen), w.since)
	if w.sent != nil {
		c = append(c, w.sent.sig...)
	}
	c = append(append(c, w.answer...), w.unsure...)
	for _, h := range slices.Concat(w.holds, w.fresh) {
		c = append(append(append(c, 0), h.state...), h.By...)
		c = binary.AppendVarint(c, h.Rev)
		c.Bool(h.Elsewhere)
		if c.Bool(h.end != nil); h.end != nil {
			c = append(append(append(c, h.end.Verb...), h.end.By...), h.end.step...)
			c = append(c, h.end.by...)
		}
	}
	return c
}

// What the worker waits for, beside the steps of package item. A void has that of the request that it makes void.
type (
	claimVoid struct{ item.Claim }
	giveVoid  struct{}
	enterVoid struct {
		item.Enqueue
		i int
	}
	settle struct{ item.Recover }
	verb   struct {
		name string
		in   *pb.TxnRequest
	}
	enter struct {
		item.Enqueue
		i int
	}
)

// guardOf is what the step is named that carries a step under the guard of a session.
const guardOf = "guard of "

// send has a worker send the request of a step, under the guard of its session.
func (s *State) send(i int, name string, step any, in *pb.TxnRequest, held item.Held) {
	if s.scope.Change != nil {
		in = s.scope.Change(name, in)
	}
	var then []*pb.RequestOp
	_, _ = txn.Within(in, func(ops []*pb.RequestOp) (*clientv3.TxnResponse, error) {
		then = ops
		return nil, errors.New("not yet")
	})
	w := &s.workers[i]
	out := protocol.Commit{Held: w.claim(i), Then: then}.Build().In
	if s.scope.Change != nil {
		out = s.scope.Change(guardOf+name, out)
	}
	w.step, w.nested = step, len(in.Compare) > 0
	w.sent = (&request{step: name, by: i, held: held, in: out}).sign()
}

// void sends the request that makes those of the session void that are under way.
func (s *State) void(i int, step any, reads []*pb.RequestOp) {
	w := &s.workers[i]
	s.send(i, "void", step, w.generation(i).Void(`{"v":1}`, reads...), item.Held{})
}

// inner is the reply to the transaction that stands within the guarded one.
func (w *worker) inner(resp *pb.TxnResponse) *pb.TxnResponse {
	in, own := &pb.TxnRequest{}, &pb.TxnResponse{Header: resp.Header, Succeeded: true, Responses: resp.Responses}
	if w.nested { // Within sets the header, and others share the reply
		in.Compare = make([]*pb.Compare, 1)
		got := resp.Responses[0].GetResponseTxn()
		own.Responses = []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseTxn{
			ResponseTxn: &pb.TxnResponse{Succeeded: got.Succeeded, Responses: got.Responses},
		}}}
	}
	got, err := txn.Within(in, func([]*pb.RequestOp) (*clientv3.TxnResponse, error) {
		return (*clientv3.TxnResponse)(own), nil
	})
	if err != nil {
		panic(err)
	}
	return (*pb.TxnResponse)(got)
}

// lose ends a session that is over, as mourn in queue/session.go does.
func (s *State) lose(i int) error {
	w := &s.workers[i]
	w.session, w.fence, w.gen, w.since, w.doubt, w.step, w.fresh = 0, 0, 0, 0, false, nil, nil
	for n, h := range w.holds {
		if h.Elsewhere {
			continue // another session's
		}
		if n > 0 {
			break
		}
		if err := s.concluded(i, item.Gone); err != nil {
			return err
		}
	}
	if len(w.holds) > 0 && !w.holds[0].Elsewhere {
		w.unsure = ""
	}
	w.holds = slices.DeleteFunc(slices.Clone(w.holds), func(h hold) bool { return !h.Elsewhere })
	return nil
}

// concluded is an error if a worker takes a verb of its first hold for carried out that was not, or the
// other way round. What it does so by is as in refused of queue/verbs.go.
func (s *State) concluded(i int, standing item.Standing) error {
	w := &s.workers[i]
	h := w.holds[0]
	if w.unsure == "" || standing != item.Stands && h.end == nil {
		return nil // the only request was refused; or nothing says how the hold ended: the caller learns no outcome
	}
	done := standing != item.Stands && h.end.Verb == w.unsure && h.Mine(h.end.Ending)
	if carried := h.end != nil && h.end.step == w.unsure && h.end.by == h.By; done != carried {
		return fmt.Errorf("%s takes its %s of %s for carried out: %v, but that is %v",
			w.name(i), w.unsure, h.State.ID, done, carried)
	}
	return nil
}

// drop ends the first hold locally.
func (w *worker) drop() {
	w.holds, w.unsure, w.step = slices.Clone(w.holds[1:]), "", nil
}

// got adds items that a claim has taken.
func (s *State) got(i int, taken []item.Taken) error {
	w := &s.workers[i]
	for _, t := range taken {
		n := slices.IndexFunc(w.fresh, func(h hold) bool { return h.Rev == t.Rev && h.State.ID == t.State.ID })
		if n < 0 || w.fresh[n].state != item.Encode(t.State) {
			return fmt.Errorf("%s takes %s for claimed at revision %d, and it was not", w.name(i), t.State.ID, t.Rev)
		}
		if t.Content == nil {
			if kvs := s.ask(txn.Get([]byte(keys.Content(t.State.ID)))).Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
				t.Content = kvs[0]
			}
		}
		if _, err := t.Decode(); err != nil {
			if w.fresh[n].end == nil {
				return fmt.Errorf("%s has %w", w.name(i), err)
			}
			continue // its discard is refused
		}
		w.holds = append(slices.Clip(w.holds), w.fresh[n])
	}
	w.fresh = nil
	return nil
}
