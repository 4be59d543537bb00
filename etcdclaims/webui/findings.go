package webui

import (
	"cmp"
	"html/template"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/doctor"
)

// finding is what one check has found.
type finding struct {
	doctor.Finding
	Page   template.URL // where it is shown; empty if nowhere
	Folded []finding    // what can follow from it
	Since  time.Time    // when this page first saw it
}

// Class returns the class of the finding's level in the style sheet.
func (f finding) Class() string {
	return map[doctor.Level]string{doctor.Error: "bad", doctor.Warning: "warn"}[f.Level]
}

// subjects maps a check to the page that shows the objects of the check.
var subjects = map[string]template.URL{
	"claims": "claims", "flapping": "claims", "lines": "lines", "sessions": "sessions", "work": "work",
	"queues": "queues", "jobs": "schedules", "groups": "groups",
}

// findings are those of an examination.
type findings struct {
	Troubles []finding        // errors first, notes last
	Well     []doctor.Finding // checks that found all well
	Hidden   int              // findings about pages that the user may not view
}

// newFindings sorts the findings of an examination.
func newFindings(all []doctor.Finding) (f findings) {
	for _, cause := range doctor.Causes(all) {
		if cause.Level == doctor.OK {
			f.Well = append(f.Well, cause.Finding)
			continue
		}
		found := finding{Finding: cause.Finding, Page: subjects[cause.Check]}
		for _, folded := range cause.Folded {
			found.Folded = append(found.Folded, finding{Finding: folded, Page: subjects[folded.Check]})
		}
		f.Troubles = append(f.Troubles, found)
	}
	rank := map[doctor.Level]int{doctor.Error: 0, doctor.Warning: 1, doctor.Note: 2}
	slices.SortStableFunc(f.Troubles, func(a, b finding) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	return f
}

// Any reports whether there was an examination.
func (f findings) Any() bool { return len(f.Troubles)+len(f.Well)+f.Hidden > 0 }

// Sound reports whether no finding is a warning or an error. Hidden ones are not known.
func (f findings) Sound() bool {
	return f.Hidden == 0 && !slices.ContainsFunc(f.Troubles, func(found finding) bool { return found.Level != doctor.Note })
}

// sightings are when this page first saw the findings of the last examination.
type sightings struct {
	mu    sync.Mutex
	first map[string]time.Time
}

// date tells when findings were first seen, and forgets those that are not there any more.
func (s *sightings) date(found []finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, seen := time.Now(), make(map[string]time.Time, len(found))
	for i := range found {
		// The detail and the commands have numbers and names that change.
		id := found[i].Check + "\x00" + string(found[i].Level) + "\x00" + found[i].Remedy
		at, ok := s.first[id]
		if !ok {
			at = now
		}
		found[i].Since, seen[id] = at, at
	}
	s.first = seen
}
