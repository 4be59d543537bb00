package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

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

// shorten returns the beginning of a text that is longer than most.
func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
