package live

import (
	"maps"
	"sync"
	"time"
)

// Ends has the scheduled ticks whose end this process has recorded, with the times until which they
// have to end: while etcd does not answer, nothing else shows that they ended. The zero value keeps
// nothing, until Drop is first called.
type Ends struct {
	mu sync.Mutex
	of map[tickOf]time.Time
}

// tickOf identifies a scheduled tick.
type tickOf struct {
	job     string
	nominal int64
}

// mostEnds bounds the ends.
const mostEnds = 100_000

// Add notes that a tick has ended.
func (e *Ends) Add(job string, nominal, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of != nil && len(e.of) < mostEnds {
		e.of[tickOf{job, nominal.UnixNano()}] = until
	}
}

// Drop forgets the ticks that had to end by now.
func (e *Ends) Drop(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == nil {
		e.of = make(map[tickOf]time.Time)
	}
	maps.DeleteFunc(e.of, func(_ tickOf, until time.Time) bool { return !until.After(now) })
}

// Has reports whether a tick is known to have ended.
func (e *Ends) Has(job string, nominal time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.of[tickOf{job, nominal.UnixNano()}]
	return ended
}
