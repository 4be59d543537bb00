package work

// RecordsPut is how many records a runner counts on the lease that it would put the next on.
func RecordsPut(c *Runner) int64 {
	c.records.mu.Lock()
	defer c.records.mu.Unlock()
	return c.records.current[0].puts.Load()
}
