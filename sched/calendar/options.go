package calendar

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
)

// CronOption is an option of [Cron]: [In], a [GapPolicy] or a [FoldPolicy].
type CronOption interface{ apply(*wallClock) error }

// A wallClock is the clock that a cron schedule follows, with the policies for its
// changes.
type wallClock struct {
	zone *time.Location
	gap  GapPolicy
	fold FoldPolicy
}

type cronOption func(*wallClock) error

func (f cronOption) apply(c *wallClock) error { return f(c) }

// In sets the time zone whose wall clock the schedule follows, by its name in the
// tz database, such as "America/New_York". The default is "UTC".
//
// Cron returns an error if this machine does not know the zone. If it has no tz database, as
// in a scratch container, the error names the import of time/tzdata. Cron also refuses
// "Local" and the other names for the zone to which a machine is set, because
// processes on different machines would disagree.
func In(zone string) CronOption {
	return cronOption(func(c *wallClock) error {
		loc, err := LoadZone(zone)
		if err != nil {
			return fmt.Errorf("calendar: In(%.100q): %w", zone, err)
		}
		c.zone = loc
		return nil
	})
}

// LoadZone returns the time zone with a name in the tz database, such as "Europe/Berlin". It
// returns an error for an unknown name, and for the names that [In] refuses.
func LoadZone(name string) (*time.Location, error) {
	switch strings.ToLower(path.Base(name)) {
	case ".":
		return nil, errors.New("the zone is empty; want a name such as UTC or Europe/Berlin")
	case "local", "localtime", "posixrules":
		return nil, errors.New("this zone depends on the machine, and replicas would disagree; want a name such as UTC or Europe/Berlin")
	}
	loc, err := time.LoadLocation(name)
	if err != nil && !hasZones(time.LoadLocation) {
		err = fmt.Errorf("%w: this machine has no tz database; install one, or import _ \"time/tzdata\"", err)
	}
	return loc, err
}

// hasZones reports whether there is a tz database. Every one has these zones.
func hasZones(load func(name string) (*time.Location, error)) bool {
	for _, name := range []string{"Europe/London", "America/New_York", "Asia/Tokyo"} {
		if _, err := load(name); err == nil {
			return true
		}
	}
	return false
}

// GapPolicy decides about the times that a clock skips when it is put forward. It
// applies to schedules that name times; see the package documentation.
type GapPolicy int

// The policies for gaps.
const (
	// GapFire is due once, at the first instant after the gap. It is the default.
	GapFire GapPolicy = iota
	// GapSkip is not due.
	GapSkip
)

var gapNames = []string{GapFire: "fire", GapSkip: "skip"}

// String returns the policy as it is written after GAP=: "fire" or "skip".
func (p GapPolicy) String() string { return policyName(gapNames, p) }

func (p GapPolicy) apply(c *wallClock) error {
	if int(p) < 0 || int(p) >= len(gapNames) {
		return fmt.Errorf("calendar: GapPolicy(%d) is not a policy", int(p))
	}
	c.gap = p
	return nil
}

// FoldPolicy decides about the times that a clock shows twice when it is put back.
// It applies to schedules that name times; see the package documentation.
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

// String returns the policy as it is written after FOLD=: "first", "last" or "both".
func (p FoldPolicy) String() string { return policyName(foldNames, p) }

func (p FoldPolicy) apply(c *wallClock) error {
	if int(p) < 0 || int(p) >= len(foldNames) {
		return fmt.Errorf("calendar: FoldPolicy(%d) is not a policy", int(p))
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
