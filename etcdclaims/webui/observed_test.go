package webui

import (
	"testing"
	"time"
)

// However many terms there are, the times of the newest ones are kept.
func TestObservedIsBounded(t *testing.T) {
	var o observed
	now := time.Now()
	for fence := range int64(3 * mostObserved) {
		o.begin("k", fence, now)
		o.end("k", fence, now)
	}
	if len(o.times) != mostObserved || len(o.order) != mostObserved {
		t.Errorf("%d times of %d terms", len(o.times), len(o.order))
	}
	if l := o.times[termID{"k", 3*mostObserved - 1}]; l.Began.IsZero() || l.Ended.IsZero() {
		t.Errorf("the newest: %v", l)
	}
}
