package sched

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Config says how a Scheduler works. The zero value is a good one.
type Config struct {
	// Group names what shares an owner, who admits the ticks of all its jobs:
	// processes that run the same jobs have the same group, those of another
	// service another. UTF-8 of 1 to 200 bytes without control characters or
	// slashes. Default: "default".
	Group string
	// Spread lets every process of the group run the ticks that the owner admits,
	// each by one of them, so that one process is not the bottleneck. A job must
	// then be added in all. It costs a few milliseconds more until a run begins.
	// Default: the owner runs them.
	Spread bool
	// Limit is how many runs may go on at once in this process. Ticks beyond wait
	// in etcd, where another process may take them if Spread is on. Default: no
	// limit.
	Limit int
	// Grace is how late a tick may be admitted, after the time at which it was to
	// start, before the CatchUp policy Skip takes it for missed: it covers
	// what admitting takes while etcd has a leader. Default: 1 s.
	Grace time.Duration
	// Now is the wall clock, which says what is due. Nothing that keeps two
	// processes apart depends on it. It may be wrong and may be stepped, but goes
	// at the speed of time: one that does not is taken for one that is stepped
	// again and again, and ticks come late. Default: time.Now.
	Now func() time.Time
	// Logger is told of what goes wrong and comes right again, and of ticks that
	// do not run. Default: none.
	Logger *zap.Logger
	// Hooks are told what happens in this process.
	Hooks Hooks
}

// Hooks are called when something happens in this process, if they are set. They
// are called from the goroutine that it happens on and must not block: those of
// the owner hold up all ticks.
type Hooks struct {
	// Elected: this process is now the owner of the group, with a fence.
	Elected func(fence int64)
	// Deposed: it is not any more. The error is nil if it gave up the ownership.
	Deposed func(fence int64, err error)
	// Began: a handler is about to be called.
	Began func(Tick)
	// Finished: a run that began here has ended. The outcome may be
	// OutcomeAbandoned.
	Finished func(Entry)
	// Left: a tick was not run, or its run was lost, as the owner recorded.
	Left func(Entry)
	// ClockJumped: the wall clock and the monotonic clock disagree by so much on
	// the time since they were looked at last, as they do when the wall clock is
	// stepped, or the machine slept. Nothing is admitted until the ownership was
	// verified.
	ClockJumped func(by time.Duration)
}

func (cfg Config) withDefaults() (Config, error) {
	if cfg.Group == "" {
		cfg.Group = "default"
	}
	if cfg.Grace == 0 {
		cfg.Grace = time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	err := checkName(cfg.Group)
	if err == nil && strings.Contains(cfg.Group, "/") {
		err = errors.New("has a slash")
	}
	switch {
	case err != nil:
		return cfg, fmt.Errorf("sched: config: Group %.80q %w", cfg.Group, err)
	case cfg.Limit < 0:
		return cfg, fmt.Errorf("sched: config: Limit %d must not be negative", cfg.Limit)
	case cfg.Grace < 0:
		return cfg, fmt.Errorf("sched: config: Grace %v must not be negative", cfg.Grace)
	}
	return cfg, nil
}
