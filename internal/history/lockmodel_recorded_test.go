package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/history"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// A jepsenClient is a process of Jepsen's test: it acquires the lock some times and
// releases it as often.
type jepsenClient struct {
	h     *history.History
	name  string
	host  *claimtest.Host
	c     *etcdclaims.Client
	rnd   *rand.Rand
	times int // acquisitions, one after the other, before the first release
	opts  []etcdclaims.AcquireOption
}

const lockKey = "lock"

// token is that of the lock, whichever slot of it the claim has.
func token(cl *etcdclaims.Claim) fencing.Token {
	return fencing.Token{Key: lockKey, Fence: cl.Fence()}
}

func (w *jepsenClient) round(ctx context.Context) {
	var held []*etcdclaims.Claim
	for range w.times {
		call := w.h.Acquire(w.name, lockKey)
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		cl, err := w.c.Acquire(short, lockKey, w.opts...)
		call.Acquired(cl, err)
		cancel()
		if err != nil {
			break
		}
		held = append(held, cl)
		w.use(ctx, cl)
	}
	for _, cl := range held {
		w.use(ctx, cl)
		call := w.h.Release(w.name, token(cl))
		call.Returned(cl.Release(ctx))
	}
	time.Sleep(w.pause(time.Second))
}

func (w *jepsenClient) pause(most time.Duration) time.Duration {
	return time.Duration(w.rnd.Int64N(int64(most)))
}

// use checks the claim and writes under it.
func (w *jepsenClient) use(ctx context.Context, cl *etcdclaims.Claim) {
	time.Sleep(w.pause(2 * time.Second))
	if cl.Check() == nil {
		w.h.Checked(w.name, token(cl))
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	call := w.h.Effect(w.name, token(cl))
	_, err := cl.Txn(ctx).Then(clientv3.OpPut("/written", w.name)).Commit()
	call.Returned(err)
}

// disturb cuts networks, loses replies and takes the key away, until the channel is
// closed.
func disturb(h *history.History, server *claimtest.Server, clients []*jepsenClient, rnd *rand.Rand, done <-chan struct{}) {
	etcd := clients[0].c.Etcd()
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(rnd.Int64N(int64(10 * time.Second)))):
		}
		w := clients[1+rnd.IntN(len(clients)-1)] // the first one has the operator's client
		switch rnd.IntN(4) {
		case 0:
			h.Logf("%s is cut off", w.name)
			w.host.Cut()
			time.Sleep(time.Duration(rnd.Int64N(int64(30 * time.Second))))
			w.host.Heal()
		case 1:
			w.host.Inject(claimtest.Fault{Skip: rnd.IntN(10), LoseReply: true, Code: codes.Unavailable})
		case 2:
			w.host.Inject(claimtest.Fault{Skip: rnd.IntN(10), LoseRequest: true})
		case 3:
			call := h.Take(lockKey)
			// All slots, if the key has any.
			_, err := etcd.Delete(context.Background(), etcdclaims.DefaultPrefix+"own/"+lockKey+"#", clientv3.WithPrefix())
			if err == nil && !strings.HasPrefix(clients[0].name, "slot") {
				_, err = etcd.Delete(context.Background(), etcdclaims.DefaultPrefix+"own/"+lockKey)
			}
			if err != nil {
				call.Unknown()
				continue
			}
			call.Done()
		}
	}
}

// recordLocks returns the history of four processes under faults. Of the kind "shared" all
// but the second one are readers.
func recordLocks(t *testing.T, kind string, seed uint64, times int, opts ...etcdclaims.AcquireOption) *history.History {
	t.Helper()
	h := history.New()
	server := claimtest.Start(t)
	var clients []*jepsenClient
	for i := range 4 {
		name, opts := fmt.Sprint(kind, i), opts
		if kind == "shared" && i == 1 {
			opts = nil
		} else if kind == "shared" {
			name = history.Reader(name)
		}
		w := &jepsenClient{h: h, name: name, host: server.Host(t), rnd: rand.New(rand.NewPCG(seed, uint64(i))), times: times, opts: opts}
		w.c = claimtest.NewClient(t, w.host, etcdclaims.Config{Owner: name, Hooks: etcdclaims.Hooks{
			TermEnded: func(_ context.Context, term etcdclaims.TermInfo) {
				if errors.Is(term.Err, etcdclaims.ErrLost) {
					h.Ended(name, fencing.Token{Key: lockKey, Fence: term.Token.Fence})
				}
			},
		}})
		clients = append(clients, w)
	}
	var workers, faults sync.WaitGroup
	done := make(chan struct{})
	faults.Go(func() { disturb(h, server, clients, rand.New(rand.NewPCG(seed, 99)), done) })
	for _, w := range clients {
		workers.Go(func() {
			for range 20 {
				w.round(t.Context())
			}
		})
	}
	workers.Wait()
	close(done)
	faults.Wait()
	return h
}

// Jepsen's workloads for Hazelcast, with claims in place of Hazelcast's locks and
// semaphore, and the models that judge them there.
func TestRecordedLocks(t *testing.T) {
	for _, c := range []struct {
		kind    string
		times   int
		opts    []etcdclaims.AcquireOption
		right   []history.LockModel
		refuses []history.LockModel // to show that the history could have been wrong
	}{
		{"plain", 1, nil, []history.LockModel{history.OwnerAwareMutex(), history.FencedMutex(), history.AcquiredPermits(1)}, nil},
		{
			"reentrant", 2,
			[]etcdclaims.AcquireOption{etcdclaims.Reentrant()},
			[]history.LockModel{history.ReentrantMutex(2), history.ReentrantFencedMutex(2)},
			[]history.LockModel{history.OwnerAwareMutex(), history.FencedMutex(), history.ReentrantMutex(1)},
		},
		{
			"slot", 1,
			[]etcdclaims.AcquireOption{etcdclaims.Slots(2)},
			[]history.LockModel{history.AcquiredPermits(2)},
			[]history.LockModel{history.AcquiredPermits(1), history.OwnerAwareMutex()},
		},
		{
			"shared", 1,
			[]etcdclaims.AcquireOption{etcdclaims.Shared()},
			[]history.LockModel{history.ReadersWriter()},
			[]history.LockModel{history.FencedMutex(), history.OwnerAwareMutex()},
		},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/seed %d", c.kind, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := recordLocks(t, c.kind, seed, c.times, c.opts...)
					for _, m := range c.right {
						if err := m.Check(h, history.Checks{}); err != nil {
							t.Error(err)
						}
					}
					for _, m := range c.refuses {
						if m.Check(h, history.Checks{}) == nil {
							t.Errorf("%s accepts the history", m)
						}
					}
					text := kept(t, h)
					for _, kind := range []string{"granted", "done", "checked", "ended"} {
						if strings.Count(text, `"kind":"`+kind+`"`) == 0 {
							t.Errorf("nothing is recorded as %s", kind)
						}
					}
					if t.Failed() {
						t.Log(text)
					}
				})
			})
		}
	}
}
