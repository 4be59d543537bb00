package grpcmw

import "runtime"

// result is how a function ended that ran in a goroutine of its own.
type result[T any] struct {
	value    T
	returned bool
	panicked any // nil after Goexit
}

// apart calls do in a goroutine of its own, so that it need not be waited for.
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

// get returns what the function returned. If it did not, a panic or Goexit goes on
// here, where others may recover from it.
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
