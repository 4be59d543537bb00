package world

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/driver"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

var (
	errEpoch   = errors.New("the epoch went back")
	errGivenUp = errors.New("the caller waits no longer")
)

// owner is which part of a client waits for an answer: its call, its term, or the chore of that number.
type owner int8

const (
	ofWork owner = -2 // its call, about the record
	stray  owner = -1 // none does any more
	ofCall owner = 0
	ofTerm owner = 1
	chores owner = 2 // the first
)

// message is a request, or the reply to it.
type message struct {
	from  int8
	of    owner
	step  string
	claim string // the attempt that it concerns, or ""
	over  string // the claim of its client that it takes the key over from, or ""
	in    *pb.TxnRequest
	resp  *pb.TxnResponse // nil until it was carried out
	err   error           // of etcd
	floor int64           // the greatest revision that its sender had seen
	bytes []byte
}

func (m *message) isAnswered() bool { return m.resp != nil || m.err != nil }

func (m *message) encode() {
	b := append(make([]byte, 0, 512), letter(int(m.from)), byte(m.of), flag(m.resp != nil)|flag(m.err != nil)<<1)
	b = append(append(appendInt(appendInt(b, m.floor), int64(len(m.claim))), m.claim...), m.over...)
	if m.isAnswered() { // what it was does not matter any more, but to the story
		b = appendValue(b, reflect.ValueOf(m.resp))
	} else {
		b = appendValue(b, reflect.ValueOf(m.in))
	}
	m.bytes = b
}

// send sends a request of a client. The batcher's ticket is that of the request alone.
func (w *World) send(i int, of owner, step string, r txn.Request) error {
	in, by := wire.Message(r), w.scope.Callers[i].Calls[0].Mode
	if w.scope.saw != nil {
		w.scope.saw.saw(step, by, in)
	}
	if d := w.scope.Drop; d != nil && d.Step == step {
		in = d.without(by, in)
	}
	m := message{from: int8(i), of: of, step: step, claim: w.clients[i].concern(of), in: in}
	if c := &w.clients[i]; of == ofCall && c.taking {
		m.over = c.parted.ID
	}
	if w.scope.Faults[Restore] > 0 {
		m.floor = w.clients[i].seen
	}
	m.encode()
	w.net = append(w.net, m)
	return nil
}

// concern returns the attempt that a request of a part of a client concerns, or "": a Clear is for what others left.
func (c *client) concern(of owner) string {
	switch {
	case of == ofCall && c.att.Phase() != protocol.Clearing:
		return c.att.ID
	case of == ofTerm:
		return c.term.held.ID
	case of >= chores:
		return c.chores[c.find(of)].claim
	}
	return ""
}

// remove takes a message from the net.
func (w *World) remove(m int) { w.net = slices.Delete(w.net, m, m+1) }

// forsake has a part of a client wait no longer for its answer. What was sent may still arrive.
func (w *World) forsake(i int, of owner) {
	for m := len(w.net) - 1; m >= 0; m-- {
		switch at := &w.net[m]; {
		case at.from != int8(i) || at.of != of || of == stray:
		case at.isAnswered():
			w.remove(m)
		default:
			at.of = stray
			at.encode()
		}
	}
}

// arrive carries a request out.
func (w *World) arrive(m int) error {
	at := &w.net[m]
	resp, err, bad := w.take(at)
	if bad != nil {
		return bad
	}
	if at.of == stray {
		w.remove(m)
		return nil
	}
	at.resp, at.err = resp, err
	at.encode()
	return nil
}

// reply gives a part of a client the answer.
func (w *World) reply(m int) error {
	at := w.net[m]
	w.remove(m)
	i := int(at.from)
	c := w.change(i)
	if at.err == nil && w.scope.Faults[Restore] > 0 {
		if at.resp.Header.Revision < at.floor {
			return w.fail(i)
		}
		c.seen = max(c.seen, at.resp.Header.Revision)
	}
	if at.err != nil && at.of != ofTerm && !errors.Is(at.err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("etcd refuses the %s of client %s: %w", at.step, c.name, at.err)
	}
	switch at.of {
	case ofCall:
		if at.err != nil {
			if err := w.lose(i); err != nil {
				return err
			}
		}
		return w.step(i, driver.Answer(at.resp, at.err))
	case ofWork:
		return w.buried(i, at.resp)
	case ofTerm:
		return w.endStep(i, driver.EndAnswer(at.resp, at.err))
	}
	return w.choreDone(i, at.of, at.resp, at.err)
}

// unanswered ends the wait for an answer.
func (w *World) unanswered(m int) error {
	at := w.net[m]
	i := int(at.from)
	w.forsake(i, at.of)
	switch at.of {
	case ofCall:
		return w.step(i, driver.NoAnswer(w.clients[i].act.Do))
	case ofWork:
		return w.send(i, ofWork, "Bury", w.clients[i].burial)
	case ofTerm:
		return w.endStep(i, driver.NoEndAnswer(w.clients[i].term.did.Kind))
	}
	return w.choreUnknown(i, at.of)
}

// fail has a client claim nothing any more: it has seen etcd's revision go back; see store.Store.see.
func (w *World) fail(i int) error {
	w.die(i, failed)
	return nil
}
