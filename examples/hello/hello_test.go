package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const story = `bob cannot have it: acquire "account/7": held by alice since TIME, free at TIME at the latest if it is not renewed (fence N)
alice learns of it: etcdclaims: claim on "account/7" (fence N) lost: deleted: release forced by bob: alice does not answer
alice held it with fence N, bob holds it with fence N
alice's late write is refused: true
`

// Each run prints the same lines in the same order, but for times and fences.
func TestSameStory(t *testing.T) {
	etcd := claimtest.Start(t)
	times, fences := regexp.MustCompile(`20\d\d-\S+Z`), regexp.MustCompile(`fence \d+`)
	for range 20 {
		var out strings.Builder
		if err := run(t.Context(), etcd.Endpoints(), &out); err != nil {
			t.Fatal(err)
		}
		got := fences.ReplaceAllString(times.ReplaceAllString(out.String(), "TIME"), "fence N")
		if got != story {
			t.Fatalf("got\n%swant\n%s", got, story)
		}
	}
}

// Hello ends no claim that another program holds: neither one under the default prefix nor one
// under its own.
func TestTakesNothing(t *testing.T) {
	etcd := claimtest.Start(t)
	for prefix, want := range map[string]error{etcdclaims.DefaultPrefix: nil, "/hello/": etcdclaims.ErrHeld} {
		production, err := etcdclaims.New(etcd.Etcd(t), etcdclaims.Config{Prefix: prefix, Owner: "production"})
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
