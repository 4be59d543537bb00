//go:build !linux

package clock

import "time"

// bootTime says nothing here: monotonic and wall clock remain.
func bootTime() time.Duration { return 0 }
