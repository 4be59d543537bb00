package explain

import (
	"slices"
	"strings"
	"time"
)

// Quoted is a word as a shell takes it, for commands that people copy.
func Quoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_/.:@%+=,-", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Arguments returns the last words of a command, after its flags.
func Arguments(words ...string) string {
	var b strings.Builder
	if slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") }) {
		b.WriteString(" --")
	}
	for _, w := range words {
		b.WriteString(" " + Quoted(w))
	}
	return b.String()
}

// Stamp is a time as people and programs read it, empty if it is zero.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
