package acquire

import (
	"fmt"
	"testing"
)

// A name is taken once, and in its own range. Few are kept.
func TestNames(t *testing.T) {
	t.Parallel()
	var n Names
	same(t, "of none", n.Take("a", 1), "")
	n.Give("a", 1, "1")
	n.Give("a", 1, "2")
	same(t, "of another range", n.Take("b", 1), "")
	same(t, "the last", n.Take("a", 1), "2")
	same(t, "the first", n.Take("a", 1), "1")
	same(t, "no more", n.Take("a", 1), "")
	same(t, "ranges that are kept", len(n.free), 0)
	n.Give("a", 1, "3")
	same(t, "under another epoch", n.Take("a", 2), "")
	n.Give("a", 1, "3")
	same(t, "under the one before", n.Take("a", 1), "")
	n.Give("a", 2, "4")
	same(t, "under the same", n.Take("a", 2), "4")
	for i := range 3*mostNames + 5 {
		n.Give(fmt.Sprint(i), 2, "1")
	}
	same(t, "kept", n.n <= mostNames && len(n.free) == n.n, true)
}
