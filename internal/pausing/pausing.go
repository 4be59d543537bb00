// Package pausing has how long a pause of a job or of a queue lasts, and its text. It has no I/O, and reads no clock.
package pausing

import (
	"fmt"
	"time"
)

// Most is the longest time after which a pause can end by itself. One that is longer is more likely a
// mistake of its unit than meant.
const Most = 366 * 24 * time.Hour

// Length is how long a pause lasts. The zero Length is that of a pause without an end.
type Length struct {
	d   time.Duration
	set bool
}

// For returns the length of a pause that ends by itself.
func For(d time.Duration) Length { return Length{d, true} }

// Check returns an error if no pause can have the length.
func (l Length) Check() error {
	if l.set && (l.d <= 0 || l.d > Most) {
		return fmt.Errorf("for %v: want more than 0s and at most %v", l.d, Most)
	}
	return nil
}

// End returns when a pause ends that begins now. It is zero for a pause without an end.
func (l Length) End(now time.Time) (time.Time, error) {
	if err := l.Check(); err != nil || !l.set {
		return time.Time{}, err
	}
	end := now.UTC().Add(l.d)
	if end.Year() > 9999 { // the last year that a JSON time can have
		return time.Time{}, fmt.Errorf("for %v from %v on: it would end after the year 9999", l.d, now)
	}
	return end, nil
}

// String returns the length as the record of the call has it. It is empty for a pause without an end.
func (l Length) String() string {
	if !l.set {
		return ""
	}
	return "for " + l.d.String()
}

// Text is who paused something, when, until when if the pause ends by itself, and why if a reason was given.
func Text(by string, at, until time.Time, why string) string {
	text := fmt.Sprintf("by %s since %s", by, at.UTC().Format(time.RFC3339))
	if !until.IsZero() {
		text += " until " + until.UTC().Format(time.RFC3339)
	}
	if why != "" {
		text += ": " + why
	}
	return text
}

// Over reports whether a pause with the end, which may be zero, has ended by itself.
func Over(end, now time.Time) bool { return !end.IsZero() && !now.Before(end) }
