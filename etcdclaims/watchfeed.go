package etcdclaims

import (
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watchBacklog is how many events a Watch keeps for a consumer that is slower
// than changes come.
const watchBacklog = 4096

// feed takes in what a watch delivers while the consumer is busy. clientv3 would
// keep all of it, without bound. A feed that is full ends: what the consumer has
// missed is read again, as after a disconnection.
type feed struct {
	ready chan struct{} // holds one element while there is something to take

	mu     sync.Mutex
	queue  []clientv3.WatchResponse
	events int
	ended  bool
	behind bool // it ended because it was full
}

// feedFrom starts a feed; stop ends the watch.
func feedFrom(news clientv3.WatchChan, stop func()) *feed {
	f := &feed{ready: make(chan struct{}, 1)}
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

// put reports whether more may come.
func (f *feed) put(resp clientv3.WatchResponse) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return false
	}
	if f.events > 0 && f.events+len(resp.Events) > watchBacklog {
		f.ended, f.behind, f.queue = true, true, nil
	} else {
		f.queue = append(f.queue, resp)
		f.events += len(resp.Events)
	}
	f.signal()
	return !f.ended
}

func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.signal()
}

func (f *feed) signal() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// take returns what has come since the last time, and whether that was all.
func (f *feed) take() (resps []clientv3.WatchResponse, ended, behind bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resps = f.queue
	f.queue, f.events = nil, 0
	return resps, f.ended, f.behind
}
