package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/ical"
)

// What programs have defined comes back from export and apply as it was: texts, and the
// digits of numbers.
func TestJobFileRoundTrip(t *testing.T) {
	t.Parallel()
	texts := []string{
		"", " ", "yes", "~", "1.0", "0x10", "a: b", "#", "\r\n", "\n \n", "\t", "\u0085", "\u2028", "\ufeff", "\x7f", "'\"", "<&>", "---\n",
		"<<", "=", "null", "Off", "2026-01-01", "10m", "190:20:30", ".inf", "1_000", "!!str", "*a", "&a", "trail ", "\nline", "😀", "%", "BEGIN:VCALENDAR\r\n",
	}
	for _, number := range []string{
		"0", "-0", "1.0", "1e5", "1E+5", "-1.50", "123456789012345678901234567890.10", "9007199254740993", "1e-400", "1e400",
	} {
		texts = append(texts, number) // as a text
		sameAfterExport(t, sched.Definition{Name: "a", Kind: "k", Schedule: "@daily", CatchUp: sched.All{Max: 7}, Payload: json.RawMessage(`{"a":[` + number + `,{"b":` + number + `}]}`)})
	}
	for _, text := range texts {
		payload, err := json.Marshal(map[string]any{"a" + text: []string{text}, text: map[string]any{"x": 1.5}})
		if err != nil {
			t.Fatal(err)
		}
		sameAfterExport(t, sched.Definition{Name: "a" + text, Revision: text, Kind: "k", Schedule: "@daily", Only: &sched.CalendarData{ICal: text}, Payload: payload})
	}
}

func sameAfterExport(t *testing.T, d sched.Definition) {
	t.Helper()
	var out bytes.Buffer
	if err := (&app{out: &out}).printJSON(jobFile{Jobs: []sched.Definition{d}}); err != nil {
		t.Fatal(err)
	}
	back, err := parseJobs(out.Bytes())
	if err != nil {
		t.Errorf("%s: %v", out.Bytes(), err)
		return
	}
	want, err := fieldsOf(d)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fieldsOf(back.Jobs[0]); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v\nwant %v", err, got, want)
	}
}

// A file in YAML has the values of JSON, and numbers keep their digits.
func TestJobFileValues(t *testing.T) {
	t.Parallel()
	const text = `# a comment
jobs:
- name: a
  kind: k
  schedule: '@daily'
  payload: {yes: True, 1: 2.50, list: [~, null, "~", 1.50, "1.50", 2026-01-01, !!str 1e400], big: 12345678901234567890123}
`
	f, err := parseJobs([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"1":2.50,"big":12345678901234567890123,"list":[null,null,"~",1.50,"1.50","2026-01-01","1e400"],"yes":true}`
	if got := string(f.Jobs[0].Payload); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What YAML could mean in several ways is refused, and so is what JSON cannot write.
func TestJobFileRefused(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"jobs:\n- name: yes":                    `line 2: yes has more than one meaning in YAML; write true or false, or "yes"`,
		"jobs:\n- name: 012":                    "line 2: the number 012 cannot be stored",
		"jobs:\n- {name: 0x1F}":                 "line 2: the number 0x1F cannot be stored",
		"jobs:\n- {name: .inf}":                 "line 2: the number .inf cannot be stored",
		"jobs:\n- {name: .NaN}":                 "cannot be stored",
		"jobs:\n- {name: a, name: b}":           `line 2: key "name" already set`,
		"jobs:\n- {1: a, '1': b}":               `line 2: key "1" already set`,
		"jobs:\n- {[a]: b}":                     "line 2: a key is not a text",
		"jobs:\n- !job {name: a}":               `line 2: the tag "!job" is not supported`,
		"jobs:\n- {name: !!binary aGk=}":        `the tag "!!binary" is not supported`,
		"jobs:\n- {<<: {a: 1}}":                 "line 2: a key is not a text",
		"jobs: &a [*a]":                         "line 1: aliases are not supported",
		"jobs:\n- {name: a, payload: \"\xff\"}": "yaml: ",
	} {
		if _, err := parseJobs([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80q: %v, want %q", text, err, says)
		}
	}
}

// Jobs can change places in a chain, in whatever order the file has them.
func TestSchedApplyReversedChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(w.dir(), "jobs.yaml")
	apply := func(jobs ...string) {
		w.noErr(os.WriteFile(file, []byte("jobs:\n"+strings.Join(jobs, "\n")), 0o600))
		w.finds(w.ok("sched", "apply", "-f", file), "defined ")
	}
	apply("- {name: a, schedule: '@daily', kind: k}", "- {name: b, after: a, kind: k}", "- {name: c, after: b, kind: k}", "- {name: other, after: c, kind: k}")
	reversed := []string{"- {name: b, after: c, kind: k}", "- {name: a, after: b, kind: k}", "- {name: c, schedule: '@daily', kind: k}"}
	apply(reversed...)
	apply("- {name: c, after: a, kind: k}", "- {name: b, after: other, kind: k}", "- {name: a, schedule: '@daily', kind: k}") // other runs after c
	var after []string
	for _, d := range as[jobFile](w, "sched", "export").Jobs {
		after = append(after, d.Name+" after "+d.After)
	}
	if want := []string{"a after ", "b after other", "c after a", "other after c"}; !slices.Equal(after, want) {
		t.Errorf("%v, want %v", after, want)
	}
	w.noErr(os.WriteFile(file, []byte("jobs:\n- {name: p, after: q, kind: k}\n- {name: q, after: p, kind: k}\n"), 0o600))
	w.fails(exitFailure, "the job would run after itself", "sched", "apply", "-f", file)
}

// A list has the next tick of a job whose calendar is an iCalendar text, and doctor finds the
// one that is overdue. Requests that no owner serves are shown.
func TestSchedJobsWithCalendar(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, err := sched.New(w.client("a"), sched.Config{Group: "default", ICal: ical.ParseText})
	w.noErr(err)
	w.noErr(s.Handle("report", func(context.Context, sched.Tick, json.RawMessage) error { return nil }))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	file := filepath.Join(w.dir(), "jobs.yaml")
	daily := strings.NewReplacer("20300105", "20200101\n      RRULE:FREQ=DAILY", "0 3 * * *", "'@every 1s'\n  overdue: 1s").Replace(calendarsYAML)
	w.noErr(os.WriteFile(file, []byte(daily), 0o600))
	w.ok("sched", "apply", "-f", file)
	ran := func() bool {
		i, err := s.Inspect(t.Context(), "patch")
		return err == nil && i.Last != nil && i.Problem == ""
	}
	eventually(t, "the owner runs the job", ran)
	eventually(t, "the owner reports the other", func() bool {
		i, err := s.Inspect(t.Context(), "mail")
		return err == nil && strings.Contains(i.Problem, "no handler")
	})
	_, err = s.RunNow(t.Context(), "mail")
	w.noErr(err)
	w.finds(w.ok("sched", "jobs", "-o", "wide"), "0, 1 requested")
	cancel()
	w.noErr(<-done)
	for _, j := range as[[]jobView](w, "sched", "jobs") {
		if j.Job == "patch" && j.Next.IsZero() || j.Job == "mail" && j.Requests != 1 {
			t.Errorf("%+v", j)
		}
	}
	eventually(t, "doctor finds it overdue", func() bool {
		return strings.Contains(w.ctl("doctor").out, `; overdue: patch`)
	})
	w.finds(w.ctl("doctor").out, `has no handler of kind "mail"; 1 request waits`)
}
