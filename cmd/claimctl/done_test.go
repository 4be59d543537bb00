package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/spf13/cobra"
)

// verbs has, for each command that changes something, what stages it and returns its
// arguments, and the fields of its result.
var verbs = map[string]struct {
	stage func(s *stage) []string
	want  []string // of the object, besides done
	name  string   // the field that the output name prints
}{
	"release": {func(s *stage) []string {
		return []string{s.key, "--fence", fmt.Sprint(s.claim(s.a, s.key).Fence()), "--reason", "stuck"}
	}, []string{"key", "fence", "reason"}, "key"},
	"resize": {func(s *stage) []string {
		s.claim(s.a, s.key, etcdclaims.Slots(2))
		return []string{s.key, "3"}
	}, []string{"key", "slots"}, "key"},
	"work retry": {func(s *stage) []string { s.dead(); return []string{s.key} }, []string{"key", "state"}, "key"},
	"work forget": {func(s *stage) []string {
		s.dead()
		return []string{s.key, "--yes"}
	}, []string{"key"}, "key"},
	"epoch raise":  {func(*stage) []string { return []string{"--yes"} }, []string{"epoch"}, "epoch"},
	"sched pause":  {func(s *stage) []string { s.ctl("sched", "resume", "j"); return []string{"j", "--why", "audit"} }, []string{"job", "group", "reason"}, "job"},
	"sched resume": {func(s *stage) []string { s.ctl("sched", "pause", "j"); return []string{"j"} }, []string{"job", "group"}, "job"},
	"sched run":    {func(*stage) []string { return []string{"j"} }, []string{"job", "group", "run"}, "run"},
	"sched cancel": {func(*stage) []string { return []string{"j"} }, []string{"job", "group"}, "job"},
	"sched forget": {func(s *stage) []string {
		s.runs(s.key)()
		return []string{"j", "-g", s.key, "--yes"}
	}, []string{"job", "group"}, "job"},
	"sched reset": {func(s *stage) []string {
		s.runsAhead(s.key)
		return []string{"j", "-g", s.key, "--reason", "INC-7"}
	}, []string{"job", "group", "nominal", "reason"}, "nominal"},
	"sched undefine": {func(s *stage) []string { s.define("data"); return []string{"data", "--yes"} }, []string{"job", "group"}, "job"},
	"sched backfill": {func(*stage) []string {
		return []string{"j", "--from", "2024-01-01T00:00:00Z", "--to", "2024-12-31T00:00:00Z"}
	}, []string{"job", "group", "run"}, "run"},
	"queue pause": {func(s *stage) []string {
		s.ctl("queue", "resume", "mail")
		return []string{"mail", "--why", "audit"}
	}, []string{"queue", "reason"}, "queue"},
	"queue resume": {func(s *stage) []string { s.ctl("queue", "pause", "mail"); return []string{"mail"} }, []string{"queue"}, "queue"},
	"queue cancel": {func(s *stage) []string {
		s.enqueue()
		return []string{"mail", s.key, "--yes"}
	}, []string{"queue", "item"}, "item"},
	"queue dead redrive":     {func(s *stage) []string { s.bury(); return []string{"mail", s.key} }, []string{"queue", "item"}, "item"},
	"queue dead purge":       {func(s *stage) []string { s.bury(); return []string{"mail", "--yes"} }, []string{"queue", "items"}, "items"},
	"queue dead redrive-all": {func(s *stage) []string { s.bury(); return []string{"mail"} }, []string{"queue", "items"}, "items"},
}

// readers are the commands that change nothing, or whose output is the command's own, a list
// of what they did, or files. They have tests of their own.
var readers = []string{
	"ls", "version", "explain", "watch", "history", "audit", "backup", "doctor", "run", "elect", "serve", "epoch", "epoch show", "exit-codes",
	"work ls", "work show", "sched jobs", "sched show", "sched history", "sched next", "sched explain", "sched export",
	"queue ls", "queue stats", "queue show", "queue waiting", "queue taken", "queue dead ls",
	"group ls", "group show", "group partitions", "group plan",
}

// stage is a world with a job and a queue.
type stage struct {
	*world
	a     *etcdclaims.Client
	sched *sched.Scheduler
	queue *queue.Queue
	key   string // of this invocation, and the ID of its item
}

func (s *stage) dead() {
	s.Helper()
	work, err := testwork.Of(s.a).TryBegin(s.Context(), s.key)
	s.noErr(err)
	_, err = work.Fail(s.Context(), etcdclaims.Permanent(errors.New("disk full")))
	s.noErr(err)
}

func (s *stage) define(job string) {
	s.Helper()
	_, err := s.sched.Define(s.Context(), sched.Definition{Name: job, Schedule: "30 2 1 1 *", Kind: "report"})
	s.noErr(err)
}

func (s *stage) enqueue() {
	s.Helper()
	_, err := s.queue.Enqueue(s.Context(), queue.NewItem(nil, queue.ID(s.key)))
	s.noErr(err)
}

func (s *stage) bury() {
	s.Helper()
	s.enqueue()
	batch, err := s.queue.TryClaim(s.Context(), 100)
	s.noErr(err)
	for _, l := range batch.Deliveries {
		s.noErr(l.Discard(s.Context(), "no such address"))
	}
}

// runs has a process run the job j of a group, until the function is called.
func (s *stage) runs(group string) (end func()) {
	s.Helper()
	jobs, err := sched.New(s.a, sched.Config{Group: group})
	s.noErr(err)
	s.noErr(jobs.Add(sched.Job{
		Name: "j", Schedule: calendar.Must(calendar.Cron("30 2 1 1 *")), Handler: func(context.Context, sched.Tick) error { return nil },
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- jobs.Run(ctx) }()
	eventually(s.T, "the job is registered", func() bool { return s.ctl("sched", "show", "j", "-g", group).code == 0 })
	return func() { cancel(); s.noErr(<-done) }
}

// runsAhead registers the job j of a group in a process whose clock is a year ahead.
func (s *stage) runsAhead(group string) {
	s.Helper()
	jobs, err := sched.New(s.a, sched.Config{Group: group, Now: func() time.Time { return time.Now().AddDate(1, 0, 0) }})
	s.noErr(err)
	s.noErr(jobs.Add(sched.Job{
		Name: "j", Schedule: calendar.Must(calendar.Cron("30 2 * * *")), Handler: func(context.Context, sched.Tick) error { return nil },
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- jobs.Run(ctx) }()
	eventually(s.T, "the job is registered", func() bool { return s.ctl("sched", "show", "j", "-g", group).code == 0 })
	cancel()
	s.noErr(<-done)
}

func (s *stage) begin() {
	var err error
	s.a = s.client("a")
	s.Cleanup(s.runs("default"))
	s.sched, err = sched.New(s.a, sched.Config{Group: "default"})
	s.noErr(err)
	s.queue, err = queue.New(s.a, queue.Config{Name: "mail"})
	s.noErr(err)
	s.Cleanup(func() { s.noErr(s.queue.Close(context.Background())) })
}

// Each command that changes something prints one object, or the name of what it changed.
func TestVerbsPrintTheirResults(t *testing.T) {
	t.Parallel()
	s := &stage{world: newWorld(t)}
	s.begin()
	names := make([]string, 0, len(verbs))
	for name := range verbs {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, verb := range names {
		if verb == "epoch raise" { // ends all that the others stage
			continue
		}
		s.checkVerb(i, verb)
	}
	s.checkVerb(len(names), "epoch raise")
}

func (s *stage) checkVerb(n int, verb string) {
	s.Helper()
	v := verbs[verb]
	for _, format := range []string{formatJSON, formatLines, formatName, formatTable} {
		s.key = fmt.Sprint("k", n, format)
		args := append(append(strings.Fields(verb), v.stage(s)...), "-o", format)
		out := s.ok(append(args, "--as", s.key)...)
		all := as[[]actionView](s.world, "audit", "-n", "2")
		if all[0].Verb != verb || all[0].Who != s.key || len(all) > 1 && all[1].Who == s.key {
			s.Errorf("%q leaves %+v", args, all)
		}
		if format == formatName {
			if strings.Count(out, "\n") != 1 || out == "\n" {
				s.Errorf("%q prints %q", args, out)
			}
			continue
		}
		if format == formatTable {
			if strings.HasPrefix(out, "{") || strings.Count(out, "\n") != 1 {
				s.Errorf("%q prints %q", args, out)
			}
			continue
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil || format == formatLines && strings.Count(out, "\n") != 1 {
			s.Errorf("%q prints %q: %v", args, out, err)
			continue
		}
		for _, field := range append(v.want, v.name) {
			if got[field] == nil || got[field] == "" {
				s.Errorf("%q: no %q in %s", args, field, out)
			}
		}
	}
}

// Each command is in the table of changes or among the readers, and each audited act has its row. The flags
// of a command follow from its row.
func TestChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen, root := 0, (&app{}).root()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			name := commandName(c)
			is, changing := changes[name]
			if c.Runnable() && name != "help" && changing == slices.Contains(readers, name) {
				t.Errorf("%q is neither in the table of changes nor among the readers, or in both", name)
			}
			for flag, want := range map[string]bool{"reason": changing, "why": changing, "yes": is.lost != "", "dry-run": is.finds} {
				if f := c.Flags().Lookup(flag); (f != nil) != want || f != nil && f.Hidden != (flag == "why") {
					t.Errorf("%s: --%s is %+v", name, flag, f)
				}
			}
			if changing {
				seen++
			}
			walk(c)
		}
	}
	walk(root)
	if seen != len(changes) {
		t.Errorf("%d of %d changes are commands", seen, len(changes))
	}
	for name, is := range changes {
		cmd, _, err := root.Find(strings.Fields(name))
		w.noErr(err)
		args := append(strings.Fields(name), slices.Repeat([]string{"x"}, len(strings.Fields(cmd.Use))-1)...)
		if is.lost != "" && is.only == "" {
			w.fails(exitUsage, name+": "+is.lost+"; repeat with --yes", args...)
		}
	}
	w.claim(w.client("a"), "k")
	w.finds(w.ok("epoch", "raise", "--dry-run"), "k")
	w.finds(w.ok("epoch", "show"), "epoch 0")
	audited, err := os.ReadFile("../../internal/audit/verb.go")
	w.noErr(err)
	for _, verb := range regexp.MustCompile(`Name: "([^"]+)"`).FindAllStringSubmatch(string(audited), -1) {
		if _, is := changes[verb[1]]; !is && verb[1] != "queue reconfigure" && verb[1] != "queue priority" { // of programs alone
			t.Errorf("%q is audited, and not in the table of changes", verb[1])
		}
	}
	for _, flag := range []string{"--reason", "--why"} {
		c := w.claim(w.client("api-7"), "k"+flag)
		if got := as[doneView](w, "release", c.Key(), "--fence", fmt.Sprint(c.Fence()), flag, "stuck"); got.Reason != "stuck" {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}

// The name that scripts continue with is the most specific one.
func TestDoneName(t *testing.T) {
	t.Parallel()
	n := 3
	for want, v := range map[string]doneView{
		"k":                 {Key: "k", Slots: &n},
		"j":                 {Group: "g", Job: "j"},
		"r1":                {Group: "g", Job: "j", Run: "r1"},
		"i1":                {Queue: "mail", Item: "i1"},
		"3":                 {Queue: "mail", Items: &n},
		"mail":              {Queue: "mail"},
		explain.Stamp(noon): {Job: "j", Nominal: noon},
	} {
		if got := v.name(); got != want {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
	}
}
