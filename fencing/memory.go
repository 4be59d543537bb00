package fencing

import (
	"container/list"
	"context"
	"sync"
)

// Memory is a Gate that remembers fences in this process: an early reject, which
// spares the resource most of what is late, and no guarantee. It forgets with the
// process, another process knows nothing of it, and what it admitted can be
// delayed behind something newer. Guard the write itself, too.
//
// The zero value is ready for use and remembers every key, in some 150 bytes and
// the key each. Where keys are without number set Limit.
type Memory struct {
	// Limit is the greatest number of keys to remember: beyond it the key that
	// was admitted longest ago is forgotten, and any token passes for it. 0 means
	// no limit. Set it before the first use.
	Limit int

	mu    sync.Mutex
	marks map[string]*list.Element
	order list.List // of Token, the key admitted last in front
}

// Admit is Gate's. It never fails for any other reason, and looks at no context.
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

// Len returns how many keys are remembered.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.order.Len()
}
