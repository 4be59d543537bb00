// Package values takes values apart, for bytes by which a search recognizes a state.
package values

import (
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
)

// Sink takes what a value consists of.
type Sink interface {
	Bool(v bool)
	Int(n int64)
	Text(s string)
	Bytes(b []byte)
}

// Walker takes values apart. The zero value is ready. It is safe for concurrent use.
type Walker struct {
	// Skips reports whether a field of a struct does not count. Nil means that all count.
	Skips func(t reflect.Type, f reflect.StructField) bool

	fields sync.Map // the result of fieldsOf by type
	types  sync.Map // the result of numberOf by type
	last   atomic.Int64
}

// Walk gives a sink all that distinguishes a value from others of its type. It follows pointers.
// What protobuf keeps for itself does not count. It panics on functions, maps and channels.
func (w *Walker) Walk(to Sink, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		to.Bool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		to.Int(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		to.Int(int64(v.Uint())) //nolint:gosec // equal numbers stay equal
	case reflect.String:
		to.Text(v.String())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			to.Bytes(v.Bytes())
			return
		}
		to.Int(int64(v.Len()))
		for i := range v.Len() {
			w.Walk(to, v.Index(i))
		}
	case reflect.Pointer, reflect.Interface:
		if to.Bool(!v.IsNil()); v.IsNil() {
			return
		}
		if v.Kind() == reflect.Interface {
			to.Int(w.numberOf(v.Elem().Type()))
		}
		w.Walk(to, v.Elem())
	case reflect.Struct:
		for _, i := range w.fieldsOf(v.Type()) {
			w.Walk(to, v.Field(i))
		}
	default:
		panic("values: a value of type " + v.Type().String() + " cannot be compared")
	}
}

// numberOf returns a number for a type that an interface has, as a walker has met it first. A name could be taken for
// one that distinguishes values.
func (w *Walker) numberOf(t reflect.Type) int64 {
	n, ok := w.types.Load(t)
	if !ok {
		n, _ = w.types.LoadOrStore(t, w.last.Add(1))
	}
	return n.(int64) //nolint:forcetypeassert // the map has nothing else
}

// fieldsOf returns the fields of a struct that count.
func (w *Walker) fieldsOf(t reflect.Type) []int {
	if fields, ok := w.fields.Load(t); ok {
		return fields.([]int) //nolint:forcetypeassert // the map has nothing else
	}
	fields := make([]int, 0, t.NumField())
	message := strings.HasSuffix(t.PkgPath(), "pb")
	for i := range t.NumField() {
		f := t.Field(i)
		if message && !f.IsExported() || w.Skips != nil && w.Skips(t, f) {
			continue
		}
		fields = append(fields, i)
	}
	w.fields.Store(t, fields)
	return fields
}
