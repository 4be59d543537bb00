package suspicion

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// holder is a client that is asked whether it lives, and the etcd between it and the one that
// asks: it answers a question after some time, until it is dead.
type holder struct {
	mu       sync.Mutex
	dead     bool
	answers  time.Duration // how long it takes
	rev      int64
	question *mvccpb.KeyValue
	put      time.Time // when the question was put
	requests int
}

func (h *holder) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// Send carries out looks at one client.
func (h *holder) Send(_ context.Context, r txn.Request) (*clientv3.TxnResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests++
	if h.question != nil && !h.dead && time.Since(h.put) >= h.answers {
		h.question = nil
	}
	h.rev++
	look, found := r.In.Success[0].GetRequestTxn(), &pb.RangeResponse{}
	succeeded := len(look.Compare) == 0 || h.question != nil
	switch {
	case h.question != nil:
		found.Kvs = []*mvccpb.KeyValue{h.question}
	case !succeeded:
		h.question, h.put = &mvccpb.KeyValue{Value: look.Failure[0].GetRequestPut().Value, ModRevision: h.rev}, time.Now()
	}
	lives := &pb.RangeResponse{Count: 1}
	inner := &pb.TxnResponse{Succeeded: succeeded, Responses: []*pb.ResponseOp{ofRange(found), ofRange(lives)}}
	return &clientv3.TxnResponse{
		Header:    &pb.ResponseHeader{Revision: h.rev},
		Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: inner}}},
	}, nil
}

func ofRange(r *pb.RangeResponse) *pb.ResponseOp {
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: r}}
}

func (h *holder) Do(ctx context.Context, r txn.Request) (*clientv3.TxnResponse, error) {
	return h.Send(ctx, r)
}
func (h *holder) MaxOps() int  { return 128 }
func (h *holder) FewerOps(int) {}

type lease struct{}

func (lease) ID() clientv3.LeaseID                        { return 1 }
func (lease) Ended() bool                                 { return false }
func (lease) CleanUp(string, func(context.Context) error) {}

// asking runs f with a waiter for a key of the holder, and its position as the first in line.
func asking(t *testing.T, h *holder, f func(w *Accuser, first protocol.Position, judged <-chan string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		io, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		judged := make(chan string, 9)
		peers := New(Config{
			Layout: protocol.Layout{Prefix: "claims/", Instance: "accuser"}, Owner: "accuser",
			Log: zap.NewNop(), Etcd: h, IO: io, Open: io,
			Spawn:    func(f func()) { running.Go(f) },
			Restored: func(time.Duration) bool { return false },
			Judged: func(_ string, claims int, wrong bool) {
				judged <- fmt.Sprint(claims, " wrong: ", wrong)
			},
		})
		w := peers.Accuser(lease{}, "k", "claim")
		value := protocol.Holder{Claim: "c", Owner: "holder", Instance: "holder", Suspectable: true}.Encode()
		own := &mvccpb.KeyValue{Key: []byte("claims/own/k"), ModRevision: 1, Lease: 2, Value: []byte(value)}
		f(w, protocol.Position{Own: own}, judged)
	})
}

// opens waits until the waiter may take its key, and returns how long that took, -1 if it may not
// in a minute.
func opens(w *Accuser, p protocol.Position) (*protocol.Over, time.Duration) {
	began, late := time.Now(), time.After(time.Minute)
	defer w.Begin(p, 0)()
	for {
		select {
		case <-w.News():
			if over := w.Opens(); over != nil {
				return over, time.Since(began)
			}
		case <-late:
			return nil, -1
		}
	}
}

func TestAccuser(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		h        *holder
		change   func(h *holder, p *protocol.Position)
		from, to time.Duration // when the key may be taken; -1: never
		silent   bool          // the holder is asked nothing
	}{
		"the holder answers":         {h: &holder{answers: ms}, from: -1, to: -1},
		"each answer takes its time": {h: &holder{answers: 400 * ms}, from: -1, to: -1},
		"the holder never answers": {
			h: &holder{dead: true}, from: askAfter + firstPatience, to: askAfter + firstPatience + 100*ms,
		},
		"its last answer was at once": {
			h: &holder{answers: ms}, change: dies,
			from: 10*time.Second + suspectAfter - askEvery, to: 10*time.Second + suspectAfter + 2*askEvery,
		},
		"its answers took long": {
			h: &holder{answers: 400 * ms}, change: dies,
			from: 9600*ms + 3*300*ms, to: 10*time.Second + 4*400*ms,
		},
		"others are before the waiter": {
			h: &holder{dead: true}, change: func(_ *holder, p *protocol.Position) { p.Behind = true },
			from: -1, to: -1, silent: true,
		},
		"the holder has not agreed": {
			h: &holder{dead: true}, change: func(_ *holder, p *protocol.Position) {
				p.Own.Value = []byte(protocol.Holder{Claim: "c", Instance: "holder"}.Encode())
			},
			from: -1, to: -1, silent: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asking(t, tt.h, func(w *Accuser, p protocol.Position, _ <-chan string) {
				defer w.Leave()
				if tt.change != nil {
					tt.change(tt.h, &p)
				}
				if _, took := opens(w, p); took < tt.from || took > tt.to {
					t.Errorf("after %v, want from %v to %v", took, tt.from, tt.to)
				}
				tt.h.set(func() {
					if tt.silent != (tt.h.requests == 0) {
						t.Errorf("%d requests", tt.h.requests)
					}
				})
			})
		})
	}
}

func dies(h *holder, _ *protocol.Position) {
	time.AfterFunc(10*time.Second, func() { h.set(func() { h.dead = true }) })
}

// A waiter that etcd does not permit to take the key asks no more, and waits for the lease.
func TestAccuserThatMayNotTakeTheKey(t *testing.T) {
	t.Parallel()
	h := &holder{dead: true}
	asking(t, h, func(w *Accuser, p protocol.Position, _ <-chan string) {
		defer w.Leave()
		over, _ := opens(w, p)
		for err, want := range map[error]bool{
			txn.ErrPermissionDenied: true, rpctypes.ErrLeaseNotFound: true, context.DeadlineExceeded: false,
		} {
			if got := w.Failed(over, err); got != want {
				t.Errorf("%v: waits on %v, want %v", err, got, want)
			}
			if w.Failed(nil, err) {
				t.Errorf("%v of another request", err)
			}
		}
		if _, took := opens(w, p); took != -1 {
			t.Errorf("the key may be taken again after %v", took)
		}
	})
}

// A suspicion is judged wrong when the holder answers after all, and its client is waited for
// twice as long the next time.
func TestWrongSuspicion(t *testing.T) {
	t.Parallel()
	h := &holder{answers: ms}
	asking(t, h, func(w *Accuser, p protocol.Position, judged <-chan string) {
		dies(h, nil)
		over, _ := opens(w, p)
		w.Took(over, 7)
		w.Leave()
		time.Sleep(5 * time.Second)
		h.set(func() { h.dead = false })
		if got := <-judged; got != "1 wrong: true" {
			t.Error(got)
		}
		if taken, wrongly := w.peers.Counts(); taken != 1 || wrongly != 1 {
			t.Errorf("%d taken, %d wrongly", taken, wrongly)
		}
		if got := w.peers.inquiries.patience("holder", 0); got != 2*suspectAfter {
			t.Errorf("the patience is %v", got)
		}
	})
}
