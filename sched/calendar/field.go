package calendar

import (
	"math/bits"
	"strconv"
	"strings"
)

// A set is a set of small numbers, from 0 to 63.
type set uint64

// between returns the numbers from lo to hi.
func between(lo, hi int) set { return set(1)<<(hi+1) - set(1)<<lo }

func (s set) has(n int) bool { return s>>n&1 != 0 }

func (s *set) add(n int) { *s |= 1 << n }

// from returns the least number of the set that is at least n, or 64.
func (s set) from(n int) int { return bits.TrailingZeros64(uint64(s >> n << n)) }

// all yields the numbers in ascending order.
func (s set) all(yield func(int) bool) {
	for n := s.from(0); n < 64; n = s.from(n + 1) {
		if !yield(n) {
			return
		}
	}
}

// A field is the parsed form of one field of an expression.
type field struct {
	set
	star bool // whether it begins with * or ?; set for minutes, hours and days only
}

// A kind describes one of the fields of an expression.
type kind struct {
	name   string
	lo, hi int
	most   int      // the greatest number that the field accepts: hi, or hi+1 as another name of lo
	want   string   // the accepted values, for error messages
	names  []string // the names of the values, starting with lo
	star   bool     // whether a leading star has a meaning of its own

	// letter parses items with L, W and #. Only the day fields accept them.
	letter func(p *parser, k kind, w word, d *days) (known bool, err error)
}

var (
	seconds = kind{name: "second", hi: 59, most: 59, want: "0-59"}
	minutes = kind{name: "minute", hi: 59, most: 59, want: "0-59", star: true}
	hours   = kind{name: "hour", hi: 23, most: 23, want: "0-23", star: true}
	dates   = kind{name: "day of month", lo: 1, hi: 31, most: 31, want: "1-31, L, L-3, LW or 15W", star: true, letter: (*parser).dateLetter}
	months  = kind{
		name: "month", lo: 1, hi: 12, most: 12, want: "1-12 or JAN-DEC",
		names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"},
	}
	weekdays = kind{
		name: "day of week",
		hi:   6,
		most: 7,
		want: "0-7 (0 and 7 are Sunday), SUN-SAT, 5L or 5#2, " +
			"with a + in front of the list if the day of month must match too",
		names:  []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"},
		star:   true,
		letter: (*parser).weekdayLetter,
	}
)

func (k kind) size() int { return k.hi - k.lo + 1 }

// steps returns every n-th value of the kind.
func (k kind) steps(n int) (s set) {
	for v := k.lo; v <= k.hi; v += n {
		s.add(v)
	}
	return s
}

// text returns the canonical text of a field, with more items at its end. Parsing
// it returns the same field.
func (k kind) text(f field, more []string) string {
	var items []string
	rest := f.set
	if rest.has(k.lo) && (f.star || !k.star) {
		// A field that began with a star always has some */n among its values. Other
		// fields are written as */n only if that covers all their values.
		n := 1
		for k.steps(n)&^rest != 0 {
			n++
		}
		if every := k.steps(n); f.star || every == rest && n < k.size() {
			items = append(items, "*"+step(n))
			rest &^= every
		}
	}
	for v := rest.from(0); v < 64; v = rest.from(v) {
		first := v
		for rest.has(v) {
			v++
		}
		switch v - first {
		case 1:
			items = append(items, strconv.Itoa(first))
		case 2:
			items = append(items, strconv.Itoa(first), strconv.Itoa(v-1))
		default:
			items = append(items, strconv.Itoa(first)+"-"+strconv.Itoa(v-1))
		}
	}
	return strings.Join(append(items, more...), ",")
}

func step(n int) string {
	if n == 1 {
		return ""
	}
	return "/" + strconv.Itoa(n)
}
