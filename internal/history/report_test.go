package history_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/history"
)

// A failing is a test whose failures are looked at.
type failing struct {
	testing.TB
	errors []string
}

func (f *failing) Helper()      {}
func (f *failing) Name() string { return "TestOf/some*thing" }
func (f *failing) Errorf(msg string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(msg, args...))
}

func wrongHistory() script {
	h := script{history.New()}
	h.Logf("the network of %s is cut", "a")
	h.grant("a", 1)
	h.Acquire("c", "other").Granted(9)
	h.grant("b", 2)
	h.Taken("k")
	h.Effect("c", tok(2)).Unknown()
	h.write("a", 1)
	h.Died("b")
	return h
}

func TestVerifyLeavesFiles(t *testing.T) {
	h := wrongHistory()
	f := &failing{TB: t}
	dir := filepath.Join(t.TempDir(), "deep", "down")
	h.Verify(f, history.Checks{Dir: dir})
	if len(f.errors) != 1 || !strings.Contains(f.errors[0], dir) || !strings.Contains(f.errors[0], "linearizable") {
		t.Fatalf("failed with %q", f.errors)
	}
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	again, err := history.Read(strings.NewReader(read("history.jsonl")))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := again.Check(history.Checks{}), h.Check(history.Checks{}); got == nil || len(rulesOf(t, again, history.Checks{})) != 2 {
		t.Errorf("read again: %v, want %v", got, want)
	}
	events := read("events.txt")
	for _, part := range []string{"| the network of a is cut\n", `#3 `, `a granted "k" @1 (call #2)`, "history: one owner"} {
		if !strings.Contains(events, part) {
			t.Errorf("no %q in:\n%s", part, events)
		}
	}
	picture := read("picture.html")
	for _, part := range []string{"<html", "effect @1", "the network of a is cut", "lapse @1"} {
		if !strings.Contains(picture, part) {
			t.Errorf("no %q in the picture", part)
		}
	}
	if strings.Contains(picture, "grant @9") {
		t.Error("the picture shows a key that is all right")
	}
}

// Without a directory of its own the files outlive the test.
func TestVerifyFindsADirectory(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	f := &failing{TB: t}
	wrongHistory().Verify(f, history.Checks{})
	dirs, err := filepath.Glob(filepath.Join(tmp, "history-TestOf_some_thing-*", "history.jsonl"))
	if err != nil || len(dirs) != 1 || len(f.errors) != 1 || !strings.Contains(f.errors[0], filepath.Dir(dirs[0])) {
		t.Errorf("%v, %v, %q", dirs, err, f.errors)
	}
}

func TestVerifySaysThatFilesAreMissing(t *testing.T) {
	f := &failing{TB: t}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wrongHistory().Verify(f, history.Checks{Dir: file})
	if len(f.errors) != 1 || !strings.Contains(f.errors[0], "writing its files failed") || !strings.Contains(f.errors[0], "one owner") {
		t.Errorf("%q", f.errors)
	}
}

func TestVerifyLeavesARightHistoryAlone(t *testing.T) {
	h := script{history.New()}
	h.grant("a", 1)
	f := &failing{TB: t}
	dir := filepath.Join(t.TempDir(), "none")
	h.Verify(f, history.Checks{Dir: dir})
	if _, err := os.Stat(dir); len(f.errors) > 0 || !os.IsNotExist(err) {
		t.Errorf("%q, %v", f.errors, err)
	}
}

// A picture is drawn of a key that could not be decided too, whatever its size.
func TestPictureOfTheUndecided(t *testing.T) {
	h := script{history.New()}
	for i := range int64(500) {
		h.grant("a", i+1)
		h.release("a", i+1)
	}
	dir := t.TempDir()
	h.Verify(&failing{TB: t}, history.Checks{Dir: dir, Steps: 100})
	if info, err := os.Stat(filepath.Join(dir, "picture.html")); err != nil || info.Size() < 10_000 {
		t.Errorf("%v, %v", info, err)
	}
}
