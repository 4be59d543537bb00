package partitions

import (
	"cmp"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/internal/protocol"
)

// Numbers of which only the order counts: revisions, and ids of attempts and leases. Each kind has a range of its
// own, in which all have eight digits. Two states that differ in such numbers, and not in their order, are the same.
// No request compares revisions of two partitions, so the order of these does not count either.
const (
	revisions   = 10_000_000
	attempts    = 20_000_000
	leases      = 30_000_000
	kinds       = 10_000_000 // numbers of a kind
	ofPartition = 100_000    // attempts for one partition
)

// code is bytes with gaps for such numbers.
type code struct {
	b         []byte
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
	at := len(c.b)
	c.b = append(c.b, other.b...)
	for _, g := range other.gaps {
		c.gaps = append(c.gaps, gap{g.at + at, g.partition, g.n})
	}
}

func (c *code) int(n int64) {
	if n >= revisions {
		at := gap{len(c.b), c.partition, n}
		switch n / kinds * kinds {
		case attempts:
			c.partition, at.partition = n%kinds/ofPartition, -1
		case leases:
			at.partition = -1
		}
		c.gaps, c.b = append(c.gaps, at), append(c.b, 0xff, 0, 0)
		return
	}
	c.b = binary.AppendVarint(c.b, n)
}

func (c *code) bool(v bool) {
	if v {
		c.b = append(c.b, 1)
	} else {
		c.b = append(c.b, 0)
	}
}

// text appends a text. Numbers in it are told by their eight digits.
func (c *code) text(s string) {
	c.int(int64(len(s)))
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
		c.b = append(c.b, s[from:i-7]...)
		c.int(n)
		digits, from = 0, i+1
	}
	c.b = append(c.b, s[from:]...)
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
		c.b[g.at+1], c.b[g.at+2], last = byte(g.n/kinds), rank, g
	}
	return c.b
}

// structFields has the result of fieldsOf by type.
var structFields sync.Map

// value appends bytes that differ for any two values of a type. It follows pointers.
func (c *code) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		c.bool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		c.int(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		c.int(int64(v.Uint())) //nolint:gosec // they are small
	case reflect.String:
		c.text(v.String())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			c.text(string(v.Bytes()))
			return
		}
		c.int(int64(v.Len()))
		for i := range v.Len() {
			c.value(v.Index(i))
		}
	case reflect.Pointer, reflect.Interface:
		if c.bool(!v.IsNil()); v.IsNil() {
			return
		}
		if v.Kind() == reflect.Interface {
			c.text(v.Elem().Type().Name() + v.Elem().Type().String())
		}
		c.value(v.Elem())
	case reflect.Struct:
		for _, i := range fieldsOf(v.Type()) {
			c.value(v.Field(i))
		}
	default:
		panic("partitions: no bytes for a value of type " + v.Type().String())
	}
}

// fieldsOf returns the fields of a struct that count. What protobuf keeps for itself does not.
func fieldsOf(t reflect.Type) []int {
	if fields, ok := structFields.Load(t); ok {
		return fields.([]int) //nolint:forcetypeassert // the map has nothing else
	}
	fields := make([]int, 0, t.NumField())
	message := strings.HasSuffix(t.PkgPath(), "pb")
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case message && (!f.IsExported() || f.Name == "Header"): // those of parts do not matter
		case f.Name == "MaxCreateRevision": // the one before that of the place, which is a condition, too
		case f.Name == "Rev" && (t == reflect.TypeFor[protocol.Position]() || t == reflect.TypeFor[protocol.Seen]()):
			// From where on to watch, and what is known of the epoch: here, what has changed is seen as it is.
		default:
			fields = append(fields, i)
		}
	}
	structFields.Store(t, fields)
	return fields
}
