package grpcmw

import "runtime"

// result is how a function ended that ran in its own goroutine.
type result[T any] struct {
	value    T
	returned bool
	panicked any // nil after Goexit
}

// apart calls do in its own goroutine, so that the caller need not wait for it.
func apart[T any](do func() T) <-chan result[T] {
	done := make(chan result[T], 1)
	go func() {
		var r result[T]
		defer func() {
			if !r.returned {
				r.panicked = recover()
			}
			done <- r
		}()
		r.value = do()
		r.returned = true
	}()
	return done
}

// get returns what the function returned. If it panicked or called Goexit, get
// does the same here, where the caller may recover.
func (r result[T]) get() T {
	switch {
	case r.returned:
	case r.panicked != nil:
		panic(r.panicked)
	default:
		runtime.Goexit()
	}
	return r.value
}
