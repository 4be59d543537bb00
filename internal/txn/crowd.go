package txn

import "sync"

// A Crowd has requests sent together, in as few round trips as hold them: once each of its
// members has made a request or has left.
type Crowd struct {
	mu      sync.Mutex
	missing int // members
	calls   map[*Batcher][]*call
}

// NewCrowd returns a crowd of n members. Member must be called for each of them.
func NewCrowd(n int) *Crowd { return &Crowd{missing: n, calls: map[*Batcher][]*call{}} }

// Member is one of a crowd, whose first request waits for the others. It is for one goroutine.
// A nil Member is of no crowd.
type Member struct{ crowd *Crowd }

// Member returns another member.
func (c *Crowd) Member() *Member { return &Member{c} }

// Leave makes the others wait for this member no longer: it has to wait for something else,
// or makes no request.
func (m *Member) Leave() { m.arrive(nil, nil) }

// arrive has a call sent with those of the others. It reports false if the member has left, or has
// made its request.
func (m *Member) arrive(b *Batcher, one *call) bool {
	if m == nil || m.crowd == nil {
		return false
	}
	c := m.crowd
	m.crowd = nil
	c.mu.Lock()
	if one != nil {
		c.calls[b] = append(c.calls[b], one)
	}
	c.missing--
	all := c.missing == 0
	c.mu.Unlock()
	if all { // nobody changes calls any more
		for b, calls := range c.calls {
			b.enqueue(calls)
		}
	}
	return true
}
