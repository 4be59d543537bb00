package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
)

// Where effects stand in etcd, outside of the claims' own prefix.
const (
	effectPrefix = "/campaign/effect/" // <id>
	itemPrefix   = "/campaign/item/"   // <item>: the effect that completed it
	fencedSet    = "/campaign/set"     // the ids of all effects on the set
)

// put is the operation that an effect consists of. Its value is the intent. Each effect
// has a key of its own, so that etcd's revisions tell in which order effects were
// accepted, and its version whether one was carried out twice.
func put(name string, intent entry) clientv3.Op {
	return clientv3.OpPut(name, keyspace.Encode(intent))
}

// attempt has one effect. It writes down that the effect is about to be sent, and then
// what the reply says of it.
func (w *worker) attempt(kind string, token fencing.Token, send func(intent entry) error) error {
	e := w.journal.write(entry{Op: opIntent, ID: w.journal.id(), Kind: kind, Key: token.Key, Fence: token.Fence})
	err := send(e)
	switch {
	case err == nil:
		e.Op = opDone
	case errors.Is(err, etcdclaims.ErrUnknown):
		e.Op = opUnknown
	case errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrReleased):
		e.Op = opRefused
	default:
		e.Op = opFailed
	}
	if err != nil {
		e.Note = err.Error()
	}
	w.journal.write(e)
	return err
}

// effect has one effect on etcd under the fence of the claim.
func (w *worker) effect(ctx context.Context, kind string, claim *etcdclaims.Claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	w.note(w.attempt(kind, claim.Token(), func(intent entry) error {
		name := effectPrefix + intent.ID
		if kind == kindTxn {
			_, err := claim.Txn(ctx).Then(put(name, intent)).Commit()
			return err
		}
		// Only etcd judges these. Its client may send a transaction twice, so the
		// second must find the effect of the first.
		var otherwise txn.Ops
		first := otherwise.Add(clientv3.OpGet(name))
		resp, err := w.etcd.Txn(ctx).
			If(append(claim.Guard(), clientv3.Compare(clientv3.CreateRevision(name), "=", 0))...).
			Then(put(name, intent)).
			Else(otherwise...).
			Commit()
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", etcdclaims.ErrUnknown, err)
		case !resp.Succeeded && txn.ReplyIn(resp).First(first) == nil:
			return etcdclaims.ErrLost
		}
		return nil
	}))
}

const (
	setKey   = "set"
	thinking = 2 * time.Second // at most, between reading and writing
)

// addElement adds one element to a set that is one value in etcd: the workload that Jepsen
// calls lock-etcd-set. The set is read, and after a random time written back with the
// element, under a claim. With the fence in the write no element that was acknowledged can
// be lost.
func (w *worker) addElement(ctx context.Context, r *rand.Rand) error {
	wait, cancel := context.WithTimeout(ctx, between(r, 2*w.TTL, 6*w.TTL))
	defer cancel()
	claim, err := w.claims.Acquire(wait, setKey, suspectableIn(r, 2)...)
	if err != nil {
		return err
	}
	reading, cancel := context.WithTimeout(claim.Context(), callTimeout)
	defer cancel()
	resp, err := w.etcd.Get(reading, fencedSet)
	if err == nil {
		// Not the claim's context: a scenario that stops in time would show
		// nothing.
		retry.Sleep(ctx, between(r, 0, thinking))
		writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		err = w.attempt(kindSet, claim.Token(), func(intent entry) error {
			elements := intent.ID
			for _, kv := range resp.Kvs {
				elements = string(kv.Value) + " " + elements
			}
			_, err := claim.Txn(writing).Then(clientv3.OpPut(fencedSet, elements)).Commit()
			return err
		})
	}
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return errors.Join(err, claim.Release(giving))
}
