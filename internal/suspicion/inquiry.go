package suspicion

import (
	"cmp"
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// silence is a question that was not answered.
type silence struct {
	rev    int64 // its ModRevision
	lasted time.Duration
}

// inquiry asks one client.
type inquiry struct {
	all      *inquiries
	instance string
	value    string // of its question

	// Guarded by the mutex of inquiries:
	waiters map[*Accuser]struct{}
	taken   int // claims of the client that were taken, since it last answered

	// Of the goroutine that asks:
	standing
	on       Lease // that the present question is on
	last     Lease // of the last request, and of the one before: the question may be on it
	before   Lease
	followed time.Time // when it was last looked for after its claims were taken
	stale    bool      // nobody waited for a while: it is put anew, since the client may have missed it
}

// askValue is the value of session/<instance>/ask/<instance>. The id distinguishes the
// inquiries of one client.
type askValue struct {
	Version int    `json:"v"`
	ID      string `json:"id"`
	By      string `json:"by"`
}

func (all *inquiries) newInquiry(instance string) *inquiry {
	return &inquiry{
		all: all, instance: instance,
		value:   keyspace.Encode(askValue{Version: protocol.Version, ID: uuid.NewString(), By: all.Owner}),
		waiters: make(map[*Accuser]struct{}), standing: standing{least: firstPatience},
	}
}

func (q *inquiry) key() string { return q.all.Layout.Question(q.instance, q.all.Layout.Instance) }

// request looks whether the question still stands, and puts it if it does not. Without a
// lease it looks what became of a client whose claims were taken.
func (q *inquiry) request(on Lease) *pb.TxnRequest {
	name := []byte(q.key())
	if on == nil {
		sentinels := txn.Range(q.all.Layout.Sentinels(q.instance))
		sentinels.GetRequestRange().CountOnly = true
		return &pb.TxnRequest{Success: []*pb.RequestOp{txn.Get(name), sentinels}}
	}
	q.before, q.last = q.last, on
	in := &pb.TxnRequest{
		Compare: []*pb.Compare{txn.ValueIs(name, q.value)},
		Success: []*pb.RequestOp{txn.Get(name)},
		Failure: []*pb.RequestOp{txn.Put(name, q.value, int64(on.ID()))},
	}
	if q.stale {
		in.Success = append(in.Success, in.Failure...)
	}
	return in
}

// heard deals with the reply to a look, the i-th of one request, which began at a time. A
// look that was late does not count what passed before. It returns how long to wait for the
// next look at most.
func (q *inquiry) heard(on Lease, began time.Time, late bool, resp *clientv3.TxnResponse, i int,
	every time.Duration,
) (wait time.Duration) {
	now, all := clock.Mono(), q.all
	reply := txn.Inner(resp, i)
	if on == nil {
		q.followed, q.anew, q.stale = now, true, true
		return q.judged(txn.First(reply, 0), txn.Count(reply, 1) > 0)
	}
	x := sight{rev: resp.Header.Revision, began: began, now: now, late: late} // put by this request
	again := reply.Succeeded && q.stale                                       // it stood, without an answer
	if reply.Succeeded && !again {
		x.rev = txn.First(reply, 0).ModRevision
	}
	if x.rev != q.rev {
		x.kept = q.on != nil && !q.on.Ended() && !again
		if q.on = on; reply.Succeeded && !again { // put by a request whose reply did not come
			q.on = cmp.Or(q.before, on) // before is nil if that was the first
		}
	}
	q.stale = false
	limit := all.patience(q.instance, every, time.Duration(all.trip), time.Duration(q.answers))
	if all.Restored(afterOutage) {
		limit = max(limit, afterOutage)
	}
	switch means, left := q.saw(x, limit); means {
	case answered:
		q.judge(true)
	case silent:
		q.tell()
	case unanswered:
		return left
	}
	return every
}

// tell lets the waiters take their keys. It is repeated for those that are left.
func (q *inquiry) tell() {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	for w := range q.waiters {
		w.tell(silence{q.rev, time.Since(q.since)})
	}
}

// judged judges a client whose claims were taken, as soon as it answers after all, or all
// its leases have ended. It returns how long to wait for the next look.
func (q *inquiry) judged(ask *mvccpb.KeyValue, lives bool) (wait time.Duration) {
	switch {
	case ask == nil || string(ask.Value) != q.value:
		q.judge(true)
	case !lives:
		q.judge(false)
	default:
		return followEvery
	}
	return 0
}

// forget ends a suspicion without a judgement, and returns how many claims were taken.
func (q *inquiry) forget() (taken int) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	taken, q.taken = q.taken, 0
	return taken
}

// judge ends a suspicion, if there is one: it was wrong if the client answers.
func (q *inquiry) judge(wrong bool) {
	taken := q.forget()
	if taken == 0 {
		return
	}
	all := q.all
	fields := []zap.Field{zap.String("instance", q.instance), zap.Int("claims", taken)}
	if wrong {
		all.takenWrongly.Add(int64(taken))
		fields = append(fields, zap.Duration("patience", all.blame(q.instance)))
		all.Log.Warn("suspicion was wrong: the client answers", fields...)
	} else {
		all.Log.Info("suspicion was right: the client has no lease any more", fields...)
	}
	all.Judged(q.instance, taken, wrong)
}

// withdraw deletes the question, for which no caller waits any more.
func (q *inquiry) withdraw() {
	on := q.last
	if on == nil || on.Ended() {
		on = q.on
	}
	if on == nil || on.Ended() {
		return
	}
	name, etcd := []byte(q.key()), q.all.Etcd
	on.CleanUp("withdrawing a question", func(ctx context.Context) error {
		_, err := etcd.Do(ctx, txn.Request{In: &pb.TxnRequest{
			Compare: []*pb.Compare{txn.ValueIs(name, q.value)}, Success: []*pb.RequestOp{txn.Delete(name)},
		}})
		return err
	})
}
