// Package feed keeps what a watch delivers for a consumer that is slower, up to a bound.
package feed

import (
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Backlog is how many events a Feed keeps.
const Backlog = 4096

// Feed takes in what a watch delivers while the consumer is busy. clientv3 would
// keep all of it, without bound. A feed that is full ends: what the consumer has
// missed is read again, as after a disconnection.
type Feed struct {
	ready chan struct{} // holds one element while there is something to take

	mu     sync.Mutex
	queue  []clientv3.WatchResponse
	events int
	ended  bool
	behind bool // it ended because it was full
}

// From starts a feed of a watch, which stop ends.
func From(news clientv3.WatchChan, stop func()) *Feed {
	f := &Feed{ready: make(chan struct{}, 1)}
	go func() {
		for resp := range news {
			if !f.put(resp) {
				stop()
			}
		}
		f.end()
	}()
	return f
}

// Ready receives a value when there is something to take.
func (f *Feed) Ready() <-chan struct{} { return f.ready }

// put reports whether more may come.
func (f *Feed) put(resp clientv3.WatchResponse) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return false
	}
	if f.events > 0 && f.events+len(resp.Events) > Backlog {
		f.ended, f.behind, f.queue = true, true, nil
	} else {
		f.queue = append(f.queue, resp)
		f.events += len(resp.Events)
	}
	f.signal()
	return !f.ended
}

func (f *Feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.signal()
}

func (f *Feed) signal() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// Take returns what has come since the last time, and whether the feed has ended with
// it: because the watch has, or because the consumer was behind.
func (f *Feed) Take() (resps []clientv3.WatchResponse, ended, behind bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resps = f.queue
	f.queue, f.events = nil, 0
	return resps, f.ended, f.behind
}
