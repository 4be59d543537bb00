package group_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

var (
	seed  = flag.Uint64("seed", 1, "of the first run of TestChaos and TestChurn")
	seeds = flag.Int("seeds", 0, "how many runs of each (default: 1, with -long 5)")
)

// forSeeds runs f for each seed in a world of its own.
func forSeeds(t *testing.T, f func(c *chaos)) {
	t.Parallel()
	n := *seeds
	if n == 0 {
		if n = 1; testetcd.Long() {
			n = 5
		}
	}
	for i := range uint64(n) {
		t.Run(fmt.Sprint(*seed+i), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				f(&chaos{world: w, rand: rand.New(rand.NewPCG(*seed+i, 0)), hosts: make(map[*claimtest.Host]bool), living: make(map[string]bool)})
			})
		})
	}
}

// lasts returns d, or a part of it under -short, where there is one seed too.
func lasts(d time.Duration) time.Duration {
	if testing.Short() {
		return d * 2 / 5
	}
	return d
}

// chaos is machines on which members come and go.
type chaos struct {
	*world

	mu    sync.Mutex
	rand  *rand.Rand
	hosts map[*claimtest.Host]bool // whether it is to live on

	living map[string]bool // instances of members that are there
}

func (c *chaos) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(n)
}

// during lets members come and go on some machines, and then has quiet.
func (c *chaos) during(d time.Duration, machines int, cfg group.Config, harm func(ctx context.Context, host *claimtest.Host)) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var wg sync.WaitGroup
	for i := range machines {
		wg.Go(func() {
			cfg := cfg
			cfg.Name, cfg.Weight = fmt.Sprint("m", i), 1+c.n(3)
			for ctx.Err() == nil {
				c.life(ctx, cfg, harm)
			}
		})
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for host, lives := range c.hosts {
		host.RemoveFaults()
		if lives {
			host.Heal()
		}
	}
}

// life is that of one process, which leaves, dies, or lives on.
func (c *chaos) life(ctx context.Context, cfg group.Config, harm func(ctx context.Context, host *claimtest.Host)) {
	host := c.server.Host(c.T)
	c.mu.Lock()
	c.hosts[host] = true
	c.mu.Unlock()
	life, end := context.WithTimeout(ctx, time.Duration(10+c.n(60))*sec)
	defer end()
	var harmed sync.WaitGroup
	defer harmed.Wait()
	harmed.Go(func() { harm(life, host) })
	p := c.joinFrom(host, claimtest.NewClient(c.T, host, etcdclaims.Config{TTL: ttl, Owner: cfg.Name}), cfg)
	if p.err != nil {
		c.Logf("%s: %v", cfg.Name, p.err)
		time.Sleep(sec)
		return
	}
	c.lives(p, true)
	<-life.Done()
	harmed.Wait()
	if ctx.Err() != nil {
		return
	}
	c.lives(p, false)
	if c.n(2) == 0 {
		c.mu.Lock()
		c.hosts[host] = false
		c.mu.Unlock()
		host.Kill()
		time.Sleep(time.Duration(c.n(20)) * sec)
		return
	}
	leaving, cancel := context.WithTimeout(context.Background(), 10*sec)
	defer cancel()
	_ = p.Leave(leaving)
	_ = p.claims.Close(leaving)
	time.Sleep(time.Duration(c.n(5)) * sec)
}

func (c *chaos) lives(p *process, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.living[p.claims.Instance()] = yes
}

// owned reports whether each partition is owned by a member that is there.
func (c *chaos) owned(v *group.View) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range v.Assignment().Owners {
		if !c.living[o.Instance] {
			return false
		}
	}
	return true
}

// harm does things to the network and the requests of a machine.
func (c *chaos) harm(ctx context.Context, host *claimtest.Host) {
	kinds := []claimtest.Kind{
		claimtest.Every, claimtest.Other, claimtest.Verify, claimtest.KeepAlive, claimtest.Watch, steps.Enqueue,
		steps.HandOver, steps.Free, claimtest.Grant, claimtest.Range,
	}
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		pause(time.Duration(200+c.n(8000)) * time.Millisecond)
		switch c.n(8) {
		case 0:
			host.Cut()
			pause(time.Duration(c.n(25)) * sec)
			host.Heal()
		case 1:
			host.CutReplies()
			pause(time.Duration(c.n(15)) * sec)
			host.Heal()
		case 2:
			host.Break()
		default:
			f := claimtest.Fault{On: kinds[c.n(len(kinds))], Skip: c.n(3), Times: 1 + c.n(3)}
			switch c.n(4) {
			case 0:
				f.LoseRequest = true
			case 1:
				f.LoseReply = true
			case 2:
				f.LoseReply, f.Code = true, codes.Unavailable
			case 3:
				f.DelayRequest, f.DelayReply = time.Duration(c.n(3000))*time.Millisecond, time.Duration(c.n(3000))*time.Millisecond
			}
			host.Inject(f)
		}
	}
}

// Members come, leave, die and are cut off, while requests and replies are lost and late.
// No partition has a write of a former owner, and after that each partition soon has an owner
// again.
func TestChaos(t *testing.T) {
	forSeeds(t, func(c *chaos) {
		const partitions = 12
		c.during(lasts(3*time.Minute), 4, config("", partitions), c.harm)
		v := c.view()
		// The dead are known after a TTL, and those that were cut off are back as soon.
		took := c.within(ttl+sec, "all partitions are owned", func() bool { return c.owned(v) })
		c.Logf("all partitions are owned after %v", took)
		c.within(30*sec, "balanced", func() bool { return balanced(v) })
		c.history(partitions)
		c.noOverlap()
	})
}

// Members come, leave and die. In any interval, no more partitions move between members that
// are there than the budget allows.
func TestChurn(t *testing.T) {
	forSeeds(t, func(c *chaos) {
		const partitions, interval = 40, 10 * sec
		cfg := config("", partitions)
		cfg.MaxMoves, cfg.MoveInterval = 1+c.n(6), interval
		ctx, cancel := context.WithCancel(context.Background())
		watched := make(chan []handover)
		go func() { watched <- c.moved(ctx, partitions) }()
		c.during(lasts(4*time.Minute), 5, cfg, func(context.Context, *claimtest.Host) {})
		v := c.view()
		c.within(ttl+sec, "all partitions are owned", func() bool { return c.owned(v) })
		c.within(5*time.Minute, "balanced", func() bool { return balanced(v) })
		cancel()
		at := <-watched
		for i := cfg.MaxMoves; i < len(at); i++ {
			if d := at[i].at.Sub(at[i-cfg.MaxMoves].at); d < interval-100*time.Millisecond {
				c.Errorf("%d partitions moved within %v", cfg.MaxMoves+1, d)
			}
		}
		c.Logf("%d partitions moved between members, at most %d in %v", len(at), cfg.MaxMoves, interval)
		c.history(partitions)
		c.noOverlap()
	})
}

// handover is a partition that moved.
type handover struct {
	at   time.Time
	from string // instance
}

// moved returns when partitions were handed over by members that were on the list. A claim
// that a member gave back before it called the handler, because the partition's target had
// changed when the reply came, is no part of a move: no work was interrupted.
func (c *chaos) moved(ctx context.Context, partitions int) (at []handover) {
	listed := make(map[string]string) // instances by the key of the entry
	owner, fence := make([]string, partitions), make([]int64, partitions)
	own := testclaims.Key("", "group/g/partition/")
	for resp := range c.server.Admin().Watch(ctx, "/etcdclaims/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		for _, ev := range resp.Events {
			key := string(ev.Kv.Key)
			_, rest, _ := strings.Cut(string(ev.Kv.Value), `"instance":"`)
			instance, _, _ := strings.Cut(rest, `"`)
			switch {
			case strings.HasPrefix(key, "/etcdclaims/group/") && strings.Contains(key, "/member/"):
				at = slices.DeleteFunc(at, func(m handover) bool { // it was leaving already
					return instance == "" && m.from == listed[key] && time.Since(m.at) < 3*sec
				})
				if listed[key] = instance; instance == "" {
					delete(listed, key)
				}
			case strings.HasPrefix(key, own) && instance != "":
				var partition int
				_, _ = fmt.Sscanf(strings.TrimPrefix(key, own), "%d", &partition)
				for _, there := range listed {
					if there == owner[partition] && there != instance && c.wasServed(partition, fence[partition]) {
						at = append(at, handover{time.Now(), there})
					}
				}
				owner[partition], fence[partition] = instance, ev.Kv.ModRevision
			}
		}
	}
	return at
}
