package main

import (
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/pausing"
	"github.com/spf13/pflag"
)

// pauseLength is the flag --for of a command that pauses.
type pauseLength struct {
	flags *pflag.FlagSet
	d     time.Duration
}

func (l *pauseLength) flag(flags *pflag.FlagSet) {
	l.flags = flags
	flags.DurationVar(&l.d, "for", 0, "how long: the pause ends by itself (default until resume)")
}

func (l *pauseLength) isSet() bool { return l.flags.Changed("for") }

// wrong is why no pause can have the length, or empty.
func (l *pauseLength) wrong() string {
	if !l.isSet() || pausing.For(l.d).Check() == nil {
		return ""
	}
	return fmt.Sprintf("pause --for %v: want more than 0s and at most %v", l.d, pausing.Most)
}

// untilText is the end of a pause, for people. It is empty if the pause lasts until resume.
func untilText(end time.Time) string {
	if end.IsZero() {
		return ""
	}
	return " until " + explain.Stamp(end)
}
