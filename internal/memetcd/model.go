// Package memetcd is etcd in memory, for tests of what needs no server: the model of etcd as a state that
// changes, and a client that asks it. No lease ends by itself.
package memetcd

import (
	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Model is an etcd that requests change.
type Model struct{ etcdmodel.State }

// New returns an etcd without keys and leases.
func New() *Model { return &Model{etcdmodel.New(100)} }

// Try carries out a transaction.
func (m *Model) Try(in *pb.TxnRequest) (resp *pb.TxnResponse, err error) {
	m.State, resp, err = m.Txn(in)
	return resp, err
}

// Do carries out a transaction that etcd does not refuse.
func (m *Model) Do(in *pb.TxnRequest) *pb.TxnResponse {
	resp, err := m.Try(in)
	if err != nil {
		panic(err)
	}
	return resp
}

// KV returns a key, or nil.
func (m *Model) KV(name string) *mvccpb.KeyValue {
	k := m.Get(name)
	if k.Modified == 0 {
		return nil
	}
	return k.KV()
}

// Put puts a key, and returns the revision. It grants the lease, unless that exists or is none.
func (m *Model) Put(name, value string, lease int64) int64 {
	m.Lend(lease)
	m.Do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Put([]byte(name), value, lease)}})
	return m.Revision()
}

// Remove deletes a key.
func (m *Model) Remove(name string) {
	m.Do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Delete([]byte(name))}})
}

// Lend grants a lease, unless it exists or is none.
func (m *Model) Lend(lease int64) {
	if lease != 0 && !m.Lives(lease) {
		m.State, _ = m.Grant(lease)
	}
}

// End ends a lease, if it exists, with the keys on it.
func (m *Model) End(lease int64) {
	m.State, _ = m.Revoke(lease)
}

// Restore has a key on another lease since it was put, as in a restored etcd in which its revision came about again.
func (m *Model) Restore(name string, lease int64) {
	k := m.Get(name)
	k.Lease = lease
	m.State = m.With(k)
}
