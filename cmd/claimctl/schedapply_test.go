package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/etcdclaims/claims/sched/ical"
)

const jobsYAML = `jobs:
- name: audit
  schedule: '@every 1h'
  kind: report
  start: 2130-01-01T09:00:00+01:00
  end: 2140-01-01T09:00:00Z
  runs: 10
- name: invoices
  schedule: TZ=Europe/Berlin 30 2 * * *
  kind: report
  payload:
    to: [acme, 9007199254740993]
    greeting: "yes"
  catchUp: all
  catchUpMax: 7
  catchUpWindow: 24h
  overlap: buffer-all
  timeout: 10m
`

// What export prints, apply reads, and finds nothing to change.
func TestSchedApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	on := func(args ...string) []string { return append([]string{"sched", "-g", "billing"}, args...) }
	write := func(text string) string {
		name := filepath.Join(w.dir(), "jobs.yaml")
		w.noErr(os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	file := write(jobsYAML)

	planned := w.ok(on("apply", "-f", file, "--dry-run", "-o", "wide")...)
	w.finds(planned, "CHANGE", "add ", "schedule", "TZ=Europe/Berlin 30 2 * * *", `{"greeting":"yes","to":["acme",9007199254740993]}`)
	if got := w.ok(on("export")...); got != "{\n  \"jobs\": []\n}\n" {
		t.Errorf("a dry run stored %s", got)
	}
	if got := w.ok(on("apply", "-f", file, "-o", "wide")...); !strings.HasPrefix(got, planned) || !strings.HasSuffix(got, "defined 2 jobs, removed 0, left 0 as they are\n") {
		t.Errorf("%s, planned %s", got, planned)
	}
	for _, format := range []string{formatTable, formatJSON, formatLines} {
		exported := w.ok(on("export", "-o", format)...)
		if got := as[[]changeView](w, on("apply", "-f", write(exported))...); len(got) != 0 {
			t.Errorf("%+v after export of\n%s", got, exported)
		}
	}

	// A change, a new job, and one that is left out.
	file = write(strings.NewReplacer("30 2 * * *", "0 3 * * *", "audit", "audits", "  timeout: 10m\n", "").Replace(jobsYAML))
	got := as[[]changeView](w, on("apply", "-f", file, "--dry-run", "--prune")...)
	want := []changeView{
		{"add", "audits", "end", "", "2140-01-01T09:00:00Z"},
		{"add", "audits", "kind", "", "report"},
		{"add", "audits", "name", "", "audits"},
		{"add", "audits", "runs", "", "10"},
		{"add", "audits", "schedule", "", "@every 1h"},
		{"add", "audits", "start", "", "2130-01-01T08:00:00Z"},
		{"change", "invoices", "schedule", "TZ=Europe/Berlin 30 2 * * *", "TZ=Europe/Berlin 0 3 * * *"},
		{"change", "invoices", "timeout", "10m0s", ""},
		{Change: "remove", Job: "audit"},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
	w.finds(w.ok(on("apply", "-f", file)...), "defined 2 jobs, removed 0, left 0 as they are")
	w.finds(w.ok(on("apply", "-f", file, "--prune", "--yes")...), "defined 0 jobs, removed 1, left 2 as they are")
	if got := w.ok(on("export", "-o", "name")...); got != "audits\ninvoices\n" {
		t.Error(got)
	}
	w.finds(w.ok(on("export", "audits")...), `"name": "audits"`)
	w.fails(exitFailure, `"audit" is not defined`, on("export", "audit")...)

	// The jobs are shown before any process runs the group.
	if got := as[[]jobView](w, on("jobs")...); len(got) != 2 || got[0].Kind != "report" || !strings.Contains(got[0].Problem, "no owner has taken up") {
		t.Errorf("%+v", got)
	}
	w.ok(on("undefine", "audits", "--yes")...)
	w.fails(exitFailure, "no such job is defined", on("undefine", "audits", "--yes")...)
}

const calendarsYAML = `jobs:
- name: close
  schedule: TZ=Europe/Berlin 30 2 * * *
  kind: report
  except: {dates: [12-24..12-26, 2026-05-01, 01-01]}
- name: mail
  after: close
  kind: mail
- name: patch
  schedule: 0 3 * * *
  kind: report
  only:
    zone: Europe/Berlin
    ical: |
      BEGIN:VCALENDAR
      VERSION:2.0
      PRODID:x
      BEGIN:VEVENT
      UID:1
      DTSTART;VALUE=DATE:20300105
      SUMMARY: <window>
      END:VEVENT
      END:VCALENDAR
`

// Calendars and After go through apply and export, and are part of what is shown.
func TestSchedApplyCalendars(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, err := sched.New(w.client("a"), sched.Config{Group: "default", ICal: ical.ParseText})
	w.noErr(err)
	for _, kind := range []string{"report", "mail"} {
		w.noErr(s.Handle(kind, func(context.Context, sched.Tick, json.RawMessage) error { return nil }))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	file := filepath.Join(w.dir(), "jobs.yaml")
	write := func(text string) { w.noErr(os.WriteFile(file, []byte(text), 0o600)) }
	write(calendarsYAML)
	w.finds(w.ok("sched", "apply", "-f", file), `{"dates":["12-24..12-26","2026-05-01","01-01"]}`, "defined 3 jobs")
	exported := w.ok("sched", "export")
	write(exported)
	if got := as[[]changeView](w, "sched", "apply", "-f", file); len(got) != 0 {
		t.Errorf("%+v after export of\n%s", got, exported)
	}
	write(strings.Replace(calendarsYAML, "2026-05-01, ", "", 1))
	if got := as[[]changeView](w, "sched", "apply", "-f", file, "--dry-run"); len(got) != 1 || got[0].Field != "except" || got[0].Job != "close" {
		t.Errorf("%+v", got)
	}
	write(strings.Replace(calendarsYAML, "after: close", "after: patch", 1))
	if got := as[[]changeView](w, "sched", "apply", "-f", file, "--dry-run"); len(got) != 1 || got[0] != (changeView{"change", "mail", "after", "close", "patch"}) {
		t.Errorf("%+v", got)
	}

	eventually(t, "the definitions are taken up", func() bool {
		for i, err := range s.Jobs(ctx) {
			if err != nil || i.Problem != "" || i.Next.IsZero() && i.After == "" {
				return false
			}
		}
		return true
	})
	jobs := as[[]jobView](w, "sched", "jobs")
	if len(jobs) != 3 || !strings.Contains(jobs[0].Schedule, "EXCEPT dates(Europe/Berlin: 01-01,12-24,12-25,12-26,2026-05-01)") || jobs[1].After != "close" || jobs[1].Schedule != "@after close" {
		t.Errorf("%+v", jobs)
	}
	if got := w.ok("sched", "next", "patch"); !strings.Contains(got, "2030-01-05") || strings.Contains(got, "2030-01-06") {
		t.Error(got)
	}
	w.fails(exitFailure, `the job runs after "close", and has no ticks of its own`, "sched", "next", "mail")
	w.finds(w.ok("sched", "explain", "close", "2031-12-25T01:30:00Z"), "leaves this instant out")
	w.finds(w.ok("sched", "show", "patch"), "ONLY ical(Europe/Berlin: 1 events", "2030-01-05")
	cancel()
	w.noErr(<-done)
}

// The example of the documentation is one that apply takes.
func TestSchedApplyDocumented(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "scheduling.md"))
	w.noErr(err)
	_, rest, _ := strings.Cut(string(page), "```yaml\njobs:\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/scheduling.md has no jobs in YAML")
	}
	file := filepath.Join(w.dir(), "jobs.yaml")
	w.noErr(os.WriteFile(file, []byte("jobs:\n"+example), 0o600))
	w.finds(w.ok("sched", "apply", "-f", file), "defined 5 jobs")
	w.finds(w.ok("sched", "next", "patch-hosts", "-n", "1"), "T03:00:00Z")
}

func TestSchedApplyRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for text, says := range map[string]string{
		"":                           "has no jobs",
		"jobs: []":                   "has no jobs",
		"job: []":                    `unknown field "job"`,
		"jobs: [":                    "yaml: ",
		"- name: a":                  "cannot unmarshal",
		"jobs:\n- {}":                "Kind is empty",
		jobsYAML + "---\njobs: []\n": "more than one YAML document",
		jobsYAML + strings.TrimPrefix(jobsYAML, "jobs:\n"):                              `job "audit" is there twice`,
		"jobs:\n- {name: a, schedule: at noon, kind: k}":                                "Schedule: ",
		"jobs:\n- {name: a, schedule: '@daily', kind: k, except: {ical: x}}":            "the Except: ical: ",
		"jobs:\n- {name: a, schedule: '@daily', kind: k, except: {}}":                   "the Except has neither Dates nor an ICal text",
		"jobs:\n- {name: a, schedule: '@daily', kind: k, except: {days: [12-25]}}":      `unknown field "days"`,
		"jobs:\n- {name: a, schedule: '@daily', kind: k, except: {dates: [Christmas]}}": `"Christmas" is not a date`,
		"jobs:\n- {name: a, schedule: '@daily', kind: k, after: b}":                     "both a Schedule and After",
		"jobs:\n- {name: a, schedule: '@daily', kind: k, when: 7}":                      `unknown field "when"`,
		"jobs:\n- {name: a, name: b, schedule: '@daily', kind: k}":                      `key "name" already set`,
		"jobs:\n- {name: a, schedule: '@daily', kind: k, retry: 3}":                     `unknown field "retry"`,
	} {
		name := filepath.Join(w.dir(), "jobs.yaml")
		w.noErr(os.WriteFile(name, []byte(text), 0o600))
		w.fails(exitUsage, says, "sched", "apply", "-f", name)
	}
	w.fails(exitUsage, "-f FILE is missing", "sched", "apply")
	w.fails(exitUsage, "no such file", "sched", "apply", "-f", filepath.Join(w.dir(), "nothing"))
}

// The name of a job in code is refused. Other definitions are taken up.
func TestSchedApplyRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, err := sched.New(w.client("a"), sched.Config{Group: "default"})
	w.noErr(err)
	w.noErr(s.Add(sched.Job{
		Name: "audit", Schedule: calendar.Must(calendar.Cron("@hourly")), Handler: func(context.Context, sched.Tick) error { return nil },
	}))
	w.noErr(s.Handle("report", func(context.Context, sched.Tick, json.RawMessage) error { return nil }))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	eventually(t, "the job is registered", func() bool { return w.ctl("sched", "show", "audit").code == 0 })
	name := filepath.Join(w.dir(), "jobs.yaml")
	w.noErr(os.WriteFile(name, []byte(jobsYAML), 0o600))
	r := w.ctl("sched", "apply", "-f", name)
	if r.code != exitFailure || !strings.Contains(r.err, `define job "audit": a job in code has this name`) || !strings.Contains(r.err, "; 0 of 2 jobs were changed before") {
		t.Errorf("%+v", r)
	}
	w.noErr(os.WriteFile(name, []byte(strings.Replace(jobsYAML, "audit", "audits", 1)), 0o600))
	w.ok("sched", "apply", "-f", name)
	eventually(t, "the definition is taken up", func() bool {
		i, err := s.Inspect(ctx, "invoices")
		return err == nil && i.Problem == "" && !i.Next.IsZero()
	})
	w.finds(w.ok("sched", "show", "invoices"), "defined: kind report, version ")
	cancel()
	w.noErr(<-done)
}

// A file has one document, whatever marks and comments are around it.
func TestSchedApplyDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(w.dir(), "jobs.yaml")
	const one = "jobs:\n- {name: a, schedule: '@daily', kind: k}\n"
	for text, exit := range map[string]int{
		"---\n" + one: 0, "# of billing\n--- \r\n" + one + "...\n": 0, "--- " + "{jobs: [{name: a, schedule: '@daily', kind: k}]}\n---\n# end": 0,
		"---\n" + one + "---\n" + one: 64, one + "...\n" + one: 64, "---\n---\n": 64,
	} {
		w.noErr(os.WriteFile(file, []byte(text), 0o600))
		if r := w.ctl("sched", "-g", "g", "apply", "-f", file, "--prune", "--yes"); r.code != exit {
			t.Errorf("%q: %+v", text, r)
		}
	}
}
