package explain_test

import (
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
