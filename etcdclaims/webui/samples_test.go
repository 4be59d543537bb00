package webui

import (
	"strings"
	"testing"
	"time"
)

// A line has the last hour, and a gap where nobody looked. It does not grow beyond that.
func TestSamples(t *testing.T) {
	var s samples
	now := time.Now()
	line := func() string { return s.spark(sampledClaims, now).Path }
	if s.add(sample{at: now}); line() != "" || s.due(now) || !s.due(now.Add(sampleEvery)) {
		t.Errorf("one sample is drawn: %q", line())
	}
	for i := range 200 {
		now = now.Add(sampleEvery)
		if i == 150 {
			now = now.Add(10 * sampleEvery)
		}
		n := sample{at: now}
		n.numbers[sampledClaims], n.numbers[sampledDead] = i, unsampled
		s.add(n)
	}
	if got := line(); strings.Count(got, "M") != 2 || strings.Count(got, "L") < 45 || !strings.HasSuffix(got, "L120 1") {
		t.Errorf("the line is %q", got)
	}
	got := s.spark(sampledClaims, now).Text
	if got != "in the last hour between 150 and 199" && got != "in the last hour between 149 and 199" {
		t.Error(got)
	}
	if got := s.spark(sampledDead, now); got != (spark{}) {
		t.Errorf("a number without samples is drawn: %v", got)
	}
	if len(s.all) != mostSamples {
		t.Errorf("%d samples are kept", len(s.all))
	}
}
