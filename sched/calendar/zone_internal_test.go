package calendar

import (
	"errors"
	"testing"
	"time"
)

// A machine without any of the zones that each database has is one without a database.
func TestHasZones(t *testing.T) {
	none := func(string) (*time.Location, error) { return nil, errors.New("unknown") }
	old := func(name string) (*time.Location, error) {
		if name == "Asia/Tokyo" {
			return time.UTC, nil
		}
		return none(name)
	}
	if hasZones(none) || !hasZones(old) {
		t.Errorf("none: %v, old: %v", hasZones(none), hasZones(old))
	}
}
