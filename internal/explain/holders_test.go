package explain_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/etcdclaims/claims/internal/explain"
)

func TestSlotOf(t *testing.T) {
	t.Parallel()
	for slotKey, want := range map[string]struct {
		slot  int
		whole string
	}{
		"db#slot-0":        {0, "db"},
		"db#slot-255":      {255, "db"},
		"db#slot-256":      {-1, ""}, // a key has 256 slots at most
		"db#slot-01":       {-1, ""},
		"db#slot-+1":       {-1, ""},
		"db#slot--1":       {-1, ""},
		"db#slot-1x":       {-1, ""},
		"db#slot-":         {-1, ""},
		"db":               {-1, ""},
		"1":                {-1, ""},
		"#slot-1":          {-1, ""},
		"db#slot-1#slot-2": {-1, "db#slot-1"},
	} {
		if got := explain.SlotOf("db", slotKey); got != want.slot {
			t.Errorf("SlotOf(db, %q) = %d, want %d", slotKey, got, want.slot)
		}
		if got := explain.WholeOf(slotKey); got != want.whole {
			t.Errorf("WholeOf(%q) = %q, want %q", slotKey, got, want.whole)
		}
	}
}

// An element that cannot be read hides none behind it.
func TestFirst(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	list := func(yield func(int, error) bool) {
		_ = yield(1, nil) && yield(0, broken) && yield(2, nil) && yield(0, errors.New("also broken")) && yield(3, nil)
	}
	for most, want := range map[int]struct {
		all  []int
		more bool
		err  error
	}{
		0: {nil, true, nil},
		1: {[]int{1}, true, nil},
		2: {[]int{1, 2}, true, broken},
		3: {[]int{1, 2, 3}, false, broken},
	} {
		all, more, err := explain.First(list, most)
		if !slices.Equal(all, want.all) || more != want.more || !errors.Is(err, want.err) {
			t.Errorf("%d: %v, %t, %v", most, all, more, err)
		}
	}
}
