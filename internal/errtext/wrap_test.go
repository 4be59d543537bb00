package errtext_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/etcdclaims/claims/internal/errtext"
)

func TestWrap(t *testing.T) {
	t.Parallel()
	for want, inner := range map[string]error{
		"sched: x: claim lost":       errors.New("etcdclaims: claim lost"),
		"sched: x: EOF":              io.EOF,
		"sched: x: a; b":             errors.Join(errors.New("a"), errors.New("b")),
		"sched: x: jobs: not mine":   errors.New("jobs: not mine"),
		"sched: x: key \"sched: y\"": fmt.Errorf("key %q", "sched: y"),
	} {
		err := errtext.Wrap("sched: x", inner)
		if err.Error() != want || !errors.Is(err, inner) {
			t.Errorf("%q, want %q", err, want)
		}
	}
}
