package main

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/explain"
)

// A view is a struct that a command prints. Its JSON is what json.Marshal makes of it. Its
// fields with a tag col are the columns of tables, and the lines of a command that shows one
// thing. After the name of the column the tag can have "0", which shows a zero, and "short",
// whose text tables cut off where it does not fit.
type view = any

// nameOf returns what the format name prints of a view: its first field, unless it has a method
// that returns another name.
func nameOf(v view) string {
	if named, ok := v.(interface{ name() string }); ok {
		return named.name()
	}
	return column{zero: true}.value(v)
}

// A column is a field of a view.
type column struct {
	name        string
	field       int
	zero, short bool
}

// columnsOf returns the columns of a view, in the order of its fields.
func columnsOf(of reflect.Type) (all []column) {
	for i := range of.NumField() {
		if tag, ok := of.Field(i).Tag.Lookup("col"); ok {
			name, option, _ := strings.Cut(tag, ",")
			all = append(all, column{name, i, option == "0", option == "short"})
		}
	}
	return all
}

// columnOf returns the column of a view with the name.
func columnOf(of reflect.Type, name string) column {
	all := columnsOf(of)
	return all[slices.IndexFunc(all, func(c column) bool { return c.name == name })]
}

// details prints the columns that a view has values for. A value can have several lines.
func details(w io.Writer, v view) {
	all := columnsOf(reflect.TypeOf(v))
	width := 0
	for _, c := range all {
		width = max(width, len(c.name)+1)
	}
	for _, c := range all {
		if value := c.value(v); value != "" {
			name := c.name
			if len(name) > 2 { // no ID
				name = name[:1] + strings.ToLower(name[1:])
			}
			_, _ = fmt.Fprintf(w, "%-*s ", width, name+":")
			paragraph(w, width+1, value)
		}
	}
}

// compare compares the fields of two views.
func (c column) compare(a, b view) int {
	x, y := reflect.ValueOf(a).Field(c.field), reflect.ValueOf(b).Field(c.field)
	if t, is := x.Interface().(time.Time); is {
		return t.Compare(y.Interface().(time.Time))
	}
	if x, y := reflect.Indirect(x), reflect.Indirect(y); x.CanInt() && y.CanInt() {
		return cmp.Compare(x.Int(), y.Int())
	}
	return strings.Compare(c.value(a), c.value(b))
}

// value returns the field as text, empty if it is not known.
func (c column) value(v view) string {
	switch is := reflect.ValueOf(v).Field(c.field).Interface().(type) {
	case string:
		return is
	case int:
		return c.number(int64(is))
	case int64:
		return c.number(is)
	case *int:
		if is != nil {
			return strconv.Itoa(*is)
		}
	case time.Time:
		return explain.Stamp(is)
	case time.Duration:
		if is != 0 {
			return is.String()
		}
	case []byte:
		return text(is)
	case bool:
		if is {
			return "yes"
		}
	}
	return ""
}

func (c column) number(n int64) string {
	if n == 0 && !c.zero {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// sortRows sorts by a column. Rows that are equal there keep their order.
func sortRows[T view](rows []T, by string) {
	name, falling := strings.CutPrefix(strings.ToUpper(by), "-")
	if name == "" {
		return
	}
	c := columnOf(reflect.TypeFor[T](), name)
	slices.SortStableFunc(rows, func(a, b T) int {
		if falling {
			a, b = b, a
		}
		return c.compare(a, b)
	})
}
