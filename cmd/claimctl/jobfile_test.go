package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/ical"
)

// What programs have defined comes back from export and apply as it was: texts and the
// digits of numbers.
func TestJobFileRoundTrip(t *testing.T) {
	t.Parallel()
	calendar := "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nSUMMARY: x\x7f\u0085---\r\n...\r\nEND:VEVENT\r\n"
	texts := []string{
		"", " ", "yes", "~", "1.0", "0x10", "a: b", "#", "\r\n", "\n \n", "\t", "\u0085", "\u2028", "\ufeff", "\x00",
		"\x7f", "'\"", "<&>", "---\n", "a\n...\nb", "<<", "=", "number1", "null", "Off", "2026-01-01", "12-25",
		"10m", "190:20:30", ".inf", "1_000", "+1", "!!str", "*a", "&a", "@x", "a: ", "trail ", "\nline",
		"line\n\n", " \n a", "😀", "%", calendar,
		strings.Repeat("word ", 60),
	}
	for _, number := range []string{
		"0", "-0", "1.0", "1e5", "1E+5", "-1.50", "123456789012345678901234567890.10",
		"9007199254740993", "1e-400", "1e400",
	} {
		texts = append(texts, number) // as a text
		f := jobFile{Jobs: []sched.Definition{{Name: "a", Kind: "k", Schedule: "@daily", CatchUp: sched.All{Max: 7}, Payload: json.RawMessage(`{"a":[` + number + `,{"b":` + number + `}]}`)}}}
		sameAfterYAML(t, f)
	}
	for _, text := range texts {
		payload, err := json.Marshal(map[string]any{"a" + text: []string{text}, text: map[string]any{"x": 1.5}})
		if err != nil {
			t.Fatal(err)
		}
		f := jobFile{Jobs: []sched.Definition{{Name: "a" + text, Revision: text, Kind: "k", Schedule: "@daily", Only: &sched.CalendarData{ICal: text + calendar}, Payload: payload}}}
		sameAfterYAML(t, f)
	}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		sameAfterYAML(t, jobFile{Jobs: []sched.Definition{{
			Name: "a", Kind: "k", Schedule: "@daily",
			Payload: json.RawMessage(randomJSON(rng, texts, 4)),
		}}})
	}
	deep := json.RawMessage(strings.Repeat(`{"a":[`, 500) + "null" + strings.Repeat("]}", 500))
	sameAfterYAML(t, jobFile{Jobs: []sched.Definition{{Name: "a", Kind: "k", Schedule: "@daily", Payload: deep}}})
	twice := jobFile{Jobs: []sched.Definition{{Name: "a", Payload: json.RawMessage(`{"a":1,"a":2}`)}}}
	if _, err := twice.yaml(); err == nil || !strings.Contains(err.Error(), `key "a" is there twice`) {
		t.Error(err)
	}
}

// randomJSON returns a value with texts, and keys, of a list.
func randomJSON(rng *rand.Rand, texts []string, depth int) string {
	text := func() string {
		is, _ := json.Marshal(texts[rng.IntN(len(texts))])
		return string(is)
	}
	switch n := rng.IntN(8); {
	case n < 2 && depth > 0:
		var all []string
		for range rng.IntN(4) {
			all = append(all, randomJSON(rng, texts, depth-1))
		}
		return "[" + strings.Join(all, ",") + "]"
	case n < 4 && depth > 0:
		all := make(map[string]json.RawMessage)
		for range rng.IntN(4) {
			all[text()] = json.RawMessage(randomJSON(rng, texts, depth-1))
		}
		is, _ := json.Marshal(all)
		return string(is)
	case n < 6:
		return text()
	}
	return []string{"true", "false", "null", "-0.0", "1.10", "1e400", "-1E-400", "12345678901234567890.0"}[rng.IntN(8)]
}

func sameAfterYAML(t *testing.T, f jobFile) {
	t.Helper()
	want, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := f.yaml()
	if err != nil {
		t.Errorf("%s: %v", want, err)
		return
	}
	back, err := parseJobs(text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return
	}
	if got, err := json.Marshal(back); err != nil || sorted(t, got) != sorted(t, want) {
		t.Errorf("%v, %s\nwant %s\nas YAML\n%s", err, got, want, text)
	}
}

// sorted returns JSON with its keys sorted.
func sorted(t *testing.T, text []byte) string {
	t.Helper()
	var is any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&is); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(is)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Values of YAML that JSON writes in another way keep their meaning, and numbers their digits.
func TestJobFileValues(t *testing.T) {
	t.Parallel()
	const text = `jobs:
- name: a
  kind: k
  schedule: '@daily'
  catchUp: all
  catchUpMax: 0x10
  overlap: allow
  payload: &p {yes: True, 1: 0o10, 2.50: [.5, +1.50, -.50, 1_000, 0x1F, ~, null, "~", 1.50, "1.50", 2026-01-01, !!str 1e400], big: 12345678901234567890123}
- {name: b, kind: k, schedule: '@daily', payload: *p}
- {name: c, kind: k, schedule: '@daily', payload: {<<: [*p, {more: 1, big: 1}], more: 2.0}}
`
	f, err := parseJobs([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	const all = `"1":8,"2.50":[0.5,1.50,-0.50,1000,31,null,null,"~",1.50,"1.50","2026-01-01","1e400"],"big":12345678901234567890123,"yes":true}`
	for i, want := range []string{`{` + all, `{` + all, `{` + strings.Replace(all, `,"yes"`, `,"more":2.0,"yes"`, 1)} {
		if got := string(f.Jobs[i].Payload); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if f.Jobs[0].CatchUp != (sched.All{Max: 16}) {
		t.Errorf("%v", f.Jobs[0].CatchUp)
	}
}

// What YAML could mean in several ways is refused, and so is a document that would grow without end.
func TestJobFileRefused(t *testing.T) {
	t.Parallel()
	bomb := "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 8 {
		bomb += fmt.Sprintf("b%d: &a%d [%s]\n", i, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	for text, says := range map[string]string{
		"jobs:\n- name: yes":                    `line 2: yes has more than one meaning in YAML; write true or false, or "yes"`,
		"jobs:\n- name: 012":                    "line 2: the number 012 cannot be stored",
		"jobs:\n- {name: .inf}":                 "line 2: the number .inf cannot be stored",
		"jobs:\n- {name: .NaN}":                 "cannot be stored",
		"jobs:\n- {name: a, name: b}":           `line 2: key "name" already set`,
		"jobs:\n- {1: a, '1': b}":               `line 2: key "1" already set`,
		"jobs:\n- {[a]: b}":                     "line 2: a key is not a text",
		"jobs:\n- !job {name: a}":               `line 2: the tag "!job" is not supported`,
		"jobs:\n- {name: !!binary aGk=}":        `the tag "!!binary" is not supported`,
		"jobs:\n- {<<: a}":                      "line 2: << needs a mapping, or a list of them",
		"jobs: &a [*a]":                         "more than 10000 inside each other",
		"jobs: &a {<<: *a}":                     "more than 10000 inside each other",
		bomb:                                    "more than 1000000 values",
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
	got := as[[]sched.Definition](w, "sched", "export")
	var after []string
	for _, d := range got {
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
	w.finds(w.ok("sched", "jobs"), "0, 1 requested")
	cancel()
	w.noErr(<-done)
	for _, j := range as[[]jobView](w, "sched", "jobs") {
		if j.Job == "patch" && j.Next == nil || j.Job == "mail" && j.Requests != 1 {
			t.Errorf("%+v", j)
		}
	}
	eventually(t, "doctor finds it overdue", func() bool {
		return strings.Contains(w.ctl("doctor").out, `"patch" of group "default" is overdue: its tick of `)
	})
	w.finds(w.ctl("doctor").out, `has no handler of kind "mail"; 1 request waits`)
}
