package sched

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/etcdclaims/claims/sched/calendar"
)

// Validate returns an error if the definition is invalid. It does no I/O. Define calls it.
// It does not parse the iCalendar texts of Except and Only: ParseSchedule and Define do.
func (d Definition) Validate() error { return d.validate(unparsed) }

func (d Definition) validate(ical func(text, zone string) (calendar.Calendar, error)) error {
	err := d.checkTexts()
	if err == nil {
		_, err = d.job(func(context.Context, Tick, json.RawMessage) error { return nil }, ical)
	}
	if err == nil {
		err = d.checkSize()
	}
	if err != nil {
		return fmt.Errorf("sched: definition of job %.80q: %w", d.Name, err)
	}
	return nil
}

// checkTexts returns an error if a text is too long or cannot be stored as it is. Stored
// values are not checked: JSON escapes some characters, which makes them longer.
func (d Definition) checkTexts() error {
	switch {
	case len(d.Schedule) > mostScheduleBytes:
		return fmt.Errorf("the Schedule has %d bytes; the limit is %d", len(d.Schedule), mostScheduleBytes)
	case len(d.Revision) > mostRevisionBytes:
		return fmt.Errorf("the Revision has %d bytes; the limit is %d", len(d.Revision), mostRevisionBytes)
	case !utf8.ValidString(d.Revision):
		return errors.New("the Revision is not valid UTF-8")
	}
	if err := checkPayload(d.Payload); err != nil {
		return err
	}
	if err := d.Except.check(); err != nil {
		return fmt.Errorf("the Except %w", err)
	}
	if err := d.Only.check(); err != nil {
		return fmt.Errorf("the Only %w", err)
	}
	return nil
}

// checkPayload returns an error if a payload is too long or no JSON. It can be empty.
func checkPayload(payload json.RawMessage) error {
	switch {
	case len(payload) > mostPayloadBytes:
		return fmt.Errorf("the Payload has %d bytes; the limit is %d", len(payload), mostPayloadBytes)
	case len(payload) > 0 && !(json.Valid(payload) && utf8.Valid(payload)):
		return errors.New("the Payload is not valid JSON in UTF-8")
	}
	return nil
}

// checkSize returns an error if the definition is too large for etcd. Characters that JSON
// escapes take up to six bytes.
func (d Definition) checkSize() error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if len(text) > mostStoredBytes {
		return fmt.Errorf("the definition takes %d bytes as JSON; the limit is %d", len(text), mostStoredBytes)
	}
	return nil
}
