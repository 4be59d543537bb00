package middleware

import (
	"errors"
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/internal/structured"
)

// maxIdempotencyKey is the greatest length in bytes, enough for several UUIDs.
const maxIdempotencyKey = 255

// idempotencyKey parses the values of the Idempotency-Key header: one line with a
// String of RFC 9651, whose parameters are ignored. If unquoted is set, the
// String may be without quotes.
func idempotencyKey(lines []string, unquoted bool) (string, error) {
	if len(lines) > 1 {
		return "", fmt.Errorf("there are %d header lines; send one", len(lines))
	}
	text := strings.Trim(lines[0], " \t") // HTTP allows whitespace around the value
	if unquoted && !strings.HasPrefix(text, `"`) {
		// Quote it: it means the same, and its parameters are parsed in the same way.
		key, parameters, _ := strings.Cut(text, ";")
		key = strings.TrimRight(key, " ")
		if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == ',' }) {
			return "", errors.New("without quotes it must be printable ASCII without spaces, quotes, commas and semicolons")
		}
		text = `"` + strings.ReplaceAll(key, `\`, `\\`) + `"`
		if parameters != "" {
			text += ";" + parameters
		}
	}
	item, err := structured.ParseItem(text)
	if err != nil {
		return "", fmt.Errorf("it must be one String of RFC 9651 in quotes: %w", err)
	}
	key, is := item.Value.(string)
	switch {
	case !is:
		return "", fmt.Errorf("%.80q is not in quotes, as a String of RFC 9651 must be", lines[0])
	case key == "" || len(key) > maxIdempotencyKey:
		return "", fmt.Errorf("it has %d bytes; it must have 1 to %d", len(key), maxIdempotencyKey)
	}
	return key, nil
}
