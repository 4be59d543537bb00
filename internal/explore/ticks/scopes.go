package ticks

import (
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/internal/tick"
)

// Scopes returns all scopes. Those that are quick are searched by go test.
func Scopes() []Scope {
	return []Scope{
		{Name: "skip: one fault", Quick: true, Overlap: tick.Skip, Ticks: 2, Faults: 1},
		{Name: "skip: one end", Overlap: tick.Skip, Ticks: 2, Ends: 1},
		{Name: "skip: one pause", Quick: true, Overlap: tick.Skip, Ticks: 2, Pauses: 1},
		{Name: "skip: ownership taken away", Quick: true, Overlap: tick.Skip, Ticks: 2, Forced: 1},
		{Name: "skip: one deletion", Quick: true, Overlap: tick.Skip, Ticks: 2, Deleted: 1},
		{Name: "skip: one end, deaf owner", Overlap: tick.Skip, Ticks: 2, Ends: 1, Deaf: true},
		{Name: "skip: three ticks, one fault", Overlap: tick.Skip, Ticks: 3, Faults: 1},
		{Name: "skip: three ticks, one end", Overlap: tick.Skip, Ticks: 3, Ends: 1},
		{Name: "skip, again: one fault, one end", Overlap: tick.Skip, Ticks: 2, Faults: 1, Ends: 1, Again: true},
		{Name: "skip, again: two ends", Overlap: tick.Skip, Ticks: 2, Ends: 2, Again: true},
		{Name: "buffer: one fault, one pause", Overlap: tick.BufferAll, Ticks: 2, Faults: 1, Pauses: 1},
		{Name: "buffer: one fault, one deletion", Overlap: tick.BufferAll, Ticks: 2, Faults: 1, Deleted: 1},
		{Name: "buffer, spread: one fault", Overlap: tick.BufferAll, Ticks: 2, Faults: 1, Spread: true},
		{Name: "buffer, spread, again: one end", Overlap: tick.BufferAll, Ticks: 2, Ends: 1, Spread: true, Again: true},
		{Name: "cancel, again: one end", Overlap: tick.CancelRunning, Ticks: 2, Ends: 1, Again: true},
		{Name: "allow, spread: one fault", Overlap: tick.Allow, Ticks: 2, Faults: 1, Spread: true},
		{Name: "allow, spread, limit", Quick: true, Overlap: tick.Allow, Ticks: 2, Limit: 1, Spread: true},
		{Name: "allow, spread, limit: one fault", Overlap: tick.Allow, Ticks: 2, Limit: 1, Faults: 1, Spread: true},
		{Name: "allow, spread, limit: one end", Overlap: tick.Allow, Ticks: 2, Limit: 1, Ends: 1, Spread: true},
		{Name: "allow, spread, limit, again: one end", Overlap: tick.Allow, Ticks: 2, Limit: 1, Ends: 1, Spread: true, Again: true},
		{Name: "once: one tick, one fault, one end", Ticks: 1, Faults: 1, Ends: 1},
		{Name: "again: one tick, one fault, one end", Ticks: 1, Faults: 1, Ends: 1, Again: true},
		{Name: "again: one tick, two ends", Ticks: 1, Ends: 2, Again: true},
		{Name: "again, spread: one tick, two faults", Ticks: 1, Faults: 2, Again: true, Spread: true},
		{Name: "skip: one failure", Quick: true, Overlap: tick.Skip, Ticks: 2, Fails: 1},
		{Name: "skip: one failure, one fault", Overlap: tick.Skip, Ticks: 2, Fails: 1, Faults: 1},
		{Name: "buffer, spread: one failure", Overlap: tick.BufferAll, Ticks: 2, Fails: 1, Spread: true},
		{Name: "cancel: one failure", Overlap: tick.CancelRunning, Ticks: 2, Fails: 1},
		{Name: "once: one tick, two failures, one fault", Ticks: 1, Fails: 2, Faults: 1},
		{Name: "once: one tick, one failure, ownership taken away", Ticks: 1, Fails: 1, Forced: 1},
		{Name: "again: one tick, one failure, one end", Ticks: 1, Fails: 1, Ends: 1, Again: true},
		{Name: "allow, spread: one tick, one end", Overlap: tick.Allow, Ticks: 1, Ends: 1, Spread: true},
	}
}

// Describe names the faults of a scope.
func (s *Scope) Describe() string {
	var all []string
	for _, f := range []struct {
		n    int
		what string
	}{
		{s.Faults, "request lost, late or twice, or reply lost"},
		{s.Ends, "process or lease ended"},
		{s.Pauses, "job paused"},
		{s.Deleted, "mark deleted by hand"},
		{s.Forced, "ownership taken away"},
		{s.Fails, "handler failed"},
	} {
		if f.n > 0 {
			all = append(all, fmt.Sprintf("%d of: %s", f.n, f.what))
		}
	}
	return strings.Join(all, "; ")
}
