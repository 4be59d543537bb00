package objectguard

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
)

// Memory is a Store in this process, for tests. It meets the contract of [Store],
// and forgets when the process ends. The zero value is ready for use. Memory is
// safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	objects map[string]stored
	writes  int64
}

type stored struct {
	data  []byte
	write int64
}

func (s stored) version() string { return strconv.FormatInt(s.write, 10) }

// Read implements Store.
func (m *Memory) Read(ctx context.Context, name string) (data []byte, version string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.objects[name]
	if !ok {
		return nil, "", fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	return bytes.Clone(s.data), s.version(), nil
}

// Create implements Store.
func (m *Memory) Create(ctx context.Context, name string, data []byte) (version string, err error) {
	return m.write(ctx, name, data, func(_ stored, exists bool) bool { return !exists })
}

// Replace implements Store.
func (m *Memory) Replace(ctx context.Context, name string, data []byte, version string) (newVersion string, err error) {
	return m.write(ctx, name, data, func(s stored, exists bool) bool { return exists && s.version() == version })
}

func (m *Memory) write(ctx context.Context, name string, data []byte, holds func(s stored, exists bool) bool) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("%w: %w", ErrRefused, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, exists := m.objects[name]; !holds(s, exists) {
		return "", fmt.Errorf("%w: %q", ErrConflict, name)
	}
	if m.objects == nil {
		m.objects = make(map[string]stored)
	}
	m.writes++
	s := stored{bytes.Clone(data), m.writes}
	m.objects[name] = s
	return s.version(), nil
}
