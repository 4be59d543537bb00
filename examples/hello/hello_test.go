package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
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

// Hello ends no claim that another program holds: neither one under the default prefix nor one
// under its own.
func TestTakesNothing(t *testing.T) {
	etcd := testetcd.Start(t)
	for prefix, want := range map[string]error{etcdclaims.DefaultPrefix: nil, "/hello/": etcdclaims.ErrHeld} {
		production, err := etcdclaims.New(etcd.Client(t), etcdclaims.Config{Prefix: prefix, Owner: "production"})
		if err != nil {
			t.Fatal(err)
		}
		defer production.Close(t.Context())
		claim, err := production.TryAcquire(t.Context(), "account/7")
		if err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), etcd.Endpoints(), &strings.Builder{}); !errors.Is(err, want) {
			t.Errorf("under %s: %v, want %v", prefix, err, want)
		}
		if owns, err := claim.Owns(t.Context()); !owns {
			t.Errorf("the claim under %s has ended: %v", prefix, err)
		}
		if err := claim.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
