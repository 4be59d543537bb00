package line

import "sync"

// names are the names that places in line of a client had, and can have again. etcd walks over each
// key that a range ever had since its last compaction, so a line in which each place has a new name
// becomes slower with all who ever waited in it. A name comes back only once nothing that names its
// place is under way. The zero value has none. Its methods are safe for concurrent use.
type names struct {
	mu   sync.Mutex
	free map[string][]string // by line
	n    int
}

// mostNames bounds how many are kept.
const mostNames = 1024

// take returns a name for a place in the line, "" if there is none.
func (n *names) take(line string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	free := n.free[line]
	if len(free) == 0 {
		return ""
	}
	n.n--
	last := len(free) - 1
	if n.free[line] = free[:last]; last == 0 {
		delete(n.free, line)
	}
	return free[last]
}

// give makes a name one that can be taken. If too many are kept, all others are forgotten.
func (n *names) give(line, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.free == nil || n.n == mostNames {
		n.free, n.n = make(map[string][]string), 0
	}
	n.free[line] = append(n.free[line], name)
	n.n++
}
