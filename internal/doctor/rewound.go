package doctor

import "slices"

// CheckRevision is the check whose errors are rewinds: etcd was restored from a snapshot, and
// its revision went back.
const CheckRevision = "revision"

// restored are the checks of what a restore brings back: claims and places of programs
// that have ended, and records, items and jobs as they were.
var restored = []string{"claims", "lines", "sessions", "work", "queues", "jobs"}

// OrderByCause puts rewinds first, and marks the findings that can follow from one.
func (e *Examination) OrderByCause() {
	isRewind := func(f Finding) bool { return f.Check == CheckRevision && f.Level == Error }
	if !slices.ContainsFunc(e.Findings, isRewind) {
		return
	}
	rank := func(f Finding) int {
		if isRewind(f) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(e.Findings, func(a, b Finding) int { return rank(a) - rank(b) })
	for i, f := range e.Findings {
		if f.Level != OK && slices.Contains(restored, f.Check) {
			e.Findings[i].After = CheckRevision
		}
	}
}
