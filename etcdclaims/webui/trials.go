package webui

import (
	"context"
	"errors"
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
	// memberTimeout is how long a member may take to answer.
	memberTimeout = time.Second
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
