package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/sched"
)

const jobsYAML = `jobs:
- name: audit
  schedule: '@every 1h'
  kind: report
- name: invoices
  schedule: TZ=Europe/Berlin 30 2 * * *
  kind: report
  payload:
    to: [acme, 9007199254740993]
    greeting: "yes"
  catchUp: all
  catchUpMax: 7
  catchUpWindow: 24h
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

	planned := w.ok(on("apply", "-f", file, "--dry-run")...)
	w.finds(planned, "CHANGE", "add ", "schedule", "TZ=Europe/Berlin 30 2 * * *", `{"greeting":"yes","to":["acme",9007199254740993]}`)
	if got := w.ok(on("export")...); got != "jobs: []\n" {
		t.Errorf("a dry run stored %s", got)
	}
	if got := w.ok(on("apply", "-f", file)...); !strings.HasPrefix(got, planned) || !strings.HasSuffix(got, "defined 2 jobs, removed 0, left 0 as they are\n") {
		t.Errorf("%s, planned %s", got, planned)
	}
	exported := w.ok(on("export")...)
	if got := as[[]changeView](w, on("apply", "-f", write(exported))...); len(got) != 0 {
		t.Errorf("%+v after export of\n%s", got, exported)
	}

	// A change, a new job, and one that is left out.
	file = write(strings.NewReplacer("30 2 * * *", "0 3 * * *", "audit", "audits", "  timeout: 10m\n", "").Replace(jobsYAML))
	got := as[[]changeView](w, on("apply", "-f", file, "--dry-run", "--prune")...)
	want := []changeView{
		{"add", "audits", "kind", "", "report"},
		{"add", "audits", "name", "", "audits"},
		{"add", "audits", "schedule", "", "@every 1h"},
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
	w.finds(w.ok(on("apply", "-f", file, "--prune")...), "defined 0 jobs, removed 1, left 2 as they are")
	if got := w.ok(on("export", "-o", "name")...); got != "audits\ninvoices\n" {
		t.Error(got)
	}
	w.finds(w.ok(on("export", "audits")...), "name: audits")
	w.fails(exitFailure, `"audit" is not defined`, on("export", "audit")...)

	// The jobs are shown before any process runs the group.
	if got := as[[]jobView](w, on("jobs")...); len(got) != 2 || got[0].Kind != "report" || !strings.Contains(got[0].Problem, "no owner has taken up") {
		t.Errorf("%+v", got)
	}
	w.ok(on("undefine", "audits")...)
	w.fails(exitFailure, "no such job is defined", on("undefine", "audits")...)
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
		jobsYAML + strings.TrimPrefix(jobsYAML, "jobs:\n"):          `job "audit" is there twice`,
		"jobs:\n- {name: a, schedule: at noon, kind: k}":            "Schedule: ",
		"jobs:\n- {name: a, schedule: '@daily', kind: k, when: 7}":  `unknown field "when"`,
		"jobs:\n- {name: a, name: b, schedule: '@daily', kind: k}":  `key "name" already set`,
		"jobs:\n- {name: a, schedule: '@daily', kind: k, retry: 3}": `unknown field "retry"`,
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
	s, err := sched.New(w.client("a"), sched.Config{})
	w.noErr(err)
	w.noErr(s.Add(sched.Job{
		Name: "audit", Schedule: sched.Must(sched.Cron("@hourly")), Handler: func(context.Context, sched.Tick) error { return nil },
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
		if r := w.ctl("sched", "-g", "g", "apply", "-f", file, "--prune"); r.code != exit {
			t.Errorf("%q: %+v", text, r)
		}
	}
}
