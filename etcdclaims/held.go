package etcdclaims

// waitedFor reports whether this client had to wait for the key, when it asked
// last: then it joins the line at once.
func (c *Client) waitedFor(key string) bool {
	c.keysMu.Lock()
	defer c.keysMu.Unlock()
	return c.hot[key] || c.keys[key] != nil
}

func (c *Client) waiting(key string) {
	const most = 1024
	c.keysMu.Lock()
	defer c.keysMu.Unlock()
	if c.hot == nil || len(c.hot) >= most {
		c.hot = make(map[string]bool) // a hint: forgetting it costs a request
	}
	c.hot[key] = true
}

func (c *Client) notWaiting(key string) {
	c.keysMu.Lock()
	defer c.keysMu.Unlock()
	delete(c.hot, key)
}

// held returns the term in which this client holds the key, or nil.
func (c *Client) held(key string) *term {
	c.keysMu.Lock()
	defer c.keysMu.Unlock()
	return c.keys[key]
}
