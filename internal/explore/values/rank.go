package values

import (
	"slices"
	"strconv"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// Revisions is the first revision of an etcd whose states Rank can compare: all that follow have as many digits, and
// no other number is as great.
const Revisions = 10_000_000

const (
	digits = 8 // of Revisions
	mark   = 0xfe
)

// AppendRevision appends a revision, or a fence, for Rank. What is before and after it is no digit, or begins with none.
func AppendRevision(b []byte, n int64) []byte { return strconv.AppendInt(append(b, mark), n, 10) }

// Rank puts into b, from a position on, the rank of each revision in its place, whether it stands in a text or was
// appended by AppendRevision. Two states that differ in revisions alone, and not in their order, have the same future:
// no request computes with them, other than to ask for what is before or after. The epoch of a fence stays.
func Rank(b []byte, from int) []byte {
	var some [32]int64
	all := some[:0]
	eachRevision(b[from:], func(_, _ int, n int64) {
		if rev := keyspace.Revision(n); !slices.Contains(all, rev) {
			all = append(all, rev)
		}
	})
	slices.Sort(all)
	to, done := from, from
	eachRevision(b[from:], func(begin, end int, n int64) {
		to += copy(b[to:], b[done:from+begin])
		rank, _ := slices.BinarySearch(all, keyspace.Revision(n))
		b[to], b[to+1], b[to+2] = mark, byte(keyspace.Epoch(n)), byte(rank)
		to, done = to+3, from+end
	})
	return b[:to+copy(b[to:], b[done:])]
}

// eachRevision calls f for each text of digits that is as long as a revision.
func eachRevision(b []byte, f func(begin, end int, n int64)) {
	n, length := int64(0), 0
	for i := 0; i <= len(b); i++ {
		if i < len(b) && b[i] >= '0' && b[i] <= '9' {
			n, length = 10*n+int64(b[i]-'0'), length+1
			continue
		}
		if length >= digits {
			f(i-length, i, n)
		}
		n, length = 0, 0
	}
}
