package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/history"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
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
	{"notices lost", 4, (*world).loseNotices},
	{"one request disturbed", 24, (*world).disturbOne},
	{"several requests disturbed", 10, (*world).disturbSome},
	{"network cut", 10, (*world).cut},
	{"replies cut", 5, func(w *world, p *process) { p.host.CutReplies(); w.lasting(p) }},
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
		f := choose(w.rng, faults, func(f fault) int { return f.weight })
		w.history.Logf("fault: %s (%s)", f.name, p.name)
		w.count("fault: " + f.name)
		f.do(w, p)
		if w.queue != nil {
			w.queueUnderFire()
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

// after calls f after a time, even if processes are killed until then.
func (w *world) after(d time.Duration, f func()) {
	w.later.Go(func() {
		time.Sleep(d)
		f()
	})
}

// later calls f after a time, unless the process is killed before.
func (p *process) later(d time.Duration, f func()) {
	p.w.after(d, func() {
		if !p.dead.Load() {
			f()
		}
	})
}

// lasting heals after a time that can be longer than any lease.
func (w *world) lasting(p *process) {
	end := w.ledger.begin(span{who: p, outage: true, cut: true})
	p.later(between(w.rng, 50*time.Millisecond, p.ttl+p.ttl/2), func() { p.mend(); end() })
}

func (w *world) cut(p *process) {
	p.host.Cut()
	w.lasting(p)
}

// slowThenCut lets etcd hear of a renewal long before the client hears of that,
// and then nothing more.
func (w *world) slowThenCut(p *process) {
	end := w.ledger.begin(span{who: p, outage: true})
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
	end := w.ledger.begin(span{who: p, outage: true})
	p.host.Cut()
	time.Sleep(between(w.rng, 0, p.ttl/2))
	w.pad(w.revision() + 1)
	w.compact(p)
	p.host.Break()
	p.mend()
	p.later(2*time.Second, end)
}

func (w *world) breakConnections(p *process) {
	end := w.ledger.begin(span{who: p, outage: true})
	p.host.Break()
	p.later(2*time.Second, end)
}

func (w *world) killProcess(p *process) {
	p.kill()
	time.Sleep(between(w.rng, 0, 5*time.Second))
	w.succeed(p)
}

// endProcess closes a client in order, whatever its network.
func (w *world) endProcess(p *process) {
	w.trace.leaves(p)
	p.stop()
	closing, cancel := context.WithTimeout(context.Background(), between(w.rng, time.Millisecond, 10*time.Second))
	defer cancel()
	if w.queue != nil && w.rng.IntN(3) > 0 { // as is right; else the client is closed first
		p.closeQueue(between(w.rng, time.Millisecond, 10*time.Second))
	}
	p.class("close", p.client.Close(closing))
	p.closeQueue(time.Second)
	w.succeed(p)
}

// closeUnder closes a client while its workers go on to use it.
func (w *world) closeUnder(p *process) {
	w.trace.leaves(p)
	p.clear(func() { p.class("close", soon(between(w.rng, 0, 10*time.Second), p.client.Close)) })
	p.closeQueue(time.Second)
	p.stop()
	w.succeed(p)
}

// succeed starts another process in the place of one that has ended.
func (w *world) succeed(p *process) {
	w.old = append(w.old, p)
	w.slots[p.slot] = w.newProcess(p.slot, p.number+1)
}

// clockStep is how far a wall clock is moved: longer than any lease.
const clockStep = time.Minute

func (w *world) stepClock(p *process) {
	d := between(w.rng, -clockStep, clockStep)
	p.host.StepClock(d)
	p.clockMoved(d)
}

// clockMoved notes how far the process's clock is from the true time.
func (p *process) clockMoved(d time.Duration) {
	is := time.Duration(p.clock.Add(int64(d)))
	if qs := p.w.queue; qs != nil {
		qs.mu.Lock()
		defer qs.mu.Unlock()
		qs.ahead, qs.behind = max(qs.ahead, is), min(qs.behind, is)
	}
}

// sleep puts the machine to sleep for as long.
func (p *process) sleep(d time.Duration) {
	p.asleep.Store(true)
	p.host.Suspend(d)
	p.clockMoved(d)
	p.asleep.Store(false)
}

// suspend puts a machine to sleep. For it, its claims are over if that was long.
func (w *world) suspend(p *process) {
	end := w.ledger.begin(span{who: p, outage: true})
	p.sleep(between(w.rng, 0, 2*p.ttl))
	end()
}

// held chooses a key that somebody holds.
func (w *world) held() (key string, lease clientv3.LeaseID) { return w.heldUnder(prefix + "own/") }

// heldUnder chooses one whose key in etcd begins so.
func (w *world) heldUnder(own string) (key string, lease clientv3.LeaseID) {
	kvs := w.get(own, clientv3.WithPrefix()).Kvs
	if len(kvs) == 0 {
		return "", 0
	}
	kv := kvs[w.rng.IntN(len(kvs))]
	return string(kv.Key[len(prefix+"own/"):]), clientv3.LeaseID(kv.Lease)
}

// all are the keys that anybody may hold.
func (w *world) all() []string {
	all := append(slices.Concat(w.keys, pool()), hotKey)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.jobs + 1 {
		all = append(all, fmt.Sprintf("job%d", i))
	}
	return all
}

// takeAll records that something begins which may take any key away.
func (w *world) takeAll() (calls []*history.Call) {
	for _, key := range w.all() {
		calls = append(calls, w.history.Take(key))
	}
	return calls
}

// revoke ends a lease and all that is on it.
func (w *world) revoke(lease clientv3.LeaseID) {
	calls := w.takeAll()
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
func (w *world) take(key string, h how) {
	call := w.history.Take(key)
	own := testclaims.Key("", key)
	op := clientv3.OpDelete(own)
	if h == overwritten {
		op = clientv3.OpPut(own, overwriting)
	}
	w.admin(fmt.Sprintf("%s of %s", h, own), func(ctx context.Context, etcd *clientv3.Client) error {
		resp, err := etcd.Txn(ctx).Then(op).Commit()
		if err != nil {
			return err
		}
		for _, did := range resp.Responses { // to op alone
			if del := did.GetResponseDeleteRange(); del == nil || del.Deleted > 0 {
				w.trace.take(own, resp.Header.Revision, h)
			}
		}
		return nil
	})
	call.Done()
}

func (w *world) deleteKey(*process) {
	if key, _ := w.held(); key != "" {
		w.take(key, deleted)
	}
}

// overwriting is what a key is overwritten with.
const overwriting = "not a claim"

// overwriteKey makes a claim that nobody has and no lease ends, as any other
// program could; then somebody clears that up.
func (w *world) overwriteKey(*process) {
	key, _ := w.held()
	if key == "" {
		return
	}
	w.take(key, overwritten)
	time.Sleep(between(w.rng, 0, 5*time.Second))
	w.take(key, deleted)
}
