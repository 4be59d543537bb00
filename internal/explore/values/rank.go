package values

import (
	"slices"
	"strconv"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// Revisions is the first revision of an etcd whose states Rank can compare. Leases and Attempts are the first of other
// numbers of which only the order counts, for worlds that number them. All have eight digits, and no other number has.
const (
	Revisions = 10_000_000
	Leases    = 20_000_000
	Attempts  = 30_000_000
)

const (
	digits = 8
	fence  = 15 // digits of a fence of an epoch from 1 to 7
	mark   = 0xfe
)

// AppendInt appends a number for Rank: in digits behind a mark if it is a revision, a fence, or another such number, and
// else in bytes that are neither digits nor letters.
func AppendInt(b []byte, n int64) []byte {
	if n >= Revisions {
		return strconv.AppendInt(append(b, mark), n, 10)
	}
	for ; n >= 32 || n < 0; n = int64(uint64(n) >> 5) { //nolint:gosec // any bytes do
		b = append(b, byte(n&31)|0x80)
	}
	return append(b, byte(n))
}

// Rank puts into b, from a position on, the rank of each such number in its place, whether it stands in a text or was
// appended by AppendInt. Two states that differ in these alone, and not in their order, have the same future:
// no request computes with revisions, other than to ask for what is before or after. The epoch of a fence stays.
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
		if length == digits || length == fence {
			f(i-length, i, n)
		}
		n, length = 0, 0
	}
}

// Code takes values apart into bytes for Rank.
type Code []byte

// Bool appends one byte.
func (c *Code) Bool(v bool) {
	if v {
		*c = append(*c, 1)
	} else {
		*c = append(*c, 0)
	}
}

// Int is AppendInt.
func (c *Code) Int(n int64) { *c = AppendInt(*c, n) }

// Text appends a text after its length.
func (c *Code) Text(s string) {
	c.Int(int64(len(s)))
	*c = append(*c, s...)
}

// Bytes does so with bytes.
func (c *Code) Bytes(b []byte) { c.Text(string(b)) }
