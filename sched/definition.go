package sched

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
)

// Definition is a job as data: it is stored in etcd by [Scheduler.Define] and run by the
// function that the processes of the group have registered for its kind, by
// [Scheduler.Handle]. Name, Kind, and one of Schedule, After and AfterAll are required. The other
// fields from Tags on have the meaning, the limits and the defaults of those of [Job].
//
// A Definition is encoded as JSON with the names of its fields in lower camel case.
// Durations are texts such as "1h30m", and policies are names: catchUp is "skip-missed", "latest"
// or "all", with catchUpMax and catchUpWindow; overlap is "skip", "buffer-one",
// "buffer-all", with bufferMax, "cancel-running" or "allow"; guarantee is "at-most-once" or
// "at-least-once". The fields except and only have the fields of [CalendarData]. Fields with
// other names are an error.
type Definition struct {
	// Name identifies the job in its group, among the jobs in code too. It has the form of
	// Job.Name.
	Name string
	// Schedule is a text that [calendar.Cron] parses, such as "TZ=Europe/Berlin 30 2 * * *",
	// "@every 10m" or, for one run, "@at 2027-01-01T09:00:00Z". It has at most 1,000 bytes. It
	// is empty if After is set. Instants before the job is defined are not due. If the
	// schedule ends before an owner takes the definition up, Job.CatchUp decides about the
	// instants since the job was defined. A job whose schedule has ended remains, with
	// JobInfo.Ended, until Undefine.
	Schedule string
	// After is the name of another job of the group, which is defined or in code. The job
	// runs after each success of that one, with the same nominal time; see [After]. The other
	// job need not exist yet: until it does, JobInfo.Problem reports that.
	//
	// An end requests a tick if the process that records it knows the definition,
	// usually within milliseconds of Define. A process with an older version of this
	// package, which does not know Definition.After, requests no ticks. Define
	// refuses a circle of jobs, more than 32 jobs after one, and more than 16 before one.
	After string
	// AfterAll names several jobs instead: the job runs when each of them has ended for one
	// nominal time.
	AfterAll []string
	// AfterOn is "failure" for a job that runs as [AfterFailure], "end" for one that runs as
	// [AfterEnd], and empty for one that runs after success.
	AfterOn string
	// Except covers the instants of Schedule that are left out, and Only the instants
	// that are kept; see the functions [calendar.Except] and [calendar.Only]. With both, an instant is due
	// if Only covers it and Except does not. Nil means no calendar. Both are nil if After
	// is set.
	Except, Only *CalendarData
	// Start, End and Runs limit the schedule, after Except and Only; see [calendar.Bounds]. They
	// are zero if After is set.
	Start, End time.Time
	Runs       int
	// Kind names the function that runs the job. It is UTF-8 of 1 to 200 bytes, without
	// control characters.
	Kind string
	// Payload is passed to that function: JSON of at most 16 KiB, or nothing. That of a RunNow
	// or Backfill replaces it.
	Payload json.RawMessage

	Tags           []string
	Limits         map[string]int
	Priority       int
	RunsOn         []string
	Revision       string // UTF-8 of at most 200 bytes
	CatchUp        CatchUp
	Overlap        Overlap
	Guarantee      Guarantee
	MaxStarts      int
	Retry          Retry // without On
	StartDeadline  time.Duration
	Overdue        time.Duration
	Jitter         time.Duration
	Timeout        time.Duration
	RunOnStart     bool
	PauseOnFailure int
	History        int
	HistoryFor     time.Duration

	// Version is the etcd revision at which this definition was stored. Each Define
	// that changes something gives the definition a greater version. As an argument of
	// Define it is the version to replace: zero if the job must not be defined yet, or
	// [AnyVersion].
	Version int64
	By      string    // the Config.Owner of the client that stored it; ignored by Define
	At      time.Time // when it was stored, by the clock of that process; ignored by Define
}

// AnyVersion lets Define and Undefine replace a definition whatever its version is.
const AnyVersion int64 = -1

const (
	mostScheduleBytes = 1000
	mostPayloadBytes  = 16 << 10
	mostRevisionBytes = 200
	mostStoredBytes   = 256 << 10
)

// job returns the job that runs the definition with the handler.
func (d Definition) job(handler kindHandler, ical func(text, zone string) (calendar.Calendar, error)) (Job, error) {
	if err := checkName(d.Kind); err != nil {
		return Job{}, fmt.Errorf("the Kind %w", err)
	}
	if d.Retry.On != nil {
		return Job{}, errors.New("the function Retry.On cannot be stored")
	}
	schedule, err := d.schedule(ical)
	if err != nil {
		return Job{}, err
	}
	payload := d.Payload
	return Job{
		Name:           d.Name,
		Schedule:       schedule,
		Tags:           d.Tags,
		Limits:         d.Limits,
		Priority:       d.Priority,
		RunsOn:         d.RunsOn,
		Revision:       d.Revision,
		CatchUp:        d.CatchUp,
		Overlap:        d.Overlap,
		Guarantee:      d.Guarantee,
		MaxStarts:      d.MaxStarts,
		Retry:          d.Retry,
		StartDeadline:  d.StartDeadline,
		Overdue:        d.Overdue,
		Jitter:         d.Jitter,
		Timeout:        d.Timeout,
		RunOnStart:     d.RunOnStart,
		PauseOnFailure: d.PauseOnFailure,
		History:        d.History,
		HistoryFor:     d.HistoryFor,
		Handler: func(ctx context.Context, t Tick) error {
			if t.Payload != nil { // of a request
				return handler(ctx, t, bytes.Clone(t.Payload))
			}
			return handler(ctx, t, bytes.Clone(payload))
		},
		kind:      d.Kind,
		defined:   d.Version,
		definedAt: d.At,
	}.withDefaults()
}

// The versions of the values of definitions: with After, Except, Only or bounds, and with Limits or
// RunsOn. Programs that do not know these fields refuse such values. The others have valueVersion, so
// that those programs run them.
const (
	scheduledVersion  = 2
	definitionVersion = 3
)

// storedVersion returns the version of the value in etcd.
func (v definitionValue) storedVersion() int {
	if len(v.Limits)+len(v.RunsOn) > 0 {
		return definitionVersion
	}
	if v.Following.Jobs() != nil || v.Except != nil || v.Only != nil || !v.Start.IsZero() || !v.End.IsZero() || v.Runs != 0 {
		return scheduledVersion
	}
	return valueVersion
}

// definitionValue is the value of def/, and with v zero the JSON of a Definition.
type definitionValue struct {
	V        int    `json:"v,omitempty"`
	Name     string `json:"name"`
	Schedule string `json:"schedule,omitempty"`
	tick.Following
	Except         *CalendarData   `json:"except,omitempty"`
	Only           *CalendarData   `json:"only,omitempty"`
	Start          time.Time       `json:"start,omitzero"`
	End            time.Time       `json:"end,omitzero"`
	Runs           int             `json:"runs,omitempty"`
	Kind           string          `json:"kind"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	Tags           []string        `json:"tags,omitempty"`
	Limits         map[string]int  `json:"limits,omitempty"`
	Priority       int             `json:"priority,omitempty"`
	RunsOn         []string        `json:"runsOn,omitempty"`
	Revision       string          `json:"revision,omitempty"`
	CatchUp        string          `json:"catchUp,omitempty"`
	CatchUpMax     int             `json:"catchUpMax,omitempty"`
	CatchUpWindow  durationText    `json:"catchUpWindow,omitzero"`
	Overlap        string          `json:"overlap,omitempty"`
	BufferMax      int             `json:"bufferMax,omitempty"`
	Guarantee      string          `json:"guarantee,omitempty"`
	MaxStarts      int             `json:"maxStarts,omitempty"`
	RetryMax       int             `json:"retryMax,omitempty"`
	RetryBackoff   durationText    `json:"retryBackoff,omitzero"`
	StartDeadline  durationText    `json:"startDeadline,omitzero"`
	Overdue        durationText    `json:"overdue,omitzero"`
	Jitter         durationText    `json:"jitter,omitzero"`
	Timeout        durationText    `json:"timeout,omitzero"`
	RunOnStart     bool            `json:"runOnStart,omitempty"`
	PauseOnFailure int             `json:"pauseOnFailure,omitempty"`
	History        int             `json:"history,omitempty"`
	HistoryFor     durationText    `json:"historyFor,omitzero"`
	Version        int64           `json:"version,string,omitempty"`
	By             string          `json:"by,omitempty"`
	At             time.Time       `json:"at,omitzero"`
}

// durationText is a duration that JSON has as text.
type durationText time.Duration

func (d durationText) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *durationText) UnmarshalText(text []byte) error {
	is, err := time.ParseDuration(string(text))
	*d = durationText(is)
	return err
}

// value returns the definition in its stored form.
func (d Definition) value() (definitionValue, error) {
	v := definitionValue{
		Name:           d.Name,
		Schedule:       d.Schedule,
		Following:      tick.Following{After: d.After, AfterAll: d.AfterAll, AfterOn: d.AfterOn},
		Except:         d.Except,
		Only:           d.Only,
		Start:          d.Start.UTC(),
		End:            d.End.UTC(),
		Runs:           d.Runs,
		Kind:           d.Kind,
		Payload:        d.Payload,
		Tags:           d.Tags,
		Limits:         d.Limits,
		Priority:       d.Priority,
		RunsOn:         d.RunsOn,
		Revision:       d.Revision,
		MaxStarts:      d.MaxStarts,
		RetryMax:       d.Retry.Max,
		RetryBackoff:   durationText(d.Retry.Backoff),
		StartDeadline:  durationText(d.StartDeadline),
		Overdue:        durationText(d.Overdue),
		Jitter:         durationText(d.Jitter),
		Timeout:        durationText(d.Timeout),
		RunOnStart:     d.RunOnStart,
		PauseOnFailure: d.PauseOnFailure,
		History:        d.History,
		HistoryFor:     durationText(d.HistoryFor),
		Version:        d.Version,
		By:             d.By,
		At:             d.At,
	}
	var catchUp, overlap error
	if d.CatchUp != nil {
		v.CatchUp, catchUp = d.CatchUp.catchUp()
	}
	if all, is := d.CatchUp.(All); is {
		v.CatchUpMax, v.CatchUpWindow = all.Max, durationText(all.Window)
	}
	if d.Overlap != nil {
		v.Overlap, overlap = d.Overlap.overlap()
	}
	if buffer, is := d.Overlap.(BufferAll); is {
		v.BufferMax = buffer.Max
	}
	if d.Guarantee != AtMostOnce {
		v.Guarantee = d.Guarantee.String()
	}
	return v, cmp.Or(catchUp, overlap)
}

// definition is the inverse of value.
func (v definitionValue) definition() (Definition, error) {
	d := Definition{
		Name:           v.Name,
		Schedule:       v.Schedule,
		After:          v.After,
		AfterAll:       v.AfterAll,
		AfterOn:        v.AfterOn,
		Except:         v.Except,
		Only:           v.Only,
		Start:          v.Start,
		End:            v.End,
		Runs:           v.Runs,
		Kind:           v.Kind,
		Payload:        unescaped(v.Payload),
		Tags:           v.Tags,
		Limits:         v.Limits,
		Priority:       v.Priority,
		RunsOn:         v.RunsOn,
		Revision:       v.Revision,
		MaxStarts:      v.MaxStarts,
		Retry:          Retry{Max: v.RetryMax, Backoff: time.Duration(v.RetryBackoff)},
		StartDeadline:  time.Duration(v.StartDeadline),
		Overdue:        time.Duration(v.Overdue),
		Jitter:         time.Duration(v.Jitter),
		Timeout:        time.Duration(v.Timeout),
		RunOnStart:     v.RunOnStart,
		PauseOnFailure: v.PauseOnFailure,
		History:        v.History,
		HistoryFor:     time.Duration(v.HistoryFor),
		Version:        v.Version,
		By:             v.By,
		At:             v.At,
	}
	var known bool
	if d.CatchUp, known = catchUps(v)[v.CatchUp]; !known {
		return d, fmt.Errorf("catchUp %.80q is unknown; want skip-missed, latest or all", v.CatchUp)
	}
	if d.Overlap, known = overlaps(v)[v.Overlap]; !known {
		return d, fmt.Errorf("overlap %.80q is unknown; want skip, buffer-one, buffer-all, cancel-running or allow", v.Overlap)
	}
	at := slices.Index(guaranteeNames, cmp.Or(v.Guarantee, AtMostOnce.String()))
	if at < 0 {
		return d, fmt.Errorf("guarantee %.80q is unknown; want %s or %s", v.Guarantee, AtMostOnce, AtLeastOnce)
	}
	d.Guarantee = Guarantee(at)
	if _, all := d.CatchUp.(All); !all && (v.CatchUpMax != 0 || v.CatchUpWindow != 0) {
		return d, errors.New("catchUpMax and catchUpWindow need catchUp all")
	}
	if _, buffer := d.Overlap.(BufferAll); !buffer && v.BufferMax != 0 {
		return d, errors.New("bufferMax needs overlap buffer-all")
	}
	return d, nil
}

// catchUps and overlaps have the policies by their names.
func catchUps(v definitionValue) map[string]CatchUp {
	return map[string]CatchUp{
		"":            nil,
		"skip-missed": SkipMissed{},
		"latest":      Latest{},
		"all":         All{Max: v.CatchUpMax, Window: time.Duration(v.CatchUpWindow)},
	}
}

func overlaps(v definitionValue) map[string]Overlap {
	return map[string]Overlap{
		"":               nil,
		"skip":           Skip{},
		"buffer-one":     BufferOne{},
		"buffer-all":     BufferAll{Max: v.BufferMax},
		"cancel-running": CancelRunning{},
		"allow":          Allow{},
	}
}

// MarshalJSON returns the definition as JSON. See [Definition] for its form.
func (d Definition) MarshalJSON() ([]byte, error) {
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// UnmarshalJSON parses the JSON of a definition. It refuses unknown fields and policies.
// The values are checked by Validate and Define.
func (d *Definition) UnmarshalJSON(text []byte) error {
	var v definitionValue
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&v); err != nil {
		return err
	}
	is, err := v.definition()
	if err != nil {
		return fmt.Errorf("job %.80q: %w", v.Name, err)
	}
	*d = is
	return nil
}

// escaped are the characters that package json escapes inside the JSON that it is given.
var escaped = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\u2028`, "\u2028", `\u2029`, "\u2029")

// unescaped returns a payload without these escapes, as Define took it: with them it can
// exceed the limit.
func unescaped(payload json.RawMessage) json.RawMessage {
	if payload == nil {
		return nil
	}
	return json.RawMessage(escaped.Replace(string(payload)))
}
