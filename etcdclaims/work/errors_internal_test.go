package work

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// The outcome of work as an error: its text, what it matches, and when the work may be begun.
func TestError(t *testing.T) {
	t.Parallel()
	boom := errors.New("etcdclaims: boom\nand more")
	record := func(s State) Record {
		return Record{Key: "k", State: s, Owner: "api-7", Attempt: 2, Error: "a\nb", NotBefore: noon}
	}
	for _, tt := range []struct {
		err   *Error
		text  string
		is    error
		later bool
	}{
		{&Error{Record: record(StateDone)}, `begin work "k": done by api-7 in attempt 2`, ErrDone, false},
		{&Error{Record: record(StateDead)}, `begin work "k": dead after attempt 2: a; b`, ErrDead, false},
		{&Error{Record: record(StateFailed)}, `begin work "k": waiting until 2026-01-02T12:00:00Z after attempt 2: a; b`, ErrBackoff, true},
		{&Error{Record: record(StateDead), Err: boom}, `run work "k": dead after attempt 2: boom; and more`, ErrDead, false},
		{&Error{Record: record(StateFailed), Err: boom}, `run work "k": waiting until 2026-01-02T12:00:00Z after attempt 2: boom; and more`, ErrBackoff, true},
	} {
		if got := tt.err.Error(); got != tt.text {
			t.Errorf("got %s, want %s", got, tt.text)
		}
		for _, other := range []error{ErrDone, ErrDead, ErrBackoff, ErrNoRecord} {
			if errors.Is(tt.err, other) != (other == tt.is) { //nolint:errorlint // sentinels themselves
				t.Errorf("%v, %v: %v", tt.err, other, errors.Is(tt.err, other))
			}
		}
		if errors.Is(tt.err, boom) != (tt.err.Err != nil) {
			t.Errorf("%v matches its cause: %v", tt.err, errors.Is(tt.err, boom))
		}
		if at, ok := tt.err.RetryAt(); ok != tt.later || ok && !at.Equal(noon) {
			t.Errorf("%v: %v, %v", tt.err, at, ok)
		}
	}
}

// Work that is ended again has the error of what it became, unless it was given back.
func TestEndedError(t *testing.T) {
	t.Parallel()
	for state, tt := range map[State]struct {
		text string
		is   error
	}{
		StateDone: {"completed already, in attempt 2", ErrDone}, StateDead: {"failed already, in attempt 2: a; b", ErrDead},
		StateFailed: {"failed already, in attempt 2: a; b", ErrBackoff}, StateFree: {"given back already", nil},
	} {
		err := fmt.Errorf("end work: %w", &endedError{Record{State: state, Attempt: 2, Error: "a\nb", NotBefore: time.Now()}})
		if err.Error() != "end work: "+tt.text || !errors.Is(err, etcdclaims.ErrReleased) || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: %v", state, err)
		}
		var outcome *Error
		if errors.As(err, &outcome) != (tt.is != nil) {
			t.Errorf("%s: %v", state, outcome)
		}
	}
}
