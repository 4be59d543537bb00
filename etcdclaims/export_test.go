package etcdclaims

// LocalWaiters is how many callers a claim keeps that wait for it in its client.
func LocalWaiters(cl *Claim) int { return len(cl.t.s.c.local.waiting(&cl.t.local)) }
