package webui

import "time"

// SetStreamTimes changes how soon an event must be written, and how often a tab gets a
// sign of life. The returned function changes them back.
func SetStreamTimes(write, alive time.Duration) (restore func()) {
	oldWrite, oldAlive := writeTimeout, heartbeat
	writeTimeout, heartbeat = write, alive
	return func() { writeTimeout, heartbeat = oldWrite, oldAlive }
}
