package structured_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/structured"
)

// What package fencing does not ask of a token is asked here.
func TestParseItem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		` "a" `:               "a",
		`"a\"b\\"`:            `a"b\`,
		`"a";p;q=?1;r=:YQ==:`: "a",
		`"a"; p=1.5`:          "a",
		`%"caf%c3%a9"`:        structured.Display("café"),
		`-7`:                  int64(-7),
		`token/x`:             structured.Other{},
	} {
		it, err := structured.ParseItem(text)
		if err != nil || it.Value != want {
			t.Errorf("%s: %v, %v, want %v", text, it.Value, err, want)
		}
	}
	for _, text := range []string{``, `"a`, `"a\b"`, `"a"x`, `"a", "b"`, `"a";P`, `"a";p=`, "\"a\tb\"", `"a";p=@x`} {
		if it, err := structured.ParseItem(text); err == nil {
			t.Errorf("%s: %v", text, it)
		}
	}
}
