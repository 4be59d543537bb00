package acquire

import (
	"fmt"
	"testing"
)

// A name is taken once, and in its own range. Few are kept.
func TestNames(t *testing.T) {
	t.Parallel()
	var n Names
	same(t, "of none", n.Take("a"), "")
	n.Give("a", "1")
	n.Give("a", "2")
	same(t, "of another range", n.Take("b"), "")
	same(t, "the last", n.Take("a"), "2")
	same(t, "the first", n.Take("a"), "1")
	same(t, "no more", n.Take("a"), "")
	same(t, "ranges that are kept", len(n.free), 0)
	for i := range 3*mostNames + 5 {
		n.Give(fmt.Sprint(i), "1")
	}
	same(t, "kept", n.n <= mostNames && len(n.free) == n.n, true)
}
