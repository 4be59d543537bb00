package fencing_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/etcdclaims/claims/fencing"
)

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	m := &fencing.Memory{Limit: 3}
	admit := func(key string, fence int64, want error) {
		t.Helper()
		if err := m.Admit(t.Context(), fencing.Token{Key: key, Fence: fence}); !errors.Is(err, want) {
			t.Errorf("%s, fence %d: %v, want %v", key, fence, err, want)
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		admit(key, 5, nil)
	}
	admit("a", 5, nil)                // b is the oldest now
	admit("b", 4, fencing.ErrStale)   // and stays so: it was refused
	admit("d", 0, fencing.ErrNoToken) // nor does this take a place
	admit("d", 5, nil)
	if got := m.Len(); got != 3 {
		t.Errorf("%d keys are remembered", got)
	}
	for _, key := range []string{"a", "c", "d"} {
		admit(key, 4, fencing.ErrStale)
	}
	admit("b", 4, nil) // forgotten, as its doc says
}

func TestMemoryWithoutLimit(t *testing.T) {
	t.Parallel()
	var m fencing.Memory
	const keys = 10_000
	for _, fence := range []int64{2, 3} {
		for i := range keys {
			if err := m.Admit(t.Context(), fencing.Token{Key: fmt.Sprint(i), Fence: fence}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := m.Len(); got != keys {
		t.Errorf("%d of %d keys are remembered", got, keys)
	}
	for i := range keys {
		if err := m.Admit(t.Context(), fencing.Token{Key: fmt.Sprint(i), Fence: 2}); !errors.Is(err, fencing.ErrStale) {
			t.Fatal(err)
		}
	}
}
