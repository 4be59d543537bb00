package acquire

import "sync"

// Names are the names of a client's keys in etcd that are of no use any more, to be used again: those of places in
// line, and of claims that share a key. etcd walks over each key that a range ever had since its last compaction, so with
// ever new names a key becomes slower with all who ever asked for it. A name comes back only once nothing can arrive any
// more that would put its key. After a restore keys are there again: what was used under one epoch is not used under the
// next. The zero value has none. The methods are safe for concurrent use.
type Names struct {
	mu    sync.Mutex
	epoch int64
	free  map[string][]string // by range
	n     int
}

// mostNames bounds how many are kept.
const mostNames = 1024

// under reports whether the epoch is the present one, for all that is known.
func (n *Names) under(epoch int64) bool {
	if epoch > n.epoch {
		n.epoch, n.free, n.n = epoch, nil, 0
	}
	return epoch == n.epoch
}

// Take returns a name in the range, "" if there is none.
func (n *Names) Take(in string, epoch int64) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.under(epoch) {
		return ""
	}
	free := n.free[in]
	if len(free) == 0 {
		return ""
	}
	n.n--
	last := len(free) - 1
	if n.free[in] = free[:last]; last == 0 {
		delete(n.free, in)
	}
	return free[last]
}

// Give makes a name one that can be taken. If too many are kept, those of another range are forgotten.
func (n *Names) Give(in string, epoch int64, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.under(epoch) {
		return
	}
	if n.free == nil {
		n.free = make(map[string][]string)
	}
	for other, names := range n.free {
		if n.n < mostNames {
			break
		}
		delete(n.free, other)
		n.n -= len(names)
	}
	n.free[in] = append(n.free[in], name)
	n.n++
}
