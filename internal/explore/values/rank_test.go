package values_test

import (
	"fmt"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// code is a state with three revisions, two of them in texts.
func code(a, b, c int64) string {
	out := values.AppendInt([]byte("before "), a)
	out = values.AppendInt(out, b)
	return string(values.Rank(fmt.Appendf(out, `x{"fence":%d} and %d`, a, c), 0))
}

func TestRank(t *testing.T) {
	t.Parallel()
	const first = values.Revisions
	raised := func(rev int64) int64 { return keyspace.Fence(1, rev) }
	for _, tt := range []struct {
		one, other string
		same       bool
	}{
		{code(first, first+1, first+2), code(first+3, first+7, first+99), true},
		{code(first, first+1, first+2), code(first+3, first+7, first+5), false},
		{code(first, first+1, first+1), code(first+3, first+7, first+99), false},
		{code(first, first, first+1), code(first+3, first+3, first+99), true},
		{code(first, raised(first+1), raised(first+2)), code(first, raised(first+2), raised(first+3)), true},
		{code(first, raised(first+1), raised(first+2)), code(first, first+1, raised(first+2)), false},
		{code(first, 1, 2), code(first, 1, 3), false}, // these are no revisions
	} {
		if (tt.one == tt.other) != tt.same {
			t.Errorf("%q and %q: same %v", tt.one, tt.other, !tt.same)
		}
	}
	if got := string(values.Rank([]byte("10000000 10000000"), 9)); got[:9] != "10000000 " {
		t.Errorf("%q", got)
	}
}
