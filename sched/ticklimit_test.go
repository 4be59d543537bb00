package sched_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// A traffic counts what transactions ask of etcd if all their conditions hold.
type traffic struct {
	requests, conditions, puts, bytes, deletes atomic.Int64
}

// spied returns a client of the server, and counts what it sends.
func spied(b *testing.B, server *testetcd.Process) (*clientv3.Client, *traffic) {
	b.Helper()
	sent := new(traffic)
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: server.Endpoints(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				sent.requests.Add(1)
				if txn, ok := req.(*pb.TxnRequest); ok {
					sent.add(txn)
				}
				return invoke(ctx, method, req, reply, conn, opts...)
			})},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = etcd.Close() })
	return etcd, sent
}

func (c *traffic) add(txn *pb.TxnRequest) {
	c.conditions.Add(int64(len(txn.Compare)))
	for _, op := range txn.Success {
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			c.puts.Add(1)
			c.bytes.Add(int64(len(op.RequestPut.Value)))
		case *pb.RequestOp_RequestDeleteRange:
			c.deletes.Add(1)
		case *pb.RequestOp_RequestTxn:
			c.add(op.RequestTxn)
		}
	}
}

func (c *traffic) reset() {
	for _, n := range []*atomic.Int64{&c.requests, &c.conditions, &c.puts, &c.bytes, &c.deletes} {
		n.Store(0)
	}
}

// limitTicks sends for so many ticks what each of them has asked for on average, and
// returns how long etcd takes. A tick is two transactions, one that begins it and one
// that ends it, each with half of its conditions and changes. As many of them as
// etcd allows are nested in one request, and two requests are under way, so that etcd
// has work between a reply and the next request.
func limitTicks(b *testing.B, etcd *clientv3.Client, each *traffic, ticks int) time.Duration {
	b.Helper()
	per := func(n *atomic.Int64) int { return int((n.Load() + int64(ticks)) / int64(2*ticks)) } // rounded
	conditions, puts, deletes := per(&each.conditions), per(&each.puts), per(&each.deletes)
	value := strings.Repeat("x", int(each.bytes.Load()/max(1, each.puts.Load())))
	const most = 128 // operations that etcd allows: the nested transactions and those of the longest
	nested := most - max(conditions, puts+deletes)
	prefix := testetcd.Prefix(b)
	var next atomic.Int64
	half := func() clientv3.Op {
		key := fmt.Sprint(prefix, "tick/", next.Add(1), "/")
		var cmps []clientv3.Cmp
		for i := range conditions {
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(fmt.Sprint(key, i)), "=", 0))
		}
		var ops []clientv3.Op
		for i := range puts {
			ops = append(ops, clientv3.OpPut(fmt.Sprint(key, i), value))
		}
		for i := range deletes {
			ops = append(ops, clientv3.OpDelete(fmt.Sprint(key, "gone/", i)))
		}
		return clientv3.OpTxn(cmps, ops, nil)
	}
	var left atomic.Int64
	left.Store(int64(2 * ticks))
	var all sync.WaitGroup
	began := time.Now()
	for range 2 {
		all.Go(func() {
			for {
				n := left.Add(-int64(nested)) + int64(nested) // that nobody has sent yet
				if n <= 0 {
					return
				}
				ops := make([]clientv3.Op, min(int64(nested), n))
				for i := range ops {
					ops[i] = half()
				}
				if _, err := etcd.Txn(b.Context()).Then(ops...).Commit(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}
