package partitions

import (
	"cmp"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/protocol"
)

// Numbers of which only the order counts: revisions, and ids of attempts and leases. Each kind has a range of its
// own, in which all have eight digits. Two states that differ in such numbers, and not in their order, are the same.
// No request compares revisions of two partitions, so the order of these does not count either.
const (
	revisions   = values.Revisions
	attempts    = values.Attempts
	leases      = values.Leases
	kinds       = 10_000_000 // numbers of a kind
	ofPartition = 100_000    // attempts for one partition
)

// code is bytes with gaps for such numbers.
type code struct {
	values.Code
	gaps      []gap
	partition int64 // whose revisions follow: that of the last attempt
}

type gap struct {
	at        int
	partition int64
	n         int64
}

func compareGaps(a, b gap) int {
	return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.n, b.n))
}

// add appends another code.
func (c *code) add(other *code) {
	at := len(c.Code)
	c.Code = append(c.Code, other.Code...)
	for _, g := range other.gaps {
		c.gaps = append(c.gaps, gap{g.at + at, g.partition, g.n})
	}
}

// Int, Text and Bytes are described at values.Sink.
func (c *code) Int(n int64) {
	if n >= revisions {
		at := gap{len(c.Code), c.partition, n}
		switch n / kinds * kinds {
		case attempts:
			c.partition, at.partition = n%kinds/ofPartition, -1
		case leases:
			at.partition = -1
		}
		c.gaps, c.Code = append(c.gaps, at), append(c.Code, 0xff, 0, 0)
		return
	}
	c.Code = binary.AppendVarint(c.Code, n)
}

// Text appends a text. Numbers in it are told by their eight digits.
func (c *code) Text(s string) {
	c.Int(int64(len(s)))
	digits, from := 0, 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			digits = 0
			continue
		}
		if digits++; digits < 8 {
			continue
		}
		n := int64(0)
		for _, d := range []byte(s[i-7 : i+1]) {
			n = 10*n + int64(d-'0')
		}
		c.Code = append(c.Code, s[from:i-7]...)
		c.Int(n)
		digits, from = 0, i+1
	}
	c.Code = append(c.Code, s[from:]...)
}

// fill puts the rank of each number into its gap.
func (c *code) fill() []byte {
	slices.SortFunc(c.gaps, compareGaps)
	rank, last := byte(0), gap{}
	for _, g := range c.gaps {
		switch {
		case g.partition != last.partition || g.n/kinds != last.n/kinds:
			rank = 0
		case g.n != last.n:
			rank++
		}
		c.Code[g.at+1], c.Code[g.at+2], last = byte(g.n/kinds), rank, g
	}
	return c.Code
}

// Bytes appends bytes like a text.
func (c *code) Bytes(b []byte) { c.Text(string(b)) }

var walker = values.Walker{Skips: func(t reflect.Type, f reflect.StructField) bool {
	switch f.Name {
	case "Header": // those of parts of messages do not matter
		return strings.HasSuffix(t.PkgPath(), "pb")
	case "MaxCreateRevision": // the one before that of the place, which is a condition, too
		return true
	case "Rev": // from where on to watch, and what is known of the epoch: here, what has changed is seen as it is
		return t == reflect.TypeFor[protocol.Position]() || t == reflect.TypeFor[protocol.Seen]()
	}
	return false
}}

// value appends bytes that differ for any two values of a type.
func (c *code) value(v reflect.Value) { walker.Walk(c, v) }
