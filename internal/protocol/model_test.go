package protocol_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// model is an etcd in memory, to which a batcher sends.
type model struct {
	*memetcd.Model
	tb   testing.TB
	send *txn.Batcher
	fate fate // of the next transaction
	late []*pb.TxnRequest
}

// fate is what becomes of a transaction on its way.
type fate int

const (
	arrives    fate = iota
	loses           // it does not arrive
	losesReply      // it is carried out, and its reply does not arrive
	comesLate       // it is carried out when the test calls arrive
	comesTwice      // it is carried out, and once more before its reply is sent
	losesBoth       // the same, and its reply does not arrive
)

func newModel(tb testing.TB) *model {
	tb.Helper()
	m := &model{Model: memetcd.New(), tb: tb}
	m.send = txn.NewBatcher(txn.Config{
		IO: context.Background(), Timeout: time.Second, EpochKey: []byte(layout.Epoch()), VoidKey: layout.Void, Ops: 128, Bytes: 1 << 20,
		Send: func(_ context.Context, in *pb.TxnRequest, _ time.Duration) (*clientv3.TxnResponse, error) {
			f := m.fate
			m.fate = arrives
			switch f {
			case loses:
				return nil, txn.ErrUnknown
			case comesLate:
				m.late = append(m.late, in)
				return nil, txn.ErrUnknown
			case losesReply:
				_, _ = m.Try(in)
				return nil, txn.ErrUnknown
			case comesTwice:
				_, _ = m.Try(in)
			case losesBoth:
				_, _ = m.Try(in)
				_, _ = m.Try(in)
				return nil, txn.ErrUnknown
			}
			resp, err := m.Try(in)
			return (*clientv3.TxnResponse)(resp), err
		},
	})
	return m
}

// request carries out a request of the protocol. It returns nil if the reply is lost, or etcd refuses the request.
func (m *model) request(r txn.Request) *pb.TxnResponse {
	resp, _ := m.try(r)
	return resp
}

func (m *model) try(r txn.Request) (*pb.TxnResponse, error) {
	resp, err := m.send.Send(context.Background(), r)
	return (*pb.TxnResponse)(resp), err
}

// arrive carries out what was on its way.
func (m *model) arrive() {
	for _, in := range m.late {
		_, _ = m.Try(in)
	}
	m.late = nil
}

// put puts a key, and returns the revision.
func (m *model) put(name, value string, lease int64) int64 { return m.Put(name, value, lease) }

func (m *model) remove(name string) { m.Remove(name) }

// names lists the keys of claims, lines, notes, notices and records, shortened.
func (m *model) names() string {
	var all []string
	for _, k := range m.Under("") {
		short := strings.TrimPrefix(k.Name, layout.Prefix)
		if parts := strings.Split(short, "/"); parts[0] == "wait" {
			short = "wait/" + parts[2]
		}
		if !strings.HasPrefix(short, "void/") && short != "epoch" {
			all = append(all, short)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

var layout = protocol.Layout{Prefix: "/p/", Instance: "i"}

// caller is who tries for a key.
type caller struct {
	*model
	protocol.Try
}

// caller returns one with an id, which is also that of its lease.
func (m *model) caller(id string, mode protocol.Mode, epoch *txn.Epoch) *caller {
	lease := int64(0)
	for _, c := range id {
		lease = lease<<8 + int64(c)
	}
	m.Lend(lease)
	value := protocol.Holder{Claim: id, Owner: id, Instance: "i", Epoch: epoch.Value}.Encode()
	return &caller{model: m, Try: protocol.Try{
		Layout: layout, Mode: mode.For(id, epoch.Value), ID: id, Value: value, PlaceValue: value, Lease: lease, Epoch: epoch,
	}}
}

var noEpoch = &txn.Epoch{}
