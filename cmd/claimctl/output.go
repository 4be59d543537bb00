package main

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
)

// Formats of the output.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatLines = "jsonl"
	formatName  = "name"
)

var formats = []string{formatTable, formatJSON, formatLines, formatName}

func isFormat(s string) bool { return slices.Contains(formats, s) }

// A view is a struct that a command prints. Its JSON is what json.Marshal makes of it. Its
// fields with a tag col are the columns of tables, and the lines of a command that shows one
// thing. After the name of the column the tag can have "0", which shows a zero, and "short",
// which shows the beginning of a text in tables.
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

// cells returns what a table has of a view, in the columns of the header.
func cells(v view, header []string) (row []string) {
	all := columnsOf(reflect.TypeOf(v))
	for _, name := range header {
		c := all[slices.IndexFunc(all, func(c column) bool { return c.name == name })]
		value := c.value(v)
		if c.short {
			value = shorten(firstLine(value))
		}
		row = append(row, value)
	}
	return row
}

// printList prints what a command lists, in a table with the columns of the header, separated
// by commas. JSON of an empty list is []. Entries that cannot be read hide no others: their errors
// are returned together.
func printList[T view](a *app, columns string, rows iter.Seq2[T, error]) (unread error) {
	all := []T{}
	header := strings.Split(columns, ",")
	table := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	headed := a.format != formatTable // nothing is printed above an error without rows
	for r, err := range rows {
		if err != nil {
			unread = errtext.Both(unread, err)
			continue
		}
		if !headed {
			line(table, header)
			headed = true
		}
		switch a.format {
		case formatTable:
			line(table, cells(r, header))
		case formatName:
			_, _ = fmt.Fprintln(a.out, nameOf(r))
		case formatLines:
			if err := a.printLine(r); err != nil {
				return err
			}
		default:
			all = append(all, r)
		}
	}
	switch {
	case unread != nil && len(all) == 0: // it is not known that the list is empty
	case a.format == formatJSON:
		return errtext.Both(a.printJSON(all), unread)
	case !headed:
		line(table, header)
	}
	return errtext.Both(table.Flush(), unread)
}

// line writes one line of a table.
func line(table io.Writer, cells []string) {
	shown := make([]string, len(cells))
	for i, cell := range cells {
		if shown[i] = clean(cell); cell == "" {
			shown[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(table, strings.Join(shown, "\t"))
}

func (a *app) printJSON(v any) error { return a.encode(v, "  ") }

func (a *app) printLine(v any) error { return a.encode(v, "") }

func (a *app) encode(v any, indent string) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// printOne prints one thing; without a text its columns, each on a line of its own.
func printOne(a *app, v view, text func(io.Writer)) error {
	switch a.format {
	case formatJSON:
		return a.printJSON(v)
	case formatLines:
		return a.printLine(v)
	case formatName:
		_, err := fmt.Fprintln(a.out, nameOf(v))
		return err
	}
	if text == nil {
		text = func(w io.Writer) { details(w, v) }
	}
	text(a.out)
	return nil
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

// say prints what a command did, for people.
func (a *app) say(format string, args ...any) {
	if a.format == formatTable {
		_, _ = fmt.Fprintf(a.out, "%s\n", clean(fmt.Sprintf(format, args...)))
	}
}

// clean shows what a terminal must not obey, or a reader could not see, as
// escapes: control characters, and marks that change the direction of text.
func clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// paragraph prints the lines of a text, such as an error with its stack: the first after what
// is printed already, and the others indented.
func paragraph(w io.Writer, indent int, text string) {
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if i > 0 {
			_, _ = fmt.Fprint(w, strings.Repeat(" ", indent))
		}
		_, _ = fmt.Fprintln(w, clean(strings.ReplaceAll(line, "\t", "    ")))
	}
}

// firstLine is the first line of an error, with a mark if there are more. A command that
// shows one thing prints them all.
func firstLine(s string) string {
	if first, rest, more := strings.Cut(s, "\n"); more && rest != "" {
		return first + " …"
	}
	return strings.TrimSuffix(s, "\n")
}

// text is a note or a payload as text.
func text(b []byte) string {
	if !utf8.Valid(b) {
		return fmt.Sprintf("%q", b)
	}
	return string(b)
}

// shorten is a note in a table.
func shorten(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// sequence yields a slice as printList takes it, and then the errors.
func sequence[T any](all []T, then ...error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
		for _, err := range then {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
		}
	}
}

// views returns the views of a slice.
func views[T, V any](all []T, view func(T) V) []V {
	vs := make([]V, len(all)) // in JSON an empty one is []
	for i, is := range all {
		vs[i] = view(is)
	}
	return vs
}

// mapped yields what a function makes of each value.
func mapped[T, V any](all iter.Seq2[T, error], view func(T) V) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for v, err := range all {
			if !yield(view(v), err) {
				return
			}
		}
	}
}
