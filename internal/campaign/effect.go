package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/txn"
)

// Where things stand in etcd, outside of the claims' own prefix.
const (
	effectPrefix = "/campaign/effect/" // <key>/<id of the effect>
	fencedSet    = "/campaign/set/fenced"
)

// effectValue is what etcd holds of an effect that was carried out.
type effectValue struct {
	Fence  int64  `json:"fence"`
	Kind   string `json:"kind"`
	Worker string `json:"worker"`
}

// A holding is a claim as the judges know it.
type holding struct {
	*etcdclaims.Claim
	manual bool
}

// putEffect is the operation that an effect consists of. Each has a key of its
// own, so that etcd's revisions tell in which order effects were accepted, and
// its version whether one was carried out twice.
func (w *worker) putEffect(id, kind string, token fencing.Token) clientv3.Op {
	value, err := json.Marshal(effectValue{Fence: token.Fence, Kind: kind, Worker: w.Name})
	if err != nil {
		panic(err) // of strings and a number
	}
	return clientv3.OpPut(effectPrefix+token.Key+"/"+id, string(value))
}

// intend writes down that an effect is about to be sent.
func (w *worker) intend(kind string, token fencing.Token) entry {
	e := entry{Op: opIntent, ID: w.journal.id(), Kind: kind, Key: token.Key, Fence: token.Fence}
	w.journal.write(e)
	return e
}

// conclude writes down what the reply says of an effect.
func (w *worker) conclude(e entry, rev int64, err error) {
	e.Rev = rev
	switch {
	case err == nil:
		e.Op = opOK
	case errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrReleased):
		e.Op = opRefused
	case errors.Is(err, etcdclaims.ErrUnknown):
		e.Op = opUnknown
	default:
		e.Op = opFailed
	}
	if err != nil {
		e.Note = err.Error()
		w.note(err)
	}
	w.journal.write(e)
}

// effect has one effect on etcd under the fence of the claim.
func (w *worker) effect(ctx context.Context, kind string, h holding) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	e := w.intend(kind, h.Token())
	put := w.putEffect(e.ID, kind, h.Token())
	if kind == kindTxn {
		resp, err := h.Txn(ctx).Then(put).Commit()
		if err != nil {
			w.conclude(e, 0, err)
			return
		}
		w.conclude(e, resp.Header.Revision, nil)
		return
	}
	// Only etcd judges these. Its client may send a transaction twice, so the
	// second must find the effect of the first.
	name := string(put.KeyBytes())
	var otherwise txn.Ops
	first := otherwise.Add(clientv3.OpGet(name))
	resp, err := w.etcd.Txn(ctx).
		If(append(h.Guard(), clientv3.Compare(clientv3.CreateRevision(name), "=", 0))...).
		Then(put).
		Else(otherwise...).
		Commit()
	if err != nil {
		w.conclude(e, 0, fmt.Errorf("%w: %w", etcdclaims.ErrUnknown, err))
		return
	}
	if !resp.Succeeded {
		done := txn.ReplyIn(resp).First(first)
		if done == nil {
			w.conclude(e, 0, etcdclaims.ErrLost)
			return
		}
		w.conclude(e, done.ModRevision, nil)
		return
	}
	w.conclude(e, resp.Header.Revision, nil)
}
