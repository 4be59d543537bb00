package concurrency

import (
	"context"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Mutex is a lock on a key. Its methods may be called from several goroutines, which exclude each
// other. Give each a Mutex of its own nevertheless: Unlock does not know which of them calls it.
type Mutex struct {
	Held
	s   *Session
	pfx string
}

// NewMutex returns a Mutex on the key pfx, without I/O. ErrInvalidKey of package etcdclaims describes
// which keys there are.
func NewMutex(s *Session, pfx string) *Mutex { return &Mutex{s: s, pfx: pfx} }

// TryLock locks the key if it is free and nobody waits for it. Otherwise it returns ErrLocked. Other
// errors are those of Lock.
func (m *Mutex) TryLock(ctx context.Context) error { return m.lock(ctx, false) }

// Lock locks the key, and waits in line while it is held, until ctx or the session ends. Its errors are
// ErrSessionExpired and those of [etcdclaims.Client.Acquire].
func (m *Mutex) Lock(ctx context.Context) error { return m.lock(ctx, true) }

func (m *Mutex) lock(ctx context.Context, wait bool) error {
	claim, err := m.s.acquire(ctx, m.pfx, wait)
	if err == nil {
		m.add(claim)
	}
	return err
}

// Unlock releases the key. The error matches ErrLockReleased if the Mutex is not locked, and
// etcdclaims.ErrLost if the lock was lost: other sessions may have had it meanwhile. After
// etcdclaims.ErrUnknown the key is freed in the background.
func (m *Mutex) Unlock(ctx context.Context) error { return m.unlock(ctx, m.s, m.pfx) }

// IsOwner returns a condition for a transaction, which holds while the Mutex has the lock: the key is
// as this term has written it. If etcd may be restored from a snapshot, use all conditions of
// Claim().Guard(): a restore can repeat revisions.
func (m *Mutex) IsOwner() clientv3.Cmp {
	rev := int64(-1) // of no key
	if claim := m.Claim(); claim != nil {
		rev = claim.Revision()
	}
	return clientv3.Compare(clientv3.ModRevision(m.s.claims.OwnKey(m.pfx)), "=", rev)
}

// Key returns the key in etcd, or "" if the Mutex is not locked.
func (m *Mutex) Key() string {
	if m.Claim() == nil {
		return ""
	}
	return m.s.claims.OwnKey(m.pfx)
}

// Header returns the revision at which the key was locked, or nil if the Mutex is not locked. No other
// field is set.
func (m *Mutex) Header() *pb.ResponseHeader { return header(m.Claim()) }

func header(claim *etcdclaims.Claim) *pb.ResponseHeader {
	if claim == nil {
		return nil
	}
	return &pb.ResponseHeader{Revision: claim.Revision()}
}

// NewLocker returns a Mutex as a sync.Locker. Lock waits until the session ends. Lock and Unlock panic
// if they fail, as those of etcd's package do.
func NewLocker(s *Session, pfx string) sync.Locker { return locker{NewMutex(s, pfx)} }

type locker struct{ m *Mutex }

func (l locker) Lock()   { must(l.m.Lock(l.m.s.etcd.Ctx())) }
func (l locker) Unlock() { must(l.m.Unlock(l.m.s.etcd.Ctx())) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// RWMutex is a lock for many readers or one writer, as that of etcd's package recipes. Readers and
// writers wait in one line. As with Mutex, give each goroutine its own.
type RWMutex struct {
	Held
	s   *Session
	pfx string
}

// NewRWMutex returns an RWMutex on the key prefix, without I/O. The key must not be longer than 980
// bytes. A Mutex on the same key is one more writer.
func NewRWMutex(s *Session, prefix string) *RWMutex { return &RWMutex{s: s, pfx: prefix} }

// RLock locks the key for a reader. It waits until the session ends.
func (m *RWMutex) RLock() error { return m.lock(etcdclaims.Shared()) }

// Lock locks the key for a writer. It waits until the session ends.
func (m *RWMutex) Lock() error { return m.lock() }

func (m *RWMutex) lock(opts ...etcdclaims.AcquireOption) error {
	claim, err := m.s.acquire(m.s.ctx, m.pfx, true, opts...)
	if err == nil {
		m.add(claim)
	}
	return err
}

// RUnlock releases the lock of a reader. Its errors are those of [Mutex.Unlock].
func (m *RWMutex) RUnlock() error { return m.unlock(m.s.etcd.Ctx(), m.s, m.pfx) }

// Unlock releases the lock of the writer. Its errors are those of [Mutex.Unlock].
func (m *RWMutex) Unlock() error { return m.unlock(m.s.etcd.Ctx(), m.s, m.pfx) }
