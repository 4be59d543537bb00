package live

import (
	"testing"
	"time"
)

// An end is known until the tick had to end.
func TestEnds(t *testing.T) {
	t.Parallel()
	var e Ends
	t0 := time.Unix(1e9, 0)
	e.Add("a", t0, t0.Add(time.Minute))
	if e.Has("a", t0) {
		t.Error("kept though nothing asks for it")
	}
	e.Drop(t0)
	e.Add("a", t0, t0.Add(time.Minute))
	e.Drop(t0.Add(59 * time.Second))
	if !e.Has("a", t0) || e.Has("b", t0) || e.Has("a", t0.Add(time.Second)) {
		t.Error("not as it was added")
	}
	if e.Drop(t0.Add(time.Minute)); e.Has("a", t0) {
		t.Error("kept after its time")
	}
}
