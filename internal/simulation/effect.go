package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/history"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	effectPrefix = "/effects/"
	donePrefix   = "/done/"
	thenPrefix   = "/then/" // where acquisitions write with Then, each to a key of its own
)

// intent is one effect that a process was about to write: under a claim, or with the acquisition of one.
type intent struct {
	t       *trace
	n       int
	token   fencing.Token
	p       *process
	then    bool // written with an acquisition, which is sent again if a restore has undone it
	outcome history.Outcome
	why     error
	applied int // how often it is in etcd
	lasting int // the same, but for what a restore has undone
}

// mark is what an effect writes.
type mark struct {
	N        int
	Instance string
	Fence    int64
}

func (t *trace) intend(token fencing.Token, p *process) *intent {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &intent{t: t, n: len(t.intents), token: token, p: p, outcome: history.OutcomeUnknown}
	t.intents = append(t.intents, e)
	return e
}

// key is where an acquisition writes.
func (e *intent) key() string { return fmt.Sprint(thenPrefix, e.n) }

func (e *intent) value() string {
	b, err := json.Marshal(mark{N: e.n, Instance: e.p.client.Instance(), Fence: e.token.Fence})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (e *intent) put() clientv3.Op { return clientv3.OpPut(effectPrefix+e.token.Key, e.value()) }

// returned notes what the process was told of the effect.
func (e *intent) returned(err error) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	dead := e.p.dead.Load()
	e.why = err
	switch {
	case err == nil && (!dead || !e.then):
		e.outcome = history.OutcomeDone
	case dead, errors.Is(err, etcdclaims.ErrUnknown), e.then && errors.Is(err, etcdclaims.ErrLost):
		e.outcome = history.OutcomeUnknown
	default:
		e.outcome = history.OutcomeRefused
	}
	if !e.then {
		e.t.w.count("effects " + string(e.outcome))
	}
}

// effect writes under the claim, as its owner only may.
func (p *process) effect(rng *rand.Rand, cl *etcdclaims.Claim) {
	if p.dead.Load() {
		return
	}
	ctx, cancel := p.within(rng, 6*time.Second)
	defer cancel()
	e := p.w.trace.intend(cl.Token(), p)
	call := p.w.history.Effect(p.name, cl.Token())
	resp, err := txn.Concerning(cl.Txn(ctx), concerning(rng, cl.Key()).Names...).Then(e.put()).Commit()
	p.returned(call, "effect", err)
	e.returned(err)
	p.w.faultIf(err == nil && !resp.Succeeded, "%s: a transaction without conditions of its own did not succeed, and gave no error", p.name)
}

// concerning says, half of the time, that what a transaction concerns has a name of its own.
func concerning(rng *rand.Rand, name string) option.Concern {
	if rng.IntN(2) == 0 {
		return option.Concern{}
	}
	return option.Concern{Names: []string{name}}
}

// acquireThen acquires a key by a transaction that also puts another one.
func (p *process) acquireThen(
	ctx context.Context, rng *rand.Rand, key string, wait bool, opts ...etcdclaims.AcquireOption,
) *etcdclaims.Claim {
	e := p.w.trace.intend(fencing.Token{}, p)
	e.then = true
	then := etcdclaims.Then(clientv3.OpPut(e.key(), e.value()))
	cl, err := p.acquireIn(ctx, key, wait, append(opts, then, concerning(rng, e.key()))...)
	e.returned(err)
	if p.dead.Load() {
		return nil
	}
	return cl
}

// wrote counts an effect in etcd, and checks that one under a claim was its owner's.
func (r *replay) wrote(c change) {
	var m mark
	if err := json.Unmarshal([]byte(c.value), &m); err != nil || m.N >= len(r.t.intents) {
		r.fault("a write that nobody made: %v", c)
		return
	}
	e := r.t.intents[m.N]
	if e.applied++; !c.undone {
		e.lasting++
	}
	if e.then {
		return
	}
	own := prefix + "own/" + e.token.Key
	now, held := r.own[own]
	if last, ok := r.last[own]; ok && !held && last.rev == c.rev {
		now = last.was // the write came with the end of the claim
	}
	h, token := now.holder(), now.token()
	r.faultIf(token != (fencing.Token{Key: e.token.Key, Fence: m.Fence}) || h.Instance != m.Instance || h.Kind != "",
		"a stale write of %s under %v was accepted at revision %d; the owner was: %v", e.p.name, e.token, c.rev, now)
	r.faultIf(m.Fence>>47 != r.epoch, "a write of %s under %v was accepted at revision %d in epoch %d", e.p.name, e.token, c.rev, r.epoch)
}

// judgeIntents holds what callers were told against what was carried out.
func (r *replay) judgeIntents() {
	for _, e := range r.t.intents {
		w := history.Write{Name: "of " + e.p.name, Token: e.token, Outcome: e.outcome, Found: e.applied}
		if e.then {
			r.count("judged: acquisitions with Then")
			if w.Name, w.Found = w.Name+" to "+e.key(), e.lasting; e.lasting == 0 && e.outcome == history.OutcomeDone {
				w.Found = min(e.applied, 1)
			}
		}
		if v := w.Check(); v != nil {
			r.fault("%v (it returned %v)", v, e.why)
		}
	}
}
