package main

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
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

func checkFormat(s string) error {
	if !isFormat(s) {
		return fmt.Errorf("output %q is not one of table, json, jsonl and name", s)
	}
	return nil
}

// A row is one thing in a list. Its JSON is what json.Marshal makes of it.
type row interface {
	name() string    // for the format name
	cells() []string // of the table
}

// printList prints what a command lists. JSON of an empty list is [].
func printList[T row](a *app, header []string, rows iter.Seq2[T, error]) error {
	all := []T{}
	table := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	headed := a.format != formatTable // nothing is printed above an error without rows
	for r, err := range rows {
		if err == nil && !headed {
			line(table, header)
			headed = true
		}
		if err != nil {
			_ = table.Flush() // what is known is shown, before the error
			return err
		}
		switch a.format {
		case formatTable:
			line(table, r.cells())
		case formatName:
			_, _ = fmt.Fprintln(a.out, r.name())
		case formatLines:
			if err := a.printLine(r); err != nil {
				return err
			}
		default:
			all = append(all, r)
		}
	}
	if a.format == formatJSON {
		return a.printJSON(all)
	}
	if !headed {
		line(table, header)
	}
	return table.Flush()
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

func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (a *app) printLine(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printOne prints one thing.
func printOne[T interface{ name() string }](a *app, v T, text func(io.Writer)) error {
	switch a.format {
	case formatJSON:
		return a.printJSON(v)
	case formatLines:
		return a.printLine(v)
	case formatName:
		_, err := fmt.Fprintln(a.out, v.name())
		return err
	}
	text(a.out)
	return nil
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

// number is a number in tables, nothing if it is 0.
func number[N ~int | ~int64](n N) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(int64(n))
}

// fields prints names and values, but for those without a value, with the values in one
// column behind so many characters.
func fields(w io.Writer, width int, pairs [][2]string) {
	for _, pair := range pairs {
		if pair[1] != "" {
			_, _ = fmt.Fprintf(w, "%-*s %s\n", width, pair[0]+":", clean(pair[1]))
		}
	}
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

// field prints a name and a value that can have several lines, as fields does.
func field(w io.Writer, width int, name, value string) {
	if value != "" {
		_, _ = fmt.Fprintf(w, "%-*s ", width, name+":")
		paragraph(w, width+1, value)
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
