package sched

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
)

// CronOption shapes a schedule made by Cron: [In], a [GapPolicy] or a
// [FoldPolicy].
type CronOption interface{ apply(*wallClock) error }

// A wallClock is what a cron schedule reads, and what it does where that is
// changed.
type wallClock struct {
	zone *time.Location
	gap  GapPolicy
	fold FoldPolicy
}

type cronOption func(*wallClock) error

func (f cronOption) apply(c *wallClock) error { return f(c) }

// In sets the time zone whose wall clock the schedule follows, by its name in
// the tz database: "America/New_York". Default: "UTC".
//
// Cron returns an error if this machine does not know the zone, and if it is
// Local or another name for whatever the machine is set to: replicas would
// disagree.
func In(zone string) CronOption {
	return cronOption(func(c *wallClock) error {
		loc, err := loadZone(zone)
		if err != nil {
			return fmt.Errorf("sched: In(%.100q): %w", zone, err)
		}
		c.zone = loc
		return nil
	})
}

func loadZone(name string) (*time.Location, error) {
	switch strings.ToLower(path.Base(name)) {
	case ".":
		return nil, errors.New("the name is empty; want one such as UTC or Europe/Berlin")
	case "local", "localtime", "posixrules":
		return nil, errors.New("that is what each machine is set to, and replicas would disagree; want a name such as UTC or Europe/Berlin")
	}
	return time.LoadLocation(name)
}

// GapPolicy says what happens to a time that a change of clocks leaves out. It
// matters to schedules that name hours; see the package's documentation.
type GapPolicy int

// The policies for gaps.
const (
	// GapFire is due once, at the first instant after the gap. It is the
	// default.
	GapFire GapPolicy = iota
	// GapSkip is not due.
	GapSkip
)

var gapNames = []string{GapFire: "fire", GapSkip: "skip"}

// String returns what stands after GAP= in an expression.
func (p GapPolicy) String() string { return policyName(gapNames, p) }

func (p GapPolicy) apply(c *wallClock) error {
	if int(p) < 0 || int(p) >= len(gapNames) {
		return fmt.Errorf("sched: GapPolicy(%d) is not a policy", int(p))
	}
	c.gap = p
	return nil
}

// FoldPolicy says what happens to a time that a change of clocks shows twice.
// It matters to schedules that name hours; see the package's documentation.
type FoldPolicy int

// The policies for folds.
const (
	// FoldFirst is due the first time. It is the default.
	FoldFirst FoldPolicy = iota
	// FoldLast is due the last time.
	FoldLast
	// FoldBoth is due both times.
	FoldBoth
)

var foldNames = []string{FoldFirst: "first", FoldLast: "last", FoldBoth: "both"}

// String returns what stands after FOLD= in an expression.
func (p FoldPolicy) String() string { return policyName(foldNames, p) }

func (p FoldPolicy) apply(c *wallClock) error {
	if int(p) < 0 || int(p) >= len(foldNames) {
		return fmt.Errorf("sched: FoldPolicy(%d) is not a policy", int(p))
	}
	c.fold = p
	return nil
}

func policyName[P ~int](names []string, p P) string {
	if int(p) < 0 || int(p) >= len(names) {
		return fmt.Sprintf("unknown(%d)", int(p))
	}
	return names[p]
}
