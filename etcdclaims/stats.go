package etcdclaims

import "sync/atomic"

type stats struct {
	attempts, acquired, contended, tookOver atomic.Int64
	released, completed, failed, zombies    atomic.Int64
	lost                                    [reasons]atomic.Int64
}

// Stats counts what a client did since it was made.
type Stats struct {
	Attempts  int64            // acquiring calls, and keys of TryAcquireAll and TryAcquireEach
	Acquired  int64            // claims that came of them
	Contended int64            // acquisitions that found the key held, or others in line
	TookOver  int64            // work begun whose owner before had died
	Released  int64            // claims given up by their holder, work that ended included
	Completed int64            // work completed
	Failed    int64            // work failed
	Zombies   int64            // handlers that outlasted their drain
	Lost      map[Reason]int64 // claims that ended otherwise; reasons that did not occur are left out
	Held      int              // claims held now
	Sessions  int              // leases held now
	Requests  int64            // sent to etcd, watches and the question for its version not counted
}

// Stats returns the counts so far. Those of a passthrough client are zero.
func (c *Client) Stats() Stats {
	if c.Passthrough() {
		return Stats{Lost: map[Reason]int64{}}
	}
	s := Stats{
		Attempts: c.stats.attempts.Load(), Acquired: c.stats.acquired.Load(),
		Contended: c.stats.contended.Load(), TookOver: c.stats.tookOver.Load(),
		Released: c.stats.released.Load(), Completed: c.stats.completed.Load(),
		Failed: c.stats.failed.Load(), Zombies: c.stats.zombies.Load(),
		Lost: make(map[Reason]int64), Sessions: len(c.liveSessions()),
		Requests: c.store.requests.Load(),
	}
	for r := range c.stats.lost {
		if n := c.stats.lost[r].Load(); n > 0 {
			s.Lost[Reason(r)] = n
		}
	}
	c.keysMu.Lock()
	s.Held = len(c.keys)
	c.keysMu.Unlock()
	return s
}
