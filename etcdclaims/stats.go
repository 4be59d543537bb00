package etcdclaims

import "time"

// Stats counts what a client did since New.
type Stats struct {
	Attempts  int64            // acquiring calls; TryAcquireAll and TryAcquireEach count each key
	Acquired  int64            // claims that were acquired
	Contended int64            // calls that found the key held, or other callers in line
	Released  int64            // claims that their holder gave up
	Zombies   int64            // handlers that did not return within their drain
	Lost      map[Reason]int64 // claims that were lost; reasons that did not occur have no entry
	Held      int              // claims held now
	Sessions  int              // leases of claims in use now
	Requests  int64            // requests to etcd, except watches and the request for its version
	Waiting   int              // calls that wait for a key now, in line or behind claims of this client
	Overdue   int              // handlers of Run and the like that run now though their drain is over
	// Suspected counts the claims that the client has taken from holders that did not
	// answer, and SuspectedWrongly those of them whose holder answered later; see Suspectable.
	Suspected, SuspectedWrongly int64

	Oldest time.Duration // how long the oldest of the claims held now has been held; 0 if none is
}

// Stats returns the counts so far. It does no I/O. The counts of a passthrough
// client are zero.
func (c *Client) Stats() Stats {
	if !c.connects() {
		return Stats{Lost: map[Reason]int64{}}
	}
	s := Stats{
		Attempts: c.line.Attempts.Load(), Acquired: c.line.Acquired.Load(), Contended: c.line.Contended.Load(),
		Released: c.terms.Released.Load(), Zombies: c.runs.zombies.Load(), Overdue: int(c.runs.overdue.Load()),
		Lost: make(map[Reason]int64), Sessions: len(c.pool.Live()), Requests: c.store.Requests(), Waiting: c.line.Waiters.Count(),
	}
	s.Suspected, s.SuspectedWrongly = c.peers.Counts()
	for r := range c.terms.Losses {
		if n := c.terms.Losses[r].Load(); n > 0 {
			s.Lost[Reason(r)] = n
		}
	}
	s.Held, s.Oldest = c.terms.Keys.Oldest(c.uptime())
	return s
}
