// Package clock measures how much time has passed, so that a claim ends even
// where Go's own clock would not notice: the monotonic clock of Go stops while
// a machine sleeps (golang/go#24595), and nobody's lease does.
//
// Tests replace the two readers that do not obey a testing/synctest bubble.
package clock

import (
	"sync"
	"time"
)

// Clock says where readings come from. The zero value reads the machine.
type Clock struct {
	// Boot returns the time since some fixed instant, sleep included.
	// Nil reads CLOCK_BOOTTIME where the system has one.
	Boot func() time.Duration
	// Wall returns the time of day. Nil reads the machine's.
	Wall func() time.Time
}

// Reading is one instant on all three clocks.
type Reading struct {
	mono time.Time
	boot time.Duration
	wall time.Time
}

// Time reads the wall clock alone, for people. It needs no system call.
func (c Clock) Time() time.Time {
	if c.Wall != nil {
		return c.Wall().Round(0)
	}
	return time.Now().Round(0)
}

// Now reads the three clocks.
func (c Clock) Now() Reading {
	now := time.Now()
	r := Reading{mono: now, wall: now.Round(0)}
	if c.Wall != nil {
		r.wall = c.Wall().Round(0)
	}
	if c.Boot != nil {
		r.boot = c.Boot()
	} else {
		r.boot = bootTime()
	}
	return r
}

// Awake returns how long ago the reading was, without the time for which the machine
// slept since. It is for what need not be exact, because it needs no system call.
func (r Reading) Awake() time.Duration { return time.Since(r.mono) }

// Time returns the wall clock of the reading, for people.
func (r Reading) Time() time.Time { return r.wall }

// Since returns how much time passed between the readings from and r: sure is
// what no clock step can fake (the greater of monotonic and boot time), wall
// what the time of day says, which may be wrong either way.
func (r Reading) Since(from Reading) (sure, wall time.Duration) {
	return max(r.mono.Sub(from.mono), r.boot-from.boot), r.wall.Sub(from.wall)
}

// IsZero reports whether r was never read.
func (r Reading) IsZero() bool { return r.mono.IsZero() }

var attached sync.Map // any (an etcd client) → Clock

// Attach makes everything built on the given etcd client read c, until the
// returned function is called. It is for tests: attach before building.
func Attach(etcd any, c Clock) (detach func()) {
	attached.Store(etcd, c)
	return func() { attached.Delete(etcd) }
}

// For returns the clock attached to an etcd client, or the machine's.
func For(etcd any) Clock {
	if c, ok := attached.Load(etcd); ok {
		return c.(Clock)
	}
	return Clock{}
}
