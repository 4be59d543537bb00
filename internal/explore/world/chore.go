package world

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/driver"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// chore is a cleanup, which is tried until it is done or its session has ended; see lease.Cleanup. It never
// changes.
type chore struct {
	id      owner
	kind    string
	claim   string // the attempt that it concerns, or ""
	request txn.Request
	att     *protocol.Acquisition // whose stray claims the reply may show, or nil
	rest    *protocol.Ending      // of a claim that is given up in the background, or nil
	first   bool                  // it is the first request of a delayed release
	did     protocol.EndAction    // that the rest waits for
	besides []*pb.RequestOp       // put back the record of the attempt; such a chore outlives its session
	move    *protocol.Move        // of a claim whose handler goes on, or nil
}

func (c *chore) append(b []byte) []byte {
	b = append(append(append(b, byte(c.id)), strings.ToLower(c.kind)...), c.claim...) // its letters name no client
	if c.att != nil {
		b = appendValue(b, reflect.ValueOf(c.att))
	}
	if c.besides != nil {
		b = append(appendValue(b, reflect.ValueOf(c.besides)), flag(c.att != nil))
	}
	if c.move != nil {
		b = appendInt(append(b, flag(c.move.Unsure)), c.move.Lease)
	}
	if c.rest != nil {
		b = appendValue(append(b, byte(c.did.Kind), flag(c.first)), reflect.ValueOf(c.rest))
	}
	return b
}

// chore begins one.
func (w *World) chore(i int, c chore) error {
	cl := w.change(i)
	if cl.ended && c.besides == nil {
		return nil // the end of the lease does it
	}
	for c.id = chores; ; c.id++ { // the first number that is free
		if cl.find(c.id) < 0 {
			break
		}
	}
	cl.chores = append(cl.chores[:len(cl.chores):len(cl.chores)], c)
	return w.send(i, c.id, c.kind, c.request)
}

func (c *client) find(id owner) int {
	for n := range c.chores {
		if c.chores[n].id == id {
			return n
		}
	}
	return -1
}

// takeChore removes a chore from those of its client, and returns it.
func (c *client) takeChore(id owner) chore {
	n := c.find(id)
	taken := c.chores[n]
	c.chores = append(append([]chore(nil), c.chores[:n]...), c.chores[n+1:]...)
	return taken
}

// undo removes all that an attempt has put or may yet put; see acquire.Attempt.Undo.
func (w *World) undo(i int, a *protocol.Acquisition) error {
	now := *a
	besides := w.clients[i].besides(a)
	return w.chore(i, chore{kind: "Undo", claim: a.ID, att: &now, besides: besides, request: now.Undoing(besides).Build()})
}

// rest gives a claim up in the background; see exit.later of internal/term.
func (w *World) rest(i int, end *protocol.Ending) error {
	return w.restStep(i, chore{claim: end.ID, rest: end}, protocol.EndEvent{Kind: protocol.EndResumes})
}

// choreDone ends a chore that has its answer, or has it go on.
func (w *World) choreDone(i int, id owner, resp *pb.TxnResponse, err error) error {
	c := w.change(i)
	done := c.takeChore(id)
	done.first = false
	if errors.Is(err, rpctypes.ErrLeaseNotFound) && done.besides != nil { // see undoing.withoutLease of internal/acquire
		if !w.etcd.Lives(c.lease) {
			if err := w.lose(i); err != nil {
				return err
			}
		}
		done.att, done.request = nil, txn.Request{Key: userKey, Urgent: true, In: &pb.TxnRequest{Success: done.besides}}
		return w.chore(i, done)
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) && !w.etcd.Lives(c.lease) {
		return w.lose(i)
	}
	switch {
	case done.rest != nil:
		return w.restStep(i, done, driver.EndAnswer(resp, err))
	case done.move != nil && err != nil: // its own lease was used up
		return w.moveAgain(i, done, done.move.Unsure)
	case err != nil:
		return fmt.Errorf("etcd refuses the %s of client %s: %w", done.kind, c.name, err)
	case done.att == nil:
		return nil
	}
	step := protocol.Drop{Try: &done.att.Try, Claims: done.att.Elsewhere(resp)}
	if r, some := step.Build(); some {
		return w.chore(i, chore{kind: "Drop", claim: done.claim, request: r})
	}
	return nil
}

// restStep has the rest of an ending go on; see exit.goOn of internal/term.
func (w *World) restStep(i int, of chore, ev protocol.EndEvent) error {
	end := *of.rest
	of.rest = &end
	switch of.did = driver.GoOn(&end, ev); of.did.Kind {
	case protocol.EndSend, protocol.EndRead:
	case protocol.EndLost: // see parting.do of internal/term
		return w.clearAway(i, end.Release)
	default:
		return w.clear(i, &end, of.did)
	}
	of.request, of.kind = of.did.Request, driver.EndName(&end, of.did)
	return w.chore(i, of)
}

// choreUnknown tries a chore again that has no answer.
func (w *World) choreUnknown(i int, id owner) error {
	again := w.change(i).takeChore(id)
	again.first = false
	switch {
	case again.rest != nil:
		return w.restStep(i, again, driver.NoEndAnswer(again.did.Kind))
	case again.move != nil:
		return w.moveAgain(i, again, true)
	}
	return w.chore(i, again)
}

// moveAgain tries a move again; see term.move.
func (w *World) moveAgain(i int, of chore, unsure bool) error {
	m := *of.move
	m.Unsure = unsure
	if !w.etcd.Lives(m.Lease) {
		m.Lease = w.nextLease(w.change(i))
		if err := w.grantLease(m.Lease); err != nil {
			return err
		}
	}
	of.move, of.request = &m, m.Build()
	return w.chore(i, of)
}
