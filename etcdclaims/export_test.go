package etcdclaims

// LocalWaiters is how many callers a claim keeps that wait for it in its client.
func LocalWaiters(cl *Claim) int { return len(cl.c.terms.Local.Waiting(cl.t.Queue())) }

// ReadSessions reads the notices of a client, as it does when their watch has ended.
func ReadSessions(c *Client) (int64, error) { return c.notices(c.line.Watches).Read() }
