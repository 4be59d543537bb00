package lease

import "testing"

// A renewal verifies a part only after one that succeeded, without a doubt since. Each part has its turn.
func TestRotation(t *testing.T) {
	t.Parallel()
	var r rotation
	for i, step := range []struct {
		all       bool // was asked for
		doubts    int64
		succeeds  bool
		wantsAll  bool
		partAfter uint64
	}{
		{false, 0, true, true, 1}, // the first
		{false, 0, true, false, 2},
		{true, 0, true, true, 0},
		{false, 0, false, false, 0}, // the same part again
		{false, 0, true, true, 1},
		{false, 3, true, true, 2}, // a doubt
		{false, 3, true, false, 0},
		{false, 3, false, false, 0},
		{false, 4, false, true, 0},
		{false, 4, true, true, 1}, // a failed one does not settle the doubt
	} {
		all := r.begin(step.all, step.doubts)
		if step.succeeds {
			r.succeeded()
		}
		if all != step.wantsAll || r.part != step.partAfter {
			t.Errorf("step %d: all %v, next part %d", i, all, r.part)
		}
	}
}
