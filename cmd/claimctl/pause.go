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

func (l *pauseLength) check() error {
	if err := pausing.For(l.d).Check(); l.isSet() && err != nil {
		return fmt.Errorf("pause --%w", err)
	}
	return nil
}

// end is when a pause ends that begins now, with the text for people. Both are empty for one that lasts until
// resume.
func (l *pauseLength) end() (at time.Time, text string) {
	if !l.isSet() {
		return at, ""
	}
	at = time.Now().Add(l.d).UTC()
	return at, " until " + explain.Stamp(at)
}
