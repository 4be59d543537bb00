package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// backup is a snapshot with what it is of.
type backup struct {
	claimtest.Snapshot
	rev int64
}

// padding is how far revisions go back at least.
const padding = 300

// backUp makes a snapshot, lets clients go on for a while, and sees to it that
// revisions move far beyond it.
func (w *world) backUp() backup {
	var b backup
	for done := false; !done; done = w.revision() == b.rev { // else it is not known what the snapshot has
		b.rev = w.revision()
		b.Snapshot = w.server.Snapshot(w)
	}
	time.Sleep(between(w.rng, 0, longTTL))
	w.pad(w.revision() + padding)
	return b
}

// pad writes until etcd is at the revision.
func (w *world) pad(to int64) {
	rev := w.revision()
	w.admin("padding", func(ctx context.Context, etcd *clientv3.Client) error {
		for rev < to {
			resp, err := etcd.Put(ctx, "/padding", "")
			if err != nil {
				return err
			}
			rev = resp.Header.Revision
		}
		return nil
	})
}

func (w *world) revision() int64 { return w.get("/", clientv3.WithCountOnly()).Header.Revision }

// isolate cuts all processes off; the returned function lets them go on.
func (w *world) isolate() (end func()) {
	closed := w.ledger.begin(span{outage: true})
	for _, p := range w.slots {
		p.heal() // no fault heals it meanwhile
		p.host.Cut()
		p.host.Break()
	}
	w.isolated.Store(true)
	return func() {
		w.isolated.Store(false)
		for _, p := range w.slots {
			p.host.Heal()
		}
		w.after(2*longTTL, closed) // as after a restart
	}
}

// restore puts the backup in etcd's place, with nobody connected.
func (w *world) restore(b backup) {
	calls := w.takeAll()
	w.restored.Store(true)
	w.trace.stop()
	w.server.Restore(w, b.Snapshot, 0)
	w.trace.rewind(b.rev)
	w.trace.follow()
	for _, call := range calls {
		call.Done()
	}
}

// restoreRaised is done as operators should: the epoch is raised before anybody
// is let in.
func (w *world) restoreRaised(*process) {
	if w.auth {
		return // see claimtest's Restore
	}
	b := w.backUp()
	end := w.isolate()
	w.restore(b)
	w.server.RaiseEpoch(w, "")
	end()
}

// restoreSeen lets those in who have seen later revisions, and raises the epoch
// only then: they must not claim before.
func (w *world) restoreSeen(*process) {
	if w.auth {
		return
	}
	b := w.backUp()
	for _, p := range w.slots {
		p.heal()
	}
	time.Sleep(recovery) // for connections
	w.pad(w.revision() + padding)
	for _, p := range w.slots {
		err := soon(5*time.Second, func(ctx context.Context) error {
			_, err := p.client.Lookup(ctx, "k0")
			return err
		})
		if err != nil {
			return // one may have seen nothing: then its claims would be right
		}
	}
	end := w.isolate()
	w.restore(b)
	end()
	time.Sleep(between(w.rng, 0, 8*time.Second))
	w.server.RaiseEpoch(w, "")
}

// restoreZombie lets a new owner's claim have the very revision that a zombie's
// had before the restore, and the zombie write then.
func (w *world) restoreZombie(p *process) {
	if w.auth {
		return
	}
	p.heal()
	b := w.backUp()
	key := fmt.Sprintf("zombie%d", w.trace.era)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cl, err := p.client.TryAcquire(ctx, key)
	if err != nil {
		return
	}
	p.w.trace.granted(cl.Token(), p)
	end := w.isolate()
	w.restore(b)
	fresh := claimtest.NewClient(w, w.server, etcdclaims.Config{})
	warm := func() bool { // its session may be revoked as soon as it is there
		for range 5 {
			if _, err := fresh.TryAcquire(context.Background(), "warm"); err == nil {
				return true
			}
		}
		return false
	}
	if !warm() {
		w.Fatalf("simulation: seed %d: a new client cannot acquire a key after a restore", w.plan.Seed)
	}
	w.pad(keyspace.Revision(cl.Fence()) - 1)
	next, err := fresh.TryAcquire(context.Background(), key)
	if err == nil && next.Fence() == cl.Fence() { // no lease ended meanwhile
		w.count("fence had twice, by a restore")
	}
	p.host.Heal()
	time.Sleep(2 * time.Second)
	e := w.trace.intend(cl.Token(), p)
	writing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	resp, err := cl.Txn(writing).Then(e.put()).Commit()
	cancel()
	if err != nil || !resp.Succeeded {
		err = errors.Join(err, etcdclaims.ErrUnknown)
	}
	e.returned(err)
	w.server.RaiseEpoch(w, "")
	_ = soon(5*time.Second, fresh.Close)
	end()
	w.trace.ended(cl.Token(), p)
	_ = soon(5*time.Second, cl.Release)
}

func (w *world) compact(*process) {
	w.trace.catchUp() // the observer is to miss nothing
	w.server.Compact(w)
}

func (w *world) restartEtcd(*process) {
	end := w.ledger.begin(span{outage: true})
	w.server.Stop(w)
	time.Sleep(between(w.rng, 0, longTTL))
	w.server.Restart(w)
	time.Sleep(2 * time.Second)
	// Until gRPC tries again, which it does less often the longer it was refused.
	w.after(2*longTTL, end)
}

func (w *world) fillQuota(*process) {
	end := w.ledger.begin(span{quota: true})
	defer end()
	w.server.FillQuota(w)
	time.Sleep(between(w.rng, 0, longTTL))
	w.server.FreeQuota(w)
}

func (w *world) expireTokens(*process) {
	if w.auth {
		end := w.ledger.begin(span{})
		w.server.ExpireTokens(w)
		w.after(time.Second, end)
	}
}
