package explain_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/explain"
)

func TestWords(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"orders/42": "orders/42", "": "''", "a b": "'a b'", "x;rm -rf /": "'x;rm -rf /'", "it's": `'it'\''s'`, "$(id)": "'$(id)'", "ä": "'ä'",
	} {
		if got := explain.Quoted(s); got != want {
			t.Errorf("Quoted(%q) = %s, want %s", s, got, want)
		}
	}
	for got, want := range map[string]string{
		explain.Arguments("a b", "c"):    " 'a b' c",
		explain.Arguments("-k"):          " -- -k",
		explain.Arguments("a", "--help"): " -- a --help",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
