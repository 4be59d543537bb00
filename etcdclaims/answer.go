package etcdclaims

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

const (
	// mostAnswers is how many questions one request answers, if etcd permits as many
	// operations.
	mostAnswers = 32
	// answerSoon is how long an answer that fails is tried again after short pauses.
	answerSoon = 5 * time.Second
)

// answer answers a question whether this client lives, in the background: it deletes the
// question. It does so whatever it holds, until it is closed.
func (c *Client) answer(kv *mvccpb.KeyValue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.questions[string(kv.Key)] = kv.ModRevision
	if !c.answering && c.io.Err() == nil {
		c.answering = true
		c.spawn(c.answerAll)
	}
}

// answerAll answers while there are questions. Questions that could not be answered are
// tried again soon, with later ones: each try may use another member of etcd.
func (c *Client) answerAll() {
	since := time.Now() // the last answer
	for try := 0; ; try++ {
		some := c.someQuestions()
		if len(some) == 0 {
			return
		}
		err := c.sendAnswers(some)
		switch {
		case err == nil:
			since, try = time.Now(), -1
			continue
		case errors.Is(err, ErrPermissionDenied):
			c.log.Debug("questions of other clients not answered", zap.Int("questions", len(some)), zap.Error(err))
			continue
		}
		// A late answer changes nothing, so it is tried until it is known to have come.
		c.putBack(some)
		if ops := 1 + len(some); wire.IsTooManyOps(err) && ops > txn.LeastOps {
			c.store.FewerOps(ops)
			continue
		}
		pause := try
		if time.Since(since) < answerSoon {
			pause = min(try, 2)
		}
		retry.Pause(c.io, pause)
	}
}

// someQuestions takes questions to answer. It ends the answering if there are no questions.
func (c *Client) someQuestions() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	some := make(map[string]int64)
	// The oldest first: its client is the next to suspect this one.
	oldest := slices.SortedFunc(maps.Keys(c.questions), func(a, b string) int { return cmp.Compare(c.questions[a], c.questions[b]) })
	most := min(mostAnswers, c.store.MaxOps()-1) // etcd counts one more for nested transactions
	for _, name := range oldest[:min(len(oldest), most)] {
		some[name] = c.questions[name]
		delete(c.questions, name)
	}
	if len(some) == 0 || c.io.Err() != nil {
		c.answering = false
		return nil
	}
	return some
}

// putBack puts questions back that were not answered, unless they were asked anew.
func (c *Client) putBack(some map[string]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, rev := range some {
		c.questions[name] = max(c.questions[name], rev)
	}
}

func (c *Client) sendAnswers(some map[string]int64) error {
	in := &pb.TxnRequest{}
	for name, rev := range some {
		// A newer question of the same client is answered by itself.
		in.Success = append(in.Success, txn.Nest(&pb.TxnRequest{
			Compare: []*pb.Compare{txn.ModifiedAt([]byte(name), rev)}, Success: []*pb.RequestOp{txn.Delete([]byte(name))},
		}))
	}
	ctx, cancel := context.WithTimeout(c.io, suspectInterval)
	defer cancel()
	_, err := c.store.Send(ctx, txn.Request{In: in})
	return err
}
