package etcdclaims

// LocalWaiters is how many callers a claim keeps that wait for it in its client.
func LocalWaiters(cl *Claim) int { return len(cl.t.s.c.local.waiting(&cl.t.local)) }

// RecordsPut is how many records a client counts on the lease that it would put the next on.
func RecordsPut(c *Client) int64 {
	c.records.mu.Lock()
	defer c.records.mu.Unlock()
	return c.records.current[0].puts.Load()
}

// ReadSessions reads the notices of a client, as it does when their watch has ended.
func ReadSessions(c *Client) (int64, error) {
	return c.readSessions(c.store.layout.Session(c.store.layout.Instance))
}

// NoteOrigin does what each acquisition does to know its caller.
func NoteOrigin() { _ = siteOf() }
