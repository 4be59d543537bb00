package work

import "context"

// RecordsPut is how many records a runner counts on the lease that it would put the next on.
func RecordsPut(c *Runner) int64 {
	l, err := c.records.Get(context.Background(), 0)
	if err != nil {
		panic(err)
	}
	defer l.Leave(false)
	return l.Keys()
}
