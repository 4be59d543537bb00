package durable

import "testing"

// What a backup cannot have is not put.
func TestCheck(t *testing.T) {
	t.Parallel()
	for key, ok := range map[string]bool{
		"queue/a/spec": true, "sched/a": true, "audit/1": true, "group/a": true, "own/k": false, "epoch": false, "/queue/a": false, "": false,
	} {
		if err := (Entry{Keys: []Key{{Key: key}}}).Check(); (err == nil) != ok {
			t.Errorf("%q: %v", key, err)
		}
	}
}
