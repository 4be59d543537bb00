package world

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/internal/protocol"
)

// structFields has the result of fieldsOf by type.
var structFields sync.Map

// appendInt appends a number in bytes that are no letters, but for the letter of the client in the id of a lease.
func appendInt(b []byte, n int64) []byte {
	if letter := n >> 7; letter >= 'A' && letter <= 'Z' {
		b, n = append(b, 0xff, byte(letter)), n&127
	}
	for ; n >= 32 || n < 0; n = int64(uint64(n) >> 5) { //nolint:gosec // any bytes do
		b = append(b, byte(n&31)|32)
	}
	return append(b, byte(n))
}

// appendValue appends bytes that differ for any two values of a type. It follows pointers. Functions
// cannot be compared, and what protobuf keeps for itself is no part of a message.
func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		return append(b, flag(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return appendInt(b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return appendInt(b, int64(v.Uint())) //nolint:gosec // any bytes do
	case reflect.String:
		return append(appendInt(b, int64(v.Len())), v.String()...)
	case reflect.Slice:
		b = appendInt(b, int64(v.Len()))
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return append(b, v.Bytes()...)
		}
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
		return b
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, 0)
		}
		return appendValue(append(b, 1), v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return append(b, 0)
		}
		b = append(append(b, v.Elem().Type().Name()...), 1)
		return appendValue(b, v.Elem())
	case reflect.Struct:
		for _, i := range fieldsOf(v.Type()) {
			b = appendValue(b, v.Field(i))
		}
		return b
	}
	panic("world: no bytes for a value of type " + v.Type().String())
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

// fieldsOf returns the fields of a struct that count.
func fieldsOf(t reflect.Type) []int {
	if fields, ok := structFields.Load(t); ok {
		return fields.([]int) //nolint:forcetypeassert // the map has nothing else
	}
	fields := make([]int, 0, t.NumField())
	message := strings.HasSuffix(t.PkgPath(), "pb")
	for i := range t.NumField() {
		if f := t.Field(i); !message || f.IsExported() {
			fields = append(fields, i)
		}
	}
	structFields.Store(t, fields)
	return fields
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
