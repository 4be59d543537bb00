package sched_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/etcdclaims/claims/sched/ical"
)

const freeze = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\nSUMMARY:change freeze\r\n" +
	"DTSTART:20000101T000200\r\nDTEND:20000101T000400\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"

// A calendar has the zone of the schedule, or its own.
func TestDefineCalendar(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.start(0)
		azores := "TZ=Atlantic/Azores */20 * * * *" // an hour behind UTC
		for name, change := range map[string]func(*sched.Definition){
			"except": func(d *sched.Definition) { d.Except = &sched.CalendarData{Dates: []string{"12-25..12-31"}} },
			"only":   func(d *sched.Definition) { d.Only = &sched.CalendarData{Dates: []string{"2000-01-01", "2000-02-01"}} },
			"both": func(d *sched.Definition) {
				d.Only = &sched.CalendarData{Dates: []string{"1999-12-30..2000-01-01"}}
				d.Except = &sched.CalendarData{Dates: []string{"1999-12-31"}}
			},
			"zone": func(d *sched.Definition) {
				d.Except = &sched.CalendarData{Dates: []string{"2000-01-01"}, Zone: "Etc/GMT+2"}
			},
		} {
			d := report(name)
			d.Schedule = azores
			change(&d)
			f.define(d)
		}
		f.until("00:00:05")
		i := f.inspect("except")
		if want := "TZ=Atlantic/Azores GAP=fire FOLD=first 0 */20 * * * * EXCEPT dates(Atlantic/Azores: 12-25,12-26,12-27,12-28,12-29,12-30,12-31)"; i.Schedule != want || i.Problem != "" {
			t.Errorf("%+v, want %s", i, want)
		}
		if !i.Next.Equal(clock("01:00:00")) || len(i.Upcoming(3)) != 3 {
			t.Errorf("next %v, %v", i.Next, i.Upcoming(3))
		}
		x, err := f.console().Explain(t.Context(), "except", clock("00:20:00"))
		if noErr(t, err); !strings.HasPrefix(x, "not due: ") || !strings.Contains(x, "leaves this instant out; the next one is at 2000-01-01T01:00:00Z") {
			t.Errorf("%v", x)
		}
		if x, err = f.console().Explain(t.Context(), "except", clock("00:21:00")); err != nil || !strings.Contains(x, "has no tick at this instant") {
			t.Errorf("%v, %v", x, err)
		}
		f.until("01:30:00")
		for _, name := range []string{"except", "only", "both"} {
			f.ledger.want(t, name, "01:00:00", "01:20:00")
		}
		f.ledger.want(t, "zone", "00:20:00", "00:40:00", "01:00:00", "01:20:00")
	})
}

// A calendar with other days is another schedule, whose ticks begin now. The same days in
// other words are not.
func TestDefineCalendarChanges(t *testing.T) {
	dates := func(dates ...string) *sched.CalendarData { return &sched.CalendarData{Dates: dates} }
	summary := strings.Replace(freeze, "change freeze", "the freeze", 1)
	other := strings.Replace(freeze, "T000400", "T000430", 1)
	caughtUp, anew := []string{"00:01:00", "00:05:00", "00:06:00"}, []string{"00:01:00", "00:06:00"}
	for name, c := range map[string]struct {
		before, after *sched.CalendarData
		want          []string
	}{
		"order":         {dates("05-01", "05-02"), dates("05-02", "05-01"), caughtUp},
		"range":         {dates("05-01", "05-02"), dates("05-01..05-02"), caughtUp},
		"date":          {dates("05-01", "05-02"), dates("05-01", "05-02", "05-03"), anew},
		"zone":          {dates("05-01"), &sched.CalendarData{Dates: []string{"05-01"}, Zone: "Europe/Berlin"}, anew},
		"removed":       {dates("05-01"), nil, anew},
		"added":         {nil, dates("05-01"), anew},
		"summary":       {&sched.CalendarData{ICal: freeze}, &sched.CalendarData{ICal: summary}, caughtUp},
		"event":         {&sched.CalendarData{ICal: freeze}, &sched.CalendarData{ICal: other}, anew},
		"zone of event": {&sched.CalendarData{ICal: freeze}, &sched.CalendarData{ICal: freeze, Zone: "Europe/London"}, anew},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				f.cfg.ICal = ical.ParseText
				f.reports(0)
				d := report("a")
				d.Except = c.before
				d = f.define(d)
				n := f.start(0)
				f.until("00:01:30")
				n.stop()
				f.until("00:05:30")
				first := d.Version
				d.Except = c.after
				if d = f.define(d); d.Version == first {
					t.Errorf("the version stays %d", first)
				}
				f.start(0)
				f.until("00:06:30")
				f.ledger.want(t, "a", c.want...)
			})
		})
	}
}

// An iCalendar text needs a process that can parse it, to define it and to run it.
func TestDefineICal(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		d := report("a")
		d.Except = &sched.CalendarData{ICal: freeze}
		noErr(t, d.Validate())
		_, err := d.ParseSchedule(nil)
		wantErr(t, err, "set Config.ICal to ical.ParseText")
		sent := f.requests()
		_, err = f.console().Define(t.Context(), d)
		wantErr(t, err, `definition of job "a": the Except: this process cannot parse iCalendar texts; set Config.ICal`)
		f.cfg.ICal = ical.ParseText
		f.operator = nil
		invalid := d
		invalid.Only = &sched.CalendarData{ICal: "BEGIN:VCALENDAR"}
		_, err = f.console().Define(t.Context(), invalid)
		wantErr(t, err, `the Only: ical: `)
		if n := f.requests() - sent; n != 0 {
			t.Errorf("%d requests", n)
		}
		f.define(d)
		f.cfg.ICal = nil
		n := f.start(0)
		f.until("00:01:30")
		if i := f.inspect("a"); !strings.Contains(i.Problem, "the Except: this process cannot parse iCalendar texts") || !strings.Contains(i.Schedule, "EXCEPT ical(UTC: 1 events") {
			t.Errorf("%+v", i)
		}
		n.stop()
		f.cfg.ICal = ical.ParseText
		f.start(0)
		f.until("00:04:30")
		if i := f.inspect("a"); i.Problem != "" || !i.Next.Equal(clock("00:05:00")) {
			t.Errorf("%+v", i)
		}
		f.cfg.ICal, f.operator = nil, nil
		if i := f.inspect("a"); i.Problem != "" || !i.Next.IsZero() || !strings.Contains(i.Schedule, "EXCEPT ical(UTC: 1 events") {
			t.Errorf("%+v of a process that cannot parse it", i)
		}
		stored, err := f.console().Definition(t.Context(), "a")
		if err != nil || stored.Except == nil || stored.Except.ICal != freeze {
			t.Errorf("%+v, %v", stored, err)
		}
		f.until("00:05:30")
		f.ledger.want(t, "a", "00:04:00", "00:05:00")
	})
}

// A text is parsed once for all jobs that have it.
func TestDefineICalOnce(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var parsed atomic.Int32
		f.cfg.ICal = func(text, zone string) (calendar.Calendar, error) {
			parsed.Add(1)
			return ical.ParseText(text, zone)
		}
		f.reports(0)
		for i := range 5 {
			d := report(fmt.Sprint("a", i))
			d.Except = &sched.CalendarData{ICal: freeze}
			f.define(d)
		}
		d := report("b")
		d.Except = &sched.CalendarData{ICal: freeze, Zone: "Europe/Berlin"}
		f.define(d)
		if n := parsed.Swap(0); n != 2 {
			t.Errorf("Define parsed %d times", n)
		}
		f.start(0)
		f.until("00:04:30")
		if n := parsed.Load(); n != 2 {
			t.Errorf("the owner parsed %d times", n)
		}
		for i := range 5 {
			f.ledger.want(t, fmt.Sprint("a", i), "00:01:00", "00:04:00")
		}
		f.ledger.want(t, "b", "00:01:00", "00:02:00", "00:03:00", "00:04:00")
	})
}

// A text that this process cannot parse is parsed once, and not for each reader and each change.
func TestDefineICalThatFailsOnce(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.ICal = ical.ParseText
		f.reports(0)
		d := report("a")
		d.Except = &sched.CalendarData{ICal: freeze}
		f.define(d)
		var parsed atomic.Int32
		f.operator, f.cfg.ICal = nil, func(string, string) (calendar.Calendar, error) {
			parsed.Add(1)
			return nil, errors.New("no such zone")
		}
		n := f.start(0)
		f.until("00:01:30")
		if parsed.Swap(0) != 1 {
			t.Error("the owner did not parse the text once")
		}
		noErr(t, n.handle("another", nothingElse))
		f.until("00:02:30")
		for range 3 {
			if i, err := n.sched.Inspect(t.Context(), "a"); err != nil || !strings.Contains(i.Problem, "no such zone") {
				t.Errorf("%v, %v", i.Problem, err)
			}
		}
		if n := parsed.Load(); n != 0 {
			t.Errorf("parsed %d times more", n)
		}
	})
}

func nothingElse(context.Context, sched.Tick, json.RawMessage) error { return nil }

// Programs from before After, Except and Only refuse such definitions, and run the others.
func TestDefinitionVersions(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		dates := &sched.CalendarData{Dates: []string{"12-25"}}
		f.define(report("plain"))
		f.define(sched.Definition{Name: "after", After: "plain", Kind: "report"})
		f.define(sched.Definition{Name: "except", Schedule: "@daily", Except: dates, Kind: "report"})
		f.define(sched.Definition{Name: "only", Schedule: "@daily", Only: dates, Kind: "report"})
		f.define(sched.Definition{Name: "limits", Schedule: "@daily", Limits: map[string]int{"db": 1}, Kind: "report"})
		f.define(sched.Definition{Name: "runs-on", Schedule: "@daily", RunsOn: []string{"gpu"}, Kind: "report"})
		for _, k := range f.under("/def/") {
			is, err := keyspace.Decode[struct{ Name string }](k.name, []byte(k.value), 1)
			if plain := strings.Contains(k.value, `"name":"plain"`); plain && (err != nil || is.Name != "plain") {
				t.Errorf("%s: %v", k.value, err)
			} else if !plain {
				version := 2
				if strings.Contains(k.value, "limits") || strings.Contains(k.value, "runsOn") {
					version = 3
				}
				wantErr(t, err, fmt.Sprintf("version %d is newer than version 1", version))
			}
		}
		for _, k := range f.under("/now/defined/") {
			_, err := keyspace.Decode[struct{ Job string }](k.name, []byte(k.value), 1)
			noErr(t, err) // so that they report the definition as one that they cannot run
		}
	})
}

// What is invalid is refused before any request.
func TestDefineCalendarRefused(t *testing.T) {
	dates := func(dates ...string) *sched.CalendarData { return &sched.CalendarData{Dates: dates} }
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.ICal = ical.ParseText
		s := f.console()
		sent := f.requests()
		for says, change := range map[string]func(*sched.Definition){
			"the Except has neither Dates nor an ICal text": func(d *sched.Definition) { d.Except = dates() },
			"the Only has neither":                          func(d *sched.Definition) { d.Only = &sched.CalendarData{Zone: "UTC"} },
			"the Only has both Dates and":                   func(d *sched.Definition) { d.Only = &sched.CalendarData{Dates: []string{"12-25"}, ICal: freeze} },
			"1001 dates and ranges; the limit is 1000":      func(d *sched.Definition) { d.Except = dates(make([]string, 1001)...) },
			"ICal text of 65537 bytes; the limit is 65536":  func(d *sched.Definition) { d.Except = &sched.CalendarData{ICal: strings.Repeat("x", 64<<10+1)} },
			"ICal text that is not valid UTF-8":             func(d *sched.Definition) { d.Except = &sched.CalendarData{ICal: freeze + "\xff"} },
			"Zone of 101 bytes": func(d *sched.Definition) {
				d.Except = &sched.CalendarData{Dates: []string{"12-25"}, Zone: strings.Repeat("x", 101)}
			},
			`zone "Local": this zone depends`:                func(d *sched.Definition) { d.Except = &sched.CalendarData{Dates: []string{"12-25"}, Zone: "Local"} },
			`the Except: calendar: Dates: "12-32"`:           func(d *sched.Definition) { d.Except = dates("12-32") },
			`"2026-12-25..2026-12-24" ends before it begins`: func(d *sched.Definition) { d.Except = dates("2026-12-25..2026-12-24") },
			"has a year at one end only":                     func(d *sched.Definition) { d.Except = dates("2026-12-25..12-26") },
			"the limit is 10000":                             func(d *sched.Definition) { d.Except = dates("0001-01-01..9999-12-31") },
			"as JSON; the limit is 262144": func(d *sched.Definition) {
				text := freeze + strings.Repeat("<", 64<<10-len(freeze))
				d.Except, d.Only = &sched.CalendarData{ICal: text}, &sched.CalendarData{ICal: text}
				d.Schedule = "* * * * *"
			},
			"both a Schedule and After":       func(d *sched.Definition) { d.After = "b" },
			"Except and Only need a Schedule": func(d *sched.Definition) { d.Schedule, d.After, d.Except = "", "b", dates("12-25") },
			"the job would run after itself":  func(d *sched.Definition) { d.Schedule, d.After = "", "a" },
			"the name in After has 201":       func(d *sched.Definition) { d.Schedule, d.After = "", strings.Repeat("x", 201) },
		} {
			d := report("a")
			change(&d)
			if says == "as JSON; the limit is 262144" {
				wantErr(t, d.Validate(), says) // the text is refused by ical before
				continue
			}
			_, err := s.Define(t.Context(), d)
			if wantErr(t, err, says); err != nil && !strings.HasPrefix(err.Error(), "sched: defin") {
				t.Error(err)
			}
			if strings.Contains(says, "Except: ical") {
				continue
			}
			wantErr(t, d.Validate(), says)
		}
		if n := f.requests() - sent; n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestCalendarDataJSON(t *testing.T) {
	whole := sched.Definition{
		Name: "a", Schedule: "@daily", Kind: "k",
		Except: &sched.CalendarData{Dates: []string{"12-25", "2026-12-24..2027-01-06"}, Zone: "Europe/Berlin"}, Only: &sched.CalendarData{ICal: freeze},
	}
	text, err := json.Marshal(whole)
	noErr(t, err)
	if want := `{"name":"a","schedule":"@daily","except":{"dates":["12-25","2026-12-24..2027-01-06"],"zone":"Europe/Berlin"},"only":{"ical":"BEGIN:`; !strings.HasPrefix(string(text), want) {
		t.Errorf("%s", text)
	}
	var back sched.Definition
	if noErr(t, json.Unmarshal(text, &back)); !reflect.DeepEqual(back, whole) {
		t.Errorf("%+v", back)
	}
	noErr(t, json.Unmarshal([]byte(`{"name":"b","after":"a","kind":"k"}`), &back))
	if back.After != "a" || back.Validate() != nil {
		t.Errorf("%+v", back)
	}
	wantErr(t, json.Unmarshal([]byte(`{"name":"b","except":{"days":["12-25"]}}`), &back), `unknown field "days"`)
	noErr(t, json.Unmarshal([]byte(`{"name":"b","schedule":"@daily","kind":"k","only":{}}`), &back))
	wantErr(t, back.Validate(), "the Only has neither")
}

// A calendar that a process of its own kind cannot name is refused: its changes could not be
// detected.
func TestDefineNamelessCalendar(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		d := report("a")
		d.Except = &sched.CalendarData{ICal: "x"}
		for want, parse := range map[string]func(text, zone string) (calendar.Calendar, error){
			"set Revision": func(string, string) (calendar.Calendar, error) {
				return calendar.Days("UTC", func(time.Time) bool { return false })
			},
			"returned no calendar": func(string, string) (calendar.Calendar, error) { return nil, nil },
			"no disk":              func(string, string) (calendar.Calendar, error) { return nil, errors.New("no disk") },
		} {
			s, err := sched.New(claimtest.NewClient(t, f.server.Host(t), etcdclaims.Config{Prefix: prefix}), sched.Config{Group: "default", ICal: parse})
			noErr(t, err)
			_, err = s.Define(t.Context(), d)
			wantErr(t, err, want)
		}
	})
}
