package webui

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/internal/explain"
)

const (
	// examineEvery is the least time between two examinations.
	examineEvery = 20 * time.Second
	// examineTimeout bounds one examination.
	examineTimeout = 5500 * time.Millisecond
	// trialPause is the least time between two trials.
	trialPause = 10 * time.Second
	// mostExamined is how many claims, places in line and records each check examines,
	// and mostLeases how many leases it asks for.
	mostExamined, mostLeases = 1000, 50
)

var (
	// errTrying is returned when a trial is requested during another one.
	errTrying = errors.New("a trial is in progress: see its findings in a few seconds")
	// errTried is returned when a trial is requested within trialPause of the last one.
	errTried = errors.New("a trial has just ended: see its findings, or try again in a few seconds")
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

// visible returns the findings without those about pages that the user may not view. It
// changes nothing in f, which all tabs share.
func (f findings) visible(q *request) findings {
	may := func(check string) bool {
		page := string(subjects[check])
		return page == "" || q.can(Operation{Action: ActionView, Page: page})
	}
	shown := findings{}
	for _, found := range f.Troubles {
		if !may(found.Check) {
			shown.Hidden += 1 + len(found.Folded)
			continue
		}
		folded := found.Folded
		found.Folded = nil
		for _, consequence := range folded {
			if may(consequence.Check) {
				found.Folded = append(found.Folded, consequence)
			} else {
				shown.Hidden++
			}
		}
		shown.Troubles = append(shown.Troubles, found)
	}
	for _, found := range f.Well {
		if may(found.Check) {
			shown.Well = append(shown.Well, found)
		} else {
			shown.Hidden++
		}
	}
	return shown
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

// examine returns what the checks that only read have found, for all tabs alike.
func (q *request) examine() (findings, freshness) {
	return snapshotOf(q, doctorTopic, examineEvery, func(_ context.Context, h *Handler) (findings, error) {
		if h.claims.Passthrough() {
			return findings{}, nil
		}
		e := h.examination()
		e.Untimed = true // each new duration would reload all tabs
		e.Login(h.claims.Etcd().Username != "", false, 0)
		e.Examine(h.ctx, false) // it may take longer than other readings
		found := newFindings(e.Findings)
		h.sightings.date(found.Troubles)
		return found, nil
	})
}

// doctorTopic is the name of the snapshot of the findings.
const doctorTopic = "doctor"

// examination returns an examination that has found nothing yet.
func (h *Handler) examination() *doctor.Examination {
	commands := doctor.Commands{Claimctl: "claimctl", Etcdctl: "etcdctl", Member: "etcdctl", Root: "etcdctl"}
	if prefix := h.claims.Prefix(); prefix != etcdclaims.DefaultPrefix {
		commands.Claimctl += " --prefix " + explain.Quoted(prefix)
	}
	return &doctor.Examination{
		Claims:   h.claims,
		Commands: commands,
		Limit:    mostExamined,
		Leases:   mostLeases,
		Patience: examineTimeout,
		Answer:   memberTimeout,
		TLS:      h.cfg.TLS,
		ICal:     h.cfg.ICal,
	}
}

// trials makes trials of writes, one at a time, and keeps what the last has found.
type trials struct {
	mu      sync.Mutex
	running bool
	last    trial
}

// trial is what a trial has found.
type trial struct {
	findings
	At time.Time // when it ended; zero if there was none
	By string
}

// try makes a trial that the user has requested.
func (h *Handler) try(ctx context.Context, user string) error {
	t := &h.trials
	t.mu.Lock()
	switch {
	case t.running:
		t.mu.Unlock()
		return errTrying
	case !t.last.At.IsZero() && time.Since(t.last.At) < trialPause:
		t.mu.Unlock()
		return errTried
	}
	t.running = true
	t.mu.Unlock()
	e := h.examination()
	defer func() {
		t.mu.Lock()
		t.running, t.last = false, trial{newFindings(e.Findings), time.Now(), user}
		t.mu.Unlock()
		h.tabs.topicChanged(doctorTopic)
	}()
	e.Try(ctx)
	return nil
}

// latest returns the findings of the last trial.
func (t *trials) latest() trial {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}
