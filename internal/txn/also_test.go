package txn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// Each round trip of requests carries the operations of Config.Also behind theirs, within
// the limit of operations, and no reply contains the answer to them unless its request was
// alone. What only asks etcd carries none.
func TestAlso(t *testing.T) {
	t.Parallel()
	const limit = 16
	also := txn.Then(clientv3.OpPut("also", "")).Success
	synctest.Test(t, func(t *testing.T) {
		io, end := context.WithCancel(t.Context())
		defer end()
		e := &etcd{}
		b := txn.NewBatcher(txn.Config{
			IO: io, Send: e.send, Timeout: time.Second, EpochKey: []byte("epoch"), Also: also,
			Ops: limit, Bytes: 1 << 20,
		})
		noErrors(t, together(t, b, numbered(100)...))
		for _, trip := range e.trips {
			n := len(trip.in.Success)
			if last := trip.in.Success[n-1]; last != also[0] {
				t.Errorf("behind the requests is %v", last)
			}
			if inner := trip.in.Success[0].GetRequestTxn(); inner != nil {
				if n += len(inner.Success); inner.Success[0].GetRequestTxn() != nil {
					n++
				}
			}
			if n > limit {
				t.Errorf("%d operations", n)
			}
		}
		if len(e.trips) > 10 {
			t.Errorf("%d round trips of 100 requests", len(e.trips))
		}

		e.refuse = func(_ int, in *pb.TxnRequest) (*clientv3.TxnResponse, error) {
			if in.Success[len(in.Success)-1] == also[0] {
				return nil, txn.Outcome(t.Context(), rpctypes.ErrNoSpace)
			}
			return nil, nil
		}
		r := txn.Request{Key: "full", In: txn.Of([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("full"), "=", 0)}, []clientv3.Op{clientv3.OpPut("full", "")}, nil)}
		if _, err := b.Do(t.Context(), r); !errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, txn.ErrUnknown) {
			t.Errorf("without space: %v", err)
		}
		if len(r.In.Success) != 1 {
			t.Error("the request was changed")
		}
		end()
		b.Wait()
	})
}

// Wait may be called while callers still come: nothing begins any more, and what waits
// gets the reason why Config.IO has ended.
func TestWaitWhileCallersCome(t *testing.T) {
	t.Parallel()
	why := errors.New("over")
	io, end := context.WithCancelCause(t.Context())
	e := &etcd{}
	b := txn.NewBatcher(txn.Config{IO: io, Send: e.send, Timeout: time.Second, EpochKey: []byte("epoch"), Ops: 128, Bytes: 1 << 20})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := 0; io.Err() == nil; n++ {
				if _, err := b.Do(context.Background(), get(fmt.Sprint(i, n))); err != nil && !errors.Is(err, why) && !errors.Is(err, txn.ErrUnknown) {
					t.Error(err) // unknown: what was under way
				}
			}
		})
	}
	e.await(20)
	end(why)
	b.Wait()
	wg.Wait()
}

// await returns when so many round trips were begun.
func (e *etcd) await(n int) {
	for tick := time.NewTicker(took); len(e.sent()) < n; {
		<-tick.C
	}
}

// The message of a checked transaction is that of its parts; what the check refuses has
// none, and is not sent.
func TestChecked(t *testing.T) {
	t.Parallel()
	var sent []*pb.TxnRequest
	refused := errors.New("refused")
	build := func() clientv3.Txn {
		return txn.NewChecked(func(_ []clientv3.Cmp, lists ...[]clientv3.Op) error {
			if len(lists[0]) == 0 {
				return refused
			}
			return nil
		}, func(in *pb.TxnRequest, _ []string) (*clientv3.TxnResponse, error) {
			sent = append(sent, in)
			return &clientv3.TxnResponse{Succeeded: true}, nil
		})
	}
	if _, err := txn.Message(build()); !errors.Is(err, refused) {
		t.Errorf("message: %v", err)
	}
	if _, err := build().Commit(); !errors.Is(err, refused) || len(sent) > 0 {
		t.Errorf("commit: %v, sent %v", err, sent)
	}
	cmp, put, read := clientv3.Compare(clientv3.Version("k"), "=", 0), clientv3.OpPut("k", "v"), clientv3.OpGet("k")
	want := txn.Of([]clientv3.Cmp{cmp}, []clientv3.Op{put}, []clientv3.Op{read})
	in, err := txn.Message(build().If(cmp).Then(put).Else(read))
	if err != nil || !proto.Equal(in, want) || len(sent) > 0 {
		t.Errorf("message %v, %v, sent %v", in, err, sent)
	}
	if _, err := build().If(cmp).Then(put).Else(read).Commit(); err != nil || len(sent) != 1 || !proto.Equal(sent[0], want) {
		t.Errorf("commit: %v, sent %v", err, sent)
	}
	if resp, err := txn.CommitMessage(build(), want); err != nil || !resp.Succeeded || len(sent) != 2 || sent[1] != want {
		t.Errorf("commit of a message: %v, sent %v", err, sent)
	}
}
