package work

import (
	"context"
	"fmt"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// recordUndo puts back the record as it was before an attempt that no caller got. Such an attempt
// must not count.
type recordUndo struct {
	c        *Runner
	claim    string
	key, put string           // the record, and what the attempt has put there
	before   string           // what was there before, "" if nothing
	lease    clientv3.LeaseID // that it is put back on
	shelf    *shelf           // of the attempt

	done chan struct{} // closed when it is undone, or with err when that is refused
	err  error
	over sync.Once
}

// undos are the attempts that are being undone, by claim. No other mutex is taken while its own is
// held.
type undos struct {
	mu   sync.Mutex
	byID map[string]*recordUndo
}

func (us *undos) of(claim string) *recordUndo {
	us.mu.Lock()
	defer us.mu.Unlock()
	return us.byID[claim]
}

func (us *undos) add(u *recordUndo) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.byID == nil {
		us.byID = make(map[string]*recordUndo)
	}
	us.byID[u.claim] = u
}

func (us *undos) remove(u *recordUndo) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.byID[u.claim] == u {
		delete(us.byID, u.claim)
	}
}

// Undo returns how the record of an attempt is undone. It may not be the first undo of that
// attempt.
func (w *plan) Undo(put *beside.Put) beside.Undo {
	u := &recordUndo{
		c: w.c, claim: claimIn(put.Value), key: put.Key, put: put.Value, before: w.restored(), lease: w.lease, shelf: put.On.(*shelf).enter(),
		done: make(chan struct{}),
	}
	w.undoing = u
	w.c.undos.add(u)
	return u
}

// Undone waits until the last attempt is undone.
func (w *plan) Undone(ctx context.Context) error {
	if w.undoing == nil {
		return nil
	}
	return w.undoing.wait(ctx)
}

// wait waits until the attempt is undone.
func (u *recordUndo) wait(ctx context.Context) error {
	select {
	case <-u.done:
		if u.err != nil {
			return fmt.Errorf("an earlier attempt of this client cannot be undone: %w", u.err)
		}
		return nil
	case <-u.c.host.Open().Done():
		return etcdclaims.ErrClosed
	case <-ctx.Done():
		return txn.ContextError(ctx)
	}
}

// Ops put the record back if it is that of the attempt.
func (u *recordUndo) Ops() []clientv3.Op {
	before := clientv3.OpDelete(u.key)
	if u.before != "" {
		before = clientv3.OpPut(u.key, u.before, clientv3.WithLease(u.lease))
	}
	return []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(u.key), "=", u.put)}, []clientv3.Op{before}, nil)}
}

// Settled releases callers that wait for the undo, unless it is tried again soon.
func (u *recordUndo) Settled(err error) {
	if err == nil {
		u.over.Do(func() { u.shelf.leave(false) })
	}
	select {
	case <-u.done:
	default:
		u.err = err
		close(u.done)
		u.c.undos.remove(u)
	}
}

// LeaseGone finds another lease for the record if its own is gone. A lease that merely was not
// renewed may still be there, and a record that may be put back must not be deleted.
func (u *recordUndo) LeaseGone(ctx context.Context) (changed bool, err error) {
	if u.lease == clientv3.NoLease {
		return false, nil
	}
	gone, err := u.c.host.LeaseGone(ctx, u.lease)
	if err != nil || !gone {
		return false, err
	}
	// That shows nothing about the record: the attempt had taken it off that lease, and
	// its owner revokes a lease without records. The lease of the attempt keeps it as
	// long.
	if u.lease != u.shelf.id {
		u.lease = u.shelf.id
		u.shelf.puts.Add(1)
	} else {
		u.before, u.lease = "", clientv3.NoLease // that was revoked, and the record with it
	}
	return true, nil
}

// verdictOf marks an error that names its call and key itself.
func verdictOf(err error) error {
	if isOutcome(err) {
		return &beside.Verdict{Err: err}
	}
	return err
}

// shelfOf returns the shelf of a record, or nil.
func shelfOf(put *beside.Put) *shelf {
	if put == nil {
		return nil
	}
	s, _ := put.On.(*shelf)
	return s
}
