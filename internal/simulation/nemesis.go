package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/claimtest/history"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// fault is one thing that the nemesis does.
type fault struct {
	name   string
	weight int
	do     func(w *world, p *process)
}

// faults are done to a process that is chosen at random, or to all.
var faults = []fault{
	{"burst under fire", 16, (*world).burstUnderFire},
	{"hand-over under fire", 10, (*world).handOverUnderFire},
	{"mail lost", 4, (*world).loseMail},
	{"one request disturbed", 24, (*world).disturbOne},
	{"several requests disturbed", 10, (*world).disturbSome},
	{"network cut", 10, (*world).cut},
	{"replies cut", 5, (*world).cutReplies},
	{"renewal slow, then cut", 3, (*world).slowThenCut},
	{"compacted while cut off", 2, (*world).compactedBehind},
	{"connections broken", 5, (*world).breakConnections},
	{"process killed", 5, (*world).killProcess},
	{"process ended", 4, (*world).endProcess},
	{"process closed under its workers", 4, (*world).closeUnder},
	{"deaf", 5, (*world).deafen},
	{"hot key", 1, (*world).heat},
	{"lock under fire", 4, (*world).lockUnderFire},
	{"lease revoked", 6, (*world).revokeLease},
	{"key deleted", 6, (*world).deleteKey},
	{"key overwritten", 2, (*world).overwriteKey},
	{"compacted", 4, (*world).compact},
	{"etcd restarted", 3, (*world).restartEtcd},
	{"quota filled", 3, (*world).fillQuota},
	{"wall clock stepped", 4, (*world).stepClock},
	{"machine asleep", 3, (*world).suspend},
	{"tokens expired", 3, (*world).expireTokens},
	{"snapshot restored, epoch raised", 1, (*world).restoreRaised},
	{"snapshot restored, seen by all", 1, (*world).restoreSeen},
	{"snapshot restored, under a zombie", 1, (*world).restoreZombie},
}

// nemesis does faults until the time has come.
func (w *world) nemesis(until time.Time) {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	p := w.slots[0]
	for {
		// Misfortunes seldom come alone: a third follow soon, on the same process.
		if w.rng.IntN(3) == 0 {
			time.Sleep(between(w.rng, 0, 2*time.Second))
			p = w.slots[p.slot]
		} else {
			time.Sleep(between(w.rng, 100*time.Millisecond, 20*time.Second))
			p = w.slots[w.rng.IntN(len(w.slots))]
		}
		if !time.Now().Before(until) {
			return
		}
		n := w.rng.IntN(total)
		for _, f := range faults {
			if n -= f.weight; n < 0 {
				w.history.Logf("fault: %s (%s)", f.name, p.name)
				w.count("fault: " + f.name)
				f.do(w, p)
				break
			}
		}
	}
}

// healAll ends every fault that lasts.
func (w *world) healAll() {
	for _, p := range w.slots {
		p.heal()
	}
	time.Sleep(longTTL) // for what ends by itself, as a full quota does
}

// mend heals the network, unless all are cut off.
func (p *process) mend() {
	if !p.w.isolated.Load() {
		p.host.Heal()
	}
}

func (p *process) heal() {
	p.host.RemoveFaults()
	p.watchAgain()
	p.host.Heal()
}

// later does something in a while, unless the process is killed before.
func (p *process) later(d time.Duration, f func()) {
	p.w.later.Go(func() {
		time.Sleep(d)
		if !p.dead.Load() {
			f()
		}
	})
}

// requests that can be disturbed.
var kinds = []claimtest.Kind{
	claimtest.Every, claimtest.Acquire, claimtest.Acquire, claimtest.Enqueue, claimtest.Enqueue, claimtest.Advance, claimtest.Resolve, claimtest.Undo,
	claimtest.Note, claimtest.Release, claimtest.Release, claimtest.HandOver, claimtest.Ending, claimtest.Ending, claimtest.Rehome, claimtest.Leave,
	claimtest.Grant, claimtest.Sentinel, claimtest.KeepAlive, claimtest.KeepAlive, claimtest.Verify, claimtest.Verify, claimtest.Other, claimtest.Other, claimtest.Watch,
	claimtest.Revoke,
}

var answers = []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Aborted}

// disturbance returns what happens to a request.
func disturbance(rng *rand.Rand) claimtest.Fault {
	f := claimtest.Fault{On: kinds[rng.IntN(len(kinds))], Skip: rng.IntN(3)}
	switch rng.IntN(6) {
	case 0:
		f.LoseRequest = true
	case 1, 2:
		f.LoseReply = true
	case 3:
		f.DelayRequest = between(rng, 0, 4*time.Second)
	case 4:
		f.DelayReply = between(rng, 0, 4*time.Second)
	case 5:
		f.Code = answers[rng.IntN(len(answers))]
		f.LoseReply = rng.IntN(2) == 0
	}
	if rng.IntN(8) == 0 {
		hold := make(chan struct{})
		after := between(rng, 0, 2*longTTL)
		time.AfterFunc(after, func() { close(hold) })
		f.Hold = hold
	}
	return f
}

func (w *world) disturbOne(p *process) {
	f := disturbance(w.rng)
	w.history.Logf("%s: %s", p.name, describe(f))
	i := p.inject(f)
	end := w.ledger.disturb(p, i, false)
	p.later(recovery, func() { p.remove(i, f); end() })
}

func (w *world) disturbSome(p *process) {
	f := disturbance(w.rng)
	f.Times = 2 + w.rng.IntN(12)
	w.history.Logf("%s: %s", p.name, describe(f))
	i := p.inject(f)
	end := w.ledger.disturb(p, i, true)
	p.later(between(w.rng, time.Second, longTTL), func() { p.remove(i, f); end() })
}

// remove ends a fault. A stream that began under a delay keeps it for as long as
// it lasts, and what comes on it is late by more and more: so it ends, too.
func (p *process) remove(i *claimtest.Injection, f claimtest.Fault) {
	i.Remove()
	if f.DelayReply > 0 && i.Hits() > 0 && (f.On == claimtest.Watch || f.On == claimtest.Every) {
		p.host.Break()
		time.Sleep(2 * time.Second)
	}
}

func describe(f claimtest.Fault) string {
	kind := f.On
	if kind == claimtest.Every {
		kind = "anything"
	}
	return fmt.Sprintf("%s, %d times after %d: delayed %v and %v, request lost %t, reply lost %t, answered %v, held %t",
		kind, max(1, f.Times), f.Skip, f.DelayRequest, f.DelayReply, f.LoseRequest, f.LoseReply, f.Code, f.Hold != nil)
}

// lasting heals after a time that can be longer than any lease.
func (w *world) lasting(p *process) {
	end := w.ledger.openCut(p)
	p.later(between(w.rng, 50*time.Millisecond, p.ttl+p.ttl/2), func() { p.mend(); end() })
}

func (w *world) cut(p *process) {
	p.host.Cut()
	w.lasting(p)
}

// slowThenCut lets etcd hear of a renewal long before the client hears of that,
// and then nothing more.
func (w *world) slowThenCut(p *process) {
	end := w.ledger.open(p, true)
	// As slow as one attempt may just be.
	renewal := p.inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, DelayReply: between(w.rng, p.ttl/12, p.ttl/7)})
	verifying := p.inject(claimtest.Fault{On: claimtest.Verify, Times: -1, DelayReply: between(w.rng, p.ttl/12, p.ttl/7)})
	time.Sleep(between(w.rng, p.ttl/3, p.ttl))
	p.host.Cut()
	p.later(between(w.rng, p.ttl, 2*p.ttl), func() {
		renewal.Remove()
		verifying.Remove()
		p.mend()
		end()
	})
}

// compactedBehind makes a process resume its watches where nothing is any more.
func (w *world) compactedBehind(p *process) {
	end := w.ledger.open(p, true)
	p.host.Cut()
	time.Sleep(between(w.rng, 0, p.ttl/2))
	w.pad(w.revision() + 1)
	w.compact(p)
	p.host.Break()
	p.mend()
	p.later(2*time.Second, end)
}

func (w *world) cutReplies(p *process) {
	p.host.CutReplies()
	w.lasting(p)
}

func (w *world) breakConnections(p *process) {
	end := w.ledger.open(p, true)
	p.host.Break()
	p.later(2*time.Second, end)
}

func (w *world) killProcess(p *process) {
	p.kill()
	w.old = append(w.old, p)
	time.Sleep(between(w.rng, 0, 5*time.Second))
	w.slots[p.slot] = w.newProcess(p.slot, p.number+1)
}

// endProcess closes a client in order, whatever its network.
func (w *world) endProcess(p *process) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w.trace.leaves(p)
	p.stop(ctx)
	closing, cancel := context.WithTimeout(context.Background(), between(w.rng, time.Millisecond, 10*time.Second))
	defer cancel()
	p.class("close", p.client.Close(closing))
	w.old = append(w.old, p)
	w.slots[p.slot] = w.newProcess(p.slot, p.number+1)
}

// closeUnder closes a client while its workers go on to use it.
func (w *world) closeUnder(p *process) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w.trace.leaves(p)
	var calls []*history.Call
	for _, token := range w.trace.clearing(p, 1) {
		calls = append(calls, w.history.Release(p.name, token))
	}
	closing, cancel := context.WithTimeout(context.Background(), between(w.rng, 0, 10*time.Second))
	defer cancel()
	p.class("close", p.client.Close(closing))
	for _, call := range calls {
		call.Unknown() // it may be that its worker gave it up
	}
	p.stop(ctx)
	w.old = append(w.old, p)
	w.slots[p.slot] = w.newProcess(p.slot, p.number+1)
}

// held chooses a key that somebody holds.
func (w *world) held() (key string, lease clientv3.LeaseID) {
	w.admin("reading who holds what", func(ctx context.Context, etcd *clientv3.Client) error {
		resp, err := etcd.Get(ctx, prefix+"own/", clientv3.WithPrefix())
		if err == nil && len(resp.Kvs) > 0 {
			kv := resp.Kvs[w.rng.IntN(len(resp.Kvs))]
			key, lease = string(kv.Key[len(prefix+"own/"):]), clientv3.LeaseID(kv.Lease)
		}
		return err
	})
	return key, lease
}

// all are the keys that anybody may hold.
func (w *world) all() []string {
	all := w.every()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.jobs + 1 {
		all = append(all, fmt.Sprintf("job%d", i))
	}
	return all
}

// revoke ends a lease and all that is on it.
func (w *world) revoke(lease clientv3.LeaseID) {
	var calls []*history.Call
	for _, key := range w.all() {
		calls = append(calls, w.history.Take(key))
	}
	w.trace.revoke(lease)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := w.server.Admin().Revoke(ctx, lease)
	for _, call := range calls {
		call.Returned(err)
	}
}

func (w *world) revokeLease(*process) {
	if _, lease := w.held(); lease != 0 {
		w.revoke(lease)
	}
}

// atBirth revokes some sessions at the very revision after their first.
func (w *world) atBirth(lease clientv3.LeaseID) {
	if uint64(lease)%16 == w.plan.Seed%16 && !w.settling.Load() {
		w.count("fault: session revoked at birth")
		w.later.Go(func() { w.revoke(lease) })
	}
}

// take does something to the key in etcd of a claim, by somebody's hand.
func (w *world) take(key string, h how, op func(etcdKey string) clientv3.Op) {
	call := w.history.Take(key)
	own := claimtest.Key("", key)
	w.admin(fmt.Sprintf("%s of %s", h, own), func(ctx context.Context, etcd *clientv3.Client) error {
		resp, err := etcd.Txn(ctx).Then(op(own)).Commit()
		if err != nil {
			return err
		}
		if del := resp.Responses[0].GetResponseDeleteRange(); del == nil || del.Deleted > 0 {
			w.trace.take(own, resp.Header.Revision, h)
		}
		return nil
	})
	call.Done()
}

func remove(etcdKey string) clientv3.Op { return clientv3.OpDelete(etcdKey) }

func (w *world) deleteKey(*process) {
	if key, _ := w.held(); key != "" {
		w.take(key, deleted, remove)
	}
}

// overwriteKey makes a claim that nobody has and no lease ends, as any other
// program could; then somebody clears that up.
func (w *world) overwriteKey(*process) {
	key, _ := w.held()
	if key == "" {
		return
	}
	w.take(key, overwritten, func(etcdKey string) clientv3.Op { return clientv3.OpPut(etcdKey, "not a claim") })
	time.Sleep(between(w.rng, 0, 5*time.Second))
	w.take(key, deleted, remove)
}

func (w *world) compact(*process) {
	w.trace.catchUp() // the observer is to miss nothing
	w.server.Compact(w)
}

func (w *world) restartEtcd(*process) {
	end := w.ledger.open(nil, true)
	w.server.Stop(w)
	time.Sleep(between(w.rng, 0, longTTL))
	w.server.Restart(w)
	time.Sleep(2 * time.Second)
	// Until gRPC tries again, which it does less often the longer it was refused.
	w.later.Go(func() {
		time.Sleep(2 * longTTL)
		end()
	})
}

func (w *world) fillQuota(*process) {
	end := w.ledger.openQuota()
	defer end()
	w.server.FillQuota(w)
	time.Sleep(between(w.rng, 0, longTTL))
	w.server.FreeQuota(w)
}

// clockStep is how far a wall clock is moved: longer than any lease.
const clockStep = time.Minute

func (w *world) stepClock(p *process) {
	p.host.StepClock(between(w.rng, -clockStep, clockStep))
}

// sleep puts the machine to sleep for as long.
func (p *process) sleep(d time.Duration) {
	p.asleep.Store(true)
	p.host.Suspend(d)
	p.asleep.Store(false)
}

// suspend puts a machine to sleep. For it, its claims are over if that was long.
func (w *world) suspend(p *process) {
	end := w.ledger.open(p, true)
	p.sleep(between(w.rng, 0, 2*p.ttl))
	end()
}

func (w *world) expireTokens(*process) {
	if w.auth {
		end := w.ledger.open(nil, false)
		w.server.ExpireTokens(w)
		w.later.Go(func() { // not p.later: it concerns all, whoever is killed
			time.Sleep(time.Second)
			end()
		})
	}
}
