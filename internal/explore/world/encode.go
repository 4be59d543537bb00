package world

import (
	"reflect"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/protocol"
)

// appendInt is values.AppendInt, but for the letter of the client in the id of a lease.
func appendInt(b []byte, n int64) []byte {
	if letter := n >> 7; letter >= 'A' && letter <= 'Z' {
		b, n = append(b, 0xff, byte(letter)), n&127
	}
	return values.AppendInt(b, n)
}

// sink takes values apart into bytes.
type sink struct{ values.Code }

func (s *sink) Int(n int64) { s.Code = appendInt(s.Code, n) }

var walker values.Walker

// appendValue appends bytes that differ for any two values of a type.
func appendValue(b []byte, v reflect.Value) []byte {
	s := sink{b}
	walker.Walk(&s, v)
	return s.Code
}

// appendAttempt appends an attempt, without what it has read and used: it reads that again before it looks at it.
func appendAttempt(b []byte, a *protocol.Acquisition) []byte {
	v, used := reflect.ValueOf(a).Elem(), a.Phase() != protocol.Clearing
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; {
		case name == "pending" && used, name == "position" && used && a.Phase() != protocol.Waiting:
		default:
			b = appendValue(b, v.Field(i))
		}
	}
	return b
}

// renaming gives each letter of a client another.
type renaming [256]byte

func (r *renaming) apply(b []byte) {
	for i, c := range b {
		b[i] = r[c]
	}
}

func (r *renaming) append(b []byte, text string) []byte {
	at := len(b)
	b = append(b, text...)
	r.apply(b[at:])
	return b
}

// letter is the name of a client. The letters are such that all clients choose the same of two free slots, so
// that their names make no difference.
func letter(i int) byte { return 'A' + byte(2*i) }

// renamings returns all that change the letters of n clients, except the one that changes nothing.
func renamings(n int) (all []renaming) {
	var choose func(order []int)
	choose = func(order []int) {
		if len(order) == n {
			r, same := renaming{}, true
			for i := range r {
				r[i] = byte(i)
			}
			for i, to := range order {
				r[letter(i)], same = letter(to), same && i == to
			}
			if !same {
				all = append(all, r)
			}
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				choose(append(order[:len(order):len(order)], i))
			}
		}
	}
	choose(nil)
	return all
}
