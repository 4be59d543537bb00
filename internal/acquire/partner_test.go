package acquire

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// partner is a key beside a claim, whose puts are on a lease of its own. It notes how it is called.
type partner struct {
	w        *world
	prepares []error // of Prepare

	mu     sync.Mutex
	known  *mvccpb.KeyValue
	lease  clientv3.LeaseID
	others []clientv3.LeaseID // those that it has next
}

const partnerKey = "/p/work/k"

// beside returns a call for a key with a partner.
func (w *world) beside(key string) (*Call, *partner) {
	o, p := exclusive(key), &partner{w: w}
	o.Beside = p
	return o, p
}

func (p *partner) Key() string { return partnerKey }

func (p *partner) Rev() int64 {
	if kv := p.Known(); kv != nil {
		return kv.ModRevision
	}
	return 0
}

func (p *partner) Begin(beside.Call)                  {}
func (p *partner) Turn(context.Context, func()) error { return nil }
func (p *partner) InLine(func())                      {}
func (p *partner) Saw(*mvccpb.KeyValue)               {}
func (p *partner) Undone(context.Context) error       { return nil }

func (p *partner) Prepare(context.Context) (err error) {
	if len(p.prepares) > 0 {
		err, p.prepares = p.prepares[0], p.prepares[1:]
	}
	return err
}

func (p *partner) Put(a beside.Attempt) *beside.Put {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &beside.Put{Key: partnerKey, Value: fmt.Sprint(a.Claim, " under ", a.Epoch), Lease: p.lease, Number: 1}
}

func (p *partner) Known() *mvccpb.KeyValue {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known
}

func (p *partner) Changed(kv *mvccpb.KeyValue) bool {
	p.w.Note("changed")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = kv
	return true
}

// next takes another lease if one is gone.
func (p *partner) next(lease clientv3.LeaseID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lease == 0 || p.w.Etcd.Lives(lease) {
		return false
	}
	p.lease, p.others = p.others[0], p.others[1:]
	return true
}

func (p *partner) LeaseGone(put *beside.Put, _ error) bool { return p.next(put.Lease) }

func (p *partner) Granted(superseded bool) bool {
	p.w.Note(fmt.Sprint("granted, superseded ", superseded))
	return false
}

func (p *partner) Undo(put *beside.Put) beside.Undo { return &unput{p, put} }

// unput undoes a put: with a key on the lease that the partner has by then.
type unput struct {
	p   *partner
	put *beside.Put
}

func (u *unput) Ops() []*pb.RequestOp {
	u.p.mu.Lock()
	defer u.p.mu.Unlock()
	return []*pb.RequestOp{txn.Nest(&pb.TxnRequest{
		Compare: []*pb.Compare{txn.ValueIs([]byte(partnerKey), u.put.Value)},
		Success: []*pb.RequestOp{txn.Put([]byte(partnerKey), "undone", u.p.lease)},
	})}
}

func (u *unput) LeaseGone(context.Context) (bool, error) {
	u.p.mu.Lock()
	lease := u.p.lease
	u.p.mu.Unlock()
	return u.p.next(lease), nil
}

func (u *unput) Settled(err error) {
	what, _, _ := strings.Cut(fmt.Sprint("settled: ", err), ": etcdserver")
	u.p.w.Note(what)
}
