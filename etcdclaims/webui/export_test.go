package webui

import (
	"iter"
	"maps"
	"time"
)

// Actions are those that the page carries out.
func Actions() iter.Seq[Action] { return maps.Keys(done) }

// SetStreamTimes changes how soon an event must be written, and how often a tab gets a
// sign of life. The returned function changes them back.
func SetStreamTimes(write, alive time.Duration) (restore func()) {
	oldWrite, oldAlive := writeTimeout, heartbeat
	writeTimeout, heartbeat = write, alive
	return func() { writeTimeout, heartbeat = oldWrite, oldAlive }
}

// Exact is the text of a duration.
func Exact(d time.Duration) string { return exact(d) }
