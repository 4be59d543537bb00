package errtext

import "strings"

// Namesake returns an error that matches also, an error of the same name in another
// package.
func Namesake(text string, also error) error { return &namesake{text, also} }

type namesake struct {
	text string
	also error
}

func (e *namesake) Error() string { return e.text }

// Is matches the namesake.
func (e *namesake) Is(target error) bool { return target == e.also }

// Bare returns the text of an error without the prefix of package etcdclaims,
// wherever it stands, on one line.
func Bare(err error) string {
	return OneLine(strings.ReplaceAll(err.Error(), prefixes[0], ""))
}

// OneLine joins the lines of a text with semicolons.
func OneLine(s string) string {
	if !strings.ContainsAny(s, "\n\r") {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
