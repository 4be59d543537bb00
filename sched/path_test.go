package sched_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
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
	if testing.Short() {
		t.Skip("builds a program with coverage")
	}
	t.Parallel()
	const jobs = 60 // fewer than one round admits
	const here = "github.com/etcdclaims/claims/sched"
	dir := t.TempDir()
	program := filepath.Join(dir, "manyticks")
	runGo(t, "build", "-cover", "-covermode=atomic", "-coverpkg="+here+","+here+"/testdata/manyticks", "-o", program, "./testdata/manyticks")
	cmd := exec.CommandContext(t.Context(), program, testetcd.Shared(t).Endpoints()[0], testetcd.Prefix(t), strconv.Itoa(jobs), dir)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	profile := filepath.Join(dir, "profile.txt")
	runGo(t, "tool", "covdata", "textfmt", "-i="+dir, "-o="+profile)
	text, err := os.ReadFile(profile)
	noErr(t, err)
	blocks := map[string][]string{}
	for line := range strings.Lines(string(text)) { // github.com/etcdclaims/claims/sched/due.go:55.42,57.3 2 61
		file, rest, _ := strings.Cut(strings.TrimPrefix(line, here+"/"), ":")
		var begins string
		var statements, count int
		if n, _ := fmt.Sscanf(rest, "%s %d %d", &begins, &statements, &count); n == 3 && count >= jobs && !strings.Contains(file, "/") {
			blocks[file] = append(blocks[file], begins)
		}
	}
	files := slices.Sorted(maps.Keys(blocks))
	for _, file := range files {
		t.Log(file, blocks[file])
	}
	if !slices.Contains(files, "starter.go") || !slices.Contains(files, "execute.go") {
		t.Fatalf("the trace does not show the ticks: %q", files)
	}
	if len(files) > mostFilesOfATick {
		t.Errorf("a tick crosses %d files, %d may be: %q", len(files), mostFilesOfATick, files)
	}
}

func runGo(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", args[0], err, out)
	}
}

func TestASchedulerHasFewFields(t *testing.T) {
	if n := reflect.TypeFor[sched.Scheduler]().NumField(); n > mostFields {
		t.Errorf("Scheduler has %d fields, %d may be", n, mostFields)
	}
}
