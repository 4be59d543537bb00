package fencing

import (
	"container/list"
	"context"
	"sync"
)

// Memory is a Gate that remembers fences in this process. It is an early reject:
// it spares the resource most late requests, and guarantees nothing. It forgets
// when the process ends, and other processes do not share it. A request that it
// admitted can still be delayed behind a newer one. Guard the write itself as
// well.
//
// The zero value is ready for use. It remembers every key, at about 150 bytes
// plus the key. Set Limit if the number of keys is unbounded. Memory is safe for
// concurrent use.
type Memory struct {
	// Limit is the greatest number of keys to remember. Beyond it, Memory forgets
	// the key that was admitted longest ago, and then admits any token for that
	// key. Zero means no limit. Set Limit before the first use.
	Limit int

	mu    sync.Mutex
	marks map[string]*list.Element
	order list.List // of Token, most recently admitted first
}

// Admit implements Gate. It returns only the errors for stale and invalid tokens,
// and ignores the context.
func (m *Memory) Admit(_ context.Context, t Token) error {
	if err := t.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if mark := m.marks[t.Key]; mark != nil {
		if newest := mark.Value.(Token).Fence; newest > t.Fence {
			return &StaleError{Token: t, Newest: newest}
		}
		mark.Value = t
		m.order.MoveToFront(mark)
		return nil
	}
	if m.marks == nil {
		m.marks = make(map[string]*list.Element)
	}
	m.marks[t.Key] = m.order.PushFront(t)
	if m.Limit > 0 && m.order.Len() > m.Limit {
		oldest := m.order.Remove(m.order.Back()).(Token)
		delete(m.marks, oldest.Key)
	}
	return nil
}

// Len returns the number of keys that are remembered.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.order.Len()
}
