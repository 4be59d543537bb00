package etcdclaims

// LocalWaiters is how many callers a claim keeps that wait for it in its client.
func LocalWaiters(cl *Claim) int { return len(cl.t.s.c.local.Waiting(&cl.t.local)) }

// ReadSessions reads the notices of a client, as it does when their watch has ended.
func ReadSessions(c *Client) (int64, error) {
	return c.readSessions(c.store.Layout.Session(c.store.Layout.Instance))
}
