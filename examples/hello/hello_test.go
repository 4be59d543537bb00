package main

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

func TestHello(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), testetcd.Shared(t).Endpoints(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bob cannot have it: ", "held by alice", "alice held it with fence ", "alice's late write is refused: true"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
}
