package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/option"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// thenPrefix is where acquisitions write with Then, each to a key of its own.
const thenPrefix = "/then/"

// andThen is an acquisition with Then.
type andThen struct {
	p   *process
	key string // what Then puts

	granted, refused bool // neither: the outcome is unknown
	why              error

	puts, lasting int // in etcd; lasting: not undone by a restore
}

// newThen returns an acquisition with Then that begins now.
func (p *process) newThen() *andThen {
	t := p.w.trace
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &andThen{p: p, key: fmt.Sprint(thenPrefix, len(t.thens))}
	t.thens = append(t.thens, a)
	return a
}

func (a *andThen) option() etcdclaims.TxnOption {
	return etcdclaims.Then(clientv3.OpPut(a.key, a.p.name))
}

func (a *andThen) returned(err error) {
	if a.p.dead.Load() {
		return
	}
	t := a.p.w.trace
	t.mu.Lock()
	defer t.mu.Unlock()
	a.granted, a.why = err == nil, err
	a.refused = err != nil && !isAny(err, etcdclaims.ErrUnknown, etcdclaims.ErrLost)
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
	a := p.newThen()
	cl, err := p.acquireIn(ctx, key, wait, append(opts, a.option(), concerning(rng, a.key))...)
	a.returned(err)
	if p.dead.Load() {
		return nil
	}
	return cl
}

// judgeThens holds what callers were told against what was carried out.
func (r *replay) judgeThens() {
	thens := make(map[string]*andThen)
	for _, a := range r.t.thens {
		thens[a.key] = a
	}
	for _, c := range r.t.changes {
		a := thens[c.key]
		if a == nil || c.deleted {
			continue
		}
		a.puts++
		if !c.undone {
			a.lasting++
		}
	}
	for _, a := range r.t.thens {
		r.t.w.count(countThens)
		switch {
		case a.lasting > 1:
			r.fault("%s: what one acquisition did with Then was done %d times; it returned %v", a.p.name, a.lasting, a.why)
		case a.granted && a.puts == 0:
			r.fault("%s acquired a key, and what it did with Then is not in etcd", a.p.name)
		case a.refused && a.lasting > 0:
			r.fault("%s was refused a key (%v), and what it did with Then is in etcd", a.p.name, a.why)
		}
	}
}
