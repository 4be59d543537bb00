package sched_test

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/covered"
	"github.com/etcdclaims/claims/sched"
)

const (
	// mostFilesOfATick only falls: whoever shortens the path lowers it here.
	mostFilesOfATick = 8
	// mostFields is how many fields a Scheduler may have. State belongs to what changes it.
	mostFields = 19
)

// A reader follows a tick from file to file. This test lets many ticks come due at one instant:
// what runs once for each of them is their path, and what runs once for all is not.
func TestATickCrossesFewFiles(t *testing.T) {
	testetcd.SkipUnlessLong(t, "builds a program with coverage")
	t.Parallel()
	const jobs, runs = 60, 3 // fewer jobs than one round admits
	program := covered.Build(t, "./testdata/manyticks", "sched", "sched/testdata/manyticks")
	often := map[covered.Block]int{}
	for range runs {
		dir := t.TempDir()
		covered.Run(t, program, testetcd.Shared(t).Endpoints()[0], testetcd.Prefix(t), strconv.Itoa(jobs), dir)
		for b, times := range covered.Blocks(t, dir) {
			if times >= jobs {
				often[b]++
			}
		}
	}
	lines := map[string][]int{}
	for b, n := range often {
		if n == runs { // the background may look at all jobs at the same time once
			file := strings.TrimPrefix(b.File, "sched/")
			lines[file] = append(lines[file], b.Line)
		}
	}
	files := slices.Sorted(maps.Keys(lines))
	for _, file := range files {
		slices.Sort(lines[file])
		t.Log(file, lines[file])
	}
	if !slices.Contains(files, "starter.go") || !slices.Contains(files, "execute.go") {
		t.Fatalf("the trace does not show the ticks: %q", files)
	}
	if len(files) > mostFilesOfATick {
		t.Errorf("a tick crosses %d files, %d may be: %q", len(files), mostFilesOfATick, files)
	}
}

func TestASchedulerHasFewFields(t *testing.T) {
	// The fields of the struct that all its parts share count as well.
	if n := len(reflect.VisibleFields(reflect.TypeFor[sched.Scheduler]())); n > mostFields {
		t.Errorf("Scheduler has %d fields, %d may be", n, mostFields)
	}
}
