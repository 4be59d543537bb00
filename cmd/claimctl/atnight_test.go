package main

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flags = nil // it needs no etcd
	if v := as[versionView](w, "version"); !strings.HasPrefix(v.Go, "go1.") {
		t.Errorf("%+v", v)
	}
	w.finds(w.ok("version"), "Version:", "Go version:")
}

// The jobs of all groups are in one table.
func TestJobsOfAllGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, group := range []string{"billing", "mails"} {
		c := w.client("a")
		defer (&stage{world: w, a: c}).runs(group)()
		s, err := sched.New(c, sched.Config{Group: group})
		w.noErr(err)
		_, err = s.Define(t.Context(), sched.Definition{Name: "of-" + group, Schedule: "@every 1h", Kind: "k"})
		w.noErr(err)
	}
	args := append(w.flags, "sched", "jobs", "-A", "--sort-by", "group")
	var out, errs strings.Builder
	if code := execute(t.Context(), args, strings.NewReader(""), &out, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 6 || strings.Fields(lines[0])[0] != "GROUP" || strings.Fields(lines[1])[0] != "billing" || strings.Fields(lines[4])[1] != "of-mails" {
		t.Errorf("%s", out.String())
	}
	w.fails(exitUsage, "-A does not go with -g", "sched", "jobs", "-A", "-g", "billing")
}

func TestInstant(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("here", 2*3600)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"06:31":                now.Add(-5*time.Hour - 29*time.Minute),
		"06:31:07":             now.Add(-5*time.Hour - 29*time.Minute + 7*time.Second),
		"2026-02-28T06:31:00Z": time.Date(2026, 2, 28, 6, 31, 0, 0, time.UTC),
		"25:00":                {},
		"":                     {},
	} {
		if got, err := parseInstant(text, now); !got.Equal(want) || (err != nil) != want.IsZero() {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	w := newWorld(t)
	w.fails(exitUsage, "INSTANT or --at", "sched", "explain", "j", "--at", "noon")
	w.fails(exitFailure, "", "sched", "explain", "j", "--at", "06:31") // there is no such job
}
