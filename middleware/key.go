package middleware

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/etcdclaims/claims/fencing"
)

// PathKey returns a function that derives a key from a request's path. In the
// pattern "orders/{id}", it replaces {id} by the value that the pattern of an
// http.ServeMux has for id. Values are path-escaped, so a slash within a value is
// not one of the pattern. There must be a slash between two names, so that requests with
// different values never share a key.
//
// The key is empty if a value is empty. If the handler is wrapped outside of the mux, the
// key is always empty: path values are set by the mux.
//
// PathKey panics if the braces in the pattern do not match, if it has no braces, or if there
// is no slash between two names.
func PathKey(pattern string) func(*http.Request) string {
	var texts, names []string
	for rest := pattern; ; {
		text, after, found := strings.Cut(rest, "{")
		texts = append(texts, text)
		name, next, closed := strings.Cut(after, "}")
		if strings.Contains(text, "}") || found && (!closed || name == "" || strings.Contains(name, "{")) || !found && len(names) == 0 {
			panic(fmt.Sprintf("middleware: path key %q: write it with names in braces, like orders/{id}", pattern))
		}
		if found && len(names) > 0 && !strings.Contains(text, "/") {
			panic(fmt.Sprintf("middleware: path key %q: different values can have one key; put a slash between {%s} and {%s}",
				pattern, names[len(names)-1], name))
		}
		if !found {
			break
		}
		names, rest = append(names, name), next
	}
	return func(r *http.Request) string {
		var b strings.Builder
		for i, name := range names {
			value := r.PathValue(name)
			if value == "" {
				return ""
			}
			b.WriteString(texts[i])
			b.WriteString(url.PathEscape(value))
		}
		b.WriteString(texts[len(names)])
		return b.String()
	}
}

// tokenOf returns the token of a request.
func tokenOf(r *http.Request) (fencing.Token, error) {
	switch lines := r.Header.Values(fencing.Header); len(lines) {
	case 0:
		return fencing.Token{}, fmt.Errorf("%w: send it as %s", fencing.ErrNoToken, fencing.Header)
	case 1:
		return fencing.Parse(lines[0])
	default:
		return fencing.Token{}, fmt.Errorf("%w: there are %d header lines %s; send one", fencing.ErrMalformed, len(lines), fencing.Header)
	}
}
