package queue

import (
	"context"
)

// shared is a request that one caller makes, and for which others wait that need the same.
type shared struct {
	done chan struct{}
	err  error // why it failed; nil if those who wait have to look again
}

func newShared() *shared { return &shared{done: make(chan struct{})} }

// end is called by the one who made the request, with the context of its own call. All who
// wait get its error, unless that context ended.
func (s *shared) end(ctx context.Context, err error) {
	if ctx.Err() == nil {
		s.err = err
	}
	close(s.done)
}

// wait waits for the end of the request, but no longer than for ctx or the channel.
func (s *shared) wait(ctx context.Context, ended <-chan struct{}) error {
	select {
	case <-s.done:
		return s.err
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
