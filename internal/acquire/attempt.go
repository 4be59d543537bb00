package acquire

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Attempt is one try of a call to claim a key, as package protocol knows it, with what the
// client needs to carry it out. One goroutine uses it at a time.
type Attempt struct {
	protocol.Acquisition

	User  string // the key that the call is for
	S     *lease.Session
	Call  *Call
	Put   *beside.Put // what it puts under the key beside it, or nil
	since time.Time   // by the wall clock, for people
	ttl   int64       // of the session's lease, in seconds
	ac    *Acquirer

	// Undone, if not nil, is called once nothing that names the attempt's place is under way any more: it left the line
	// with the key, or the first request that undoes the settled attempt was answered. An attempt is undone once.
	Undone func()

	freed func() // makes the name of its shared claim one to be used again, or nil

	overtakes  bool       // the last holder of what is beside it has died
	supersedes *term.Term // the own term that it was to supersede, or nil

	hooked context.Context // for the hooks, or nil
}

// New begins an attempt for a key in the mode of the call, which its caller ends with End.
func (ac *Acquirer) New(s *lease.Session, mode protocol.Mode, o *Call) *Attempt {
	id, epoch := uuid.NewString(), ac.Store.Epoch()
	shares := mode.Keys().Shares
	name := id
	if shares != "" {
		name = cmp.Or(ac.Names.Take(shares, epoch.Value), id)
	}
	a := &Attempt{
		Acquisition: protocol.Acquisition{Try: protocol.Try{
			Layout: ac.Store.Layout, Mode: mode.For(name, epoch.Value), ID: id, Ticket: id,
			Lease: int64(s.ID()), Epoch: epoch, Ask: o.asks(),
		}},
		User: mode.Keys().User, S: s, since: ac.Clock.Time(), ttl: int64(s.Grant().TTL / time.Second),
		Call: o, ac: ac, hooked: o.Hooked,
	}
	if shares != "" {
		a.freed = sync.OnceFunc(func() { ac.Names.Give(shares, epoch.Value, name) })
	}
	a.Describe()
	ac.Keys.Register(a.ID)
	return a
}

// End ends an attempt, whatever became of it.
func (a *Attempt) End() {
	a.ac.Keys.Unregister(a.ID)
	if a.freed != nil && a.Refused() {
		a.freed()
	}
}

// AskedAt returns when the call asked for the key, by the wall clock.
func (a *Attempt) AskedAt() time.Time { return a.since }

// Claim returns the try.
func (a *Attempt) Claim() *protocol.Try { return &a.Try }

// Under has the attempt claim under an epoch.
func (a *Attempt) Under(e *txn.Epoch) {
	a.Epoch = e
	a.Describe()
}

// Handed returns what the attempt was granted by a holder of its own client.
func (a *Attempt) Handed(rev int64, behind protocol.Line, trace string) term.Grant {
	a.HandedAt, a.Line, a.Trace = rev, behind, trace
	return a.grant(rev)
}

// grant is the claim that the attempt has at a revision.
func (a *Attempt) grant(rev int64) term.Grant {
	o := a.Call
	return term.Grant{
		Given: term.Given{
			Since: a.since, Put: a.Put, MinHold: o.MinHold, MaxHold: o.MaxHold, Progress: o.Progress, Noted: o.Note != nil,
			Suspectable: o.Suspectable, Lazy: o.Lazy, Prefers: o.Prefers, Preference: o.Preference,
		},
		Try: &a.Try, Rev: rev, Session: a.S, Noticed: a.Noticed, From: o.From, Line: a.Line, Freed: a.freed,
	}
}

// copied returns the attempt as it is now, for a cleanup that runs beside it.
func (a *Attempt) copied() *Attempt {
	now := *a
	return &now
}

// Rename gives the attempt's place in line the name of an earlier one, "" for one of its own.
func (a *Attempt) Rename(name string) {
	if a.Name = name; name != "" {
		a.Describe()
	}
}

// Describe makes the value of the claim, and that of the key beside it.
func (a *Attempt) Describe() {
	if b := a.Call.Beside; b != nil {
		a.Put = b.Put(beside.Attempt{Claim: a.ID, Epoch: a.Epoch.Value, Since: a.since})
		a.Beside = &protocol.Beside{Key: a.Put.Key, Rev: b.Rev(), Value: a.Put.Value, Lease: int64(a.Put.Lease)}
	}
	a.Value = a.ac.value(a)
}

// Supersede makes the attempt take the key from a term of its own client, nil for none.
func (a *Attempt) Supersede(t *term.Term) {
	if a.supersedes = t; t != nil {
		a.Acquisition.Supersede(&t.Held)
	}
}

// lineKey is the key of the attempt's line, and of its requests in round trips.
func (a *Attempt) lineKey() string { return a.Mode.Keys().Line }

// claimKey is the key whose etcd key is the claim.
func (a *Attempt) claimKey() string { return a.Mode.Keys().Claim }

// HolderOf describes what holds the key that the call is for.
func (a *Attempt) HolderOf(own *mvccpb.KeyValue) Holder {
	h := Holder{Key: a.User, Own: own}
	if n := a.Mode.Keys().Slots; n > 0 && own != nil {
		if _, ok := a.Mode.At(own.Key, own.ModRevision); ok {
			h.Slots = n
		}
	}
	return h
}
