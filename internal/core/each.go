package core

import "sync"

// atOnce is for how many EachOf does something at the same time.
const atOnce = 32

// EachOf calls f for each, for several at the same time.
func EachOf[T any](all []T, f func(T)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for _, one := range all {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			f(one)
		})
	}
	wg.Wait()
}
