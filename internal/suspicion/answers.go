package suspicion

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

// answers answers questions whether this client lives. No other mutex is taken while its own
// is held.
type answers struct {
	Config

	mu sync.Mutex
	pending
	running bool // a goroutine answers
	news    chan struct{}
}

// answer answers a question in the background.
func (a *answers) answer(kv *mvccpb.KeyValue) {
	a.mu.Lock()
	a.add(string(kv.Key), kv.ModRevision, clock.Mono())
	first := !a.running
	a.running = true
	a.mu.Unlock()
	if first {
		a.Spawn(a.run)
	}
	a.wake()
}

// gone notes that a question stands no longer.
func (a *answers) gone(name string) {
	a.mu.Lock()
	a.remove(name)
	a.mu.Unlock()
	a.wake()
}

// wake makes the goroutine look again.
func (a *answers) wake() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// run answers while there are questions. A request whose reply is late holds up no
// other. A new question waits for no earlier one.
func (a *answers) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-a.news:
		case <-a.IO.Done():
			return
		}
		b, wait := a.due(min(mostAnswers, a.Etcd.MaxOps()-1)) // etcd counts one more for nested transactions
		if b != nil {
			a.Spawn(func() { a.send(b) })
		} else if wait < 0 {
			return
		}
		timer.Reset(wait)
	}
}

// due takes the questions to answer now. It ends the answering if no question stands.
func (a *answers) due(most int) (b *batch, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b, wait = a.take(clock.Mono(), most)
	a.running = wait >= 0
	return b, wait
}

// send answers some questions with one request.
func (a *answers) send(b *batch) {
	in := &pb.TxnRequest{}
	for _, q := range b.some {
		// A newer question of the same client is answered by itself.
		in.Success = append(in.Success, txn.Nest(&pb.TxnRequest{
			Compare: []*pb.Compare{txn.ModifiedAt([]byte(q.name), q.rev)}, Success: []*pb.RequestOp{txn.Delete([]byte(q.name))},
		}))
	}
	ctx, cancel := context.WithTimeout(a.IO, b.limit)
	defer cancel()
	began := clock.Mono()
	_, err := a.Etcd.Send(ctx, txn.Request{In: in})
	if ops := 1 + len(b.some); txn.IsTooManyOps(err) && ops > txn.LeastOps {
		a.Etcd.FewerOps(ops)
	}
	r := arrived
	switch {
	case errors.Is(err, txn.ErrPermissionDenied):
		r = denied
		a.Log.Debug("questions of other clients not answered", zap.Int("questions", len(b.some)), zap.Error(err))
	case err != nil:
		r = lost
	}
	a.mu.Lock()
	now := clock.Mono()
	a.sent(b, r, now, now.Sub(began), retry.Delay)
	a.mu.Unlock()
	a.wake()
}
