package world

import (
	"bytes"
	"reflect"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
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

// partsOf are the parts of an etcd.
func partsOf(e etcdmodel.State) (parts [][]byte) {
	s, from := sink{make([]byte, 0, 2048)}, 0
	e.Walk(&s, func() { parts, from = append(parts, s.Code[from:]), len(s.Code) })
	return parts
}

// appendGroups appends groups of parts in an order that depends on the bytes of the parts alone.
func appendGroups(b []byte, groups [][][]byte, r *renaming) []byte {
	for _, parts := range groups {
		if parts = slices.Clone(parts); r != nil {
			all := bytes.Join(parts, nil)
			r.apply(all)
			for i, p := range parts {
				parts[i], all = all[:len(p)], all[len(p):]
			}
		}
		slices.SortFunc(parts, bytes.Compare)
		b = appendInt(b, int64(len(parts)))
		for _, p := range parts {
			b = append(appendInt(b, int64(len(p))), p...)
		}
	}
	return b
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
