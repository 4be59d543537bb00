package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/durable"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// saved is a world with all that a backup has: a paused queue with dead letters, and a defined job that is paused.
func saved(t *testing.T, w *world) (*queue.Queue, *sched.Scheduler) {
	t.Helper()
	ctx, c := t.Context(), w.client("app")
	q, err := queue.New(c, queue.Config{Name: "thumbnails", MaxTaken: 7})
	w.noErr(err)
	for _, id := range []string{"17", "18", "19", "20"} {
		_, err := q.Enqueue(ctx, queue.NewItem([]byte("photo "+id), queue.ID(id)))
		w.noErr(err)
	}
	got, err := q.TryClaim(ctx, 4)
	w.noErr(err)
	for _, d := range got.Deliveries {
		w.noErr(d.Discard(ctx, "not a JPEG"))
	}
	w.noErr(q.Close(ctx))
	s, err := sched.New(c, sched.Config{Group: "billing"})
	w.noErr(err)
	_, err = s.Define(ctx, sched.Definition{Name: "invoices", Schedule: "0 0 1 1 *", Kind: "report"})
	w.noErr(err)
	w.ok("queue", "pause", "thumbnails", "--reason", "INC-311", "--as", "anna")
	q, err = queue.Open(ctx, c, "thumbnails")
	w.noErr(err)
	return q, s
}

func (w *world) backup() string {
	w.Helper()
	file := filepath.Join(w.dir(), "claims.jsonl")
	w.noErr(os.WriteFile(file, []byte(w.ok("backup")), 0o600))
	return file
}

func (w *world) deleteAll() {
	w.Helper()
	_, err := w.etcd.Delete(w.Context(), w.prefix, clientv3.WithPrefix())
	w.noErr(err)
}

// What was deleted is there again after a restore, as it was.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	q, s := saved(t, w)
	before := as[[]actionView](w, "audit")
	file := w.backup()
	w.noErr(q.Close(ctx))
	w.deleteAll()
	if out := w.ok("restore", "-f", file, "--dry-run"); strings.Count(out, "restored ") != 4 || strings.Count(out, "--may-repeat") != 4 {
		t.Error(out)
	}
	if out := w.ok("restore", "-f", file, "--may-repeat", "--dry-run"); strings.Count(out, "restored ") != 8 || w.ok("queue", "ls", "--all") != "QUEUE\n" {
		t.Error(out)
	}
	results := as[[]restoredView](w, "restore", "-f", file, "--may-repeat", "--reason", "INC-312")
	if len(results) != 8 || slices.ContainsFunc(results, func(v restoredView) bool { return v.Result != "restored" }) {
		t.Fatalf("%+v", results)
	}
	if results[0].Kind != "queue pauses" { // or a program begins what has to stay paused
		t.Errorf("%+v comes first", results[0])
	}
	q, err := queue.Open(ctx, w.client("app"), "thumbnails")
	w.noErr(err)
	defer func() { w.noErr(q.Close(ctx)) }()
	stats, err := q.Stats(ctx)
	if err != nil || stats.Dead != 4 || stats.Paused.Why != "INC-311" {
		t.Errorf("%+v, %v", stats, err)
	}
	if i, err := q.Look(ctx, "17"); err != nil || string(i.Payload) != "photo 17" || i.Why != "discarded: not a JPEG" {
		t.Errorf("%+v, %v", i, err)
	}
	if d, err := s.Definition(ctx, "invoices"); err != nil || d.Kind != "report" {
		t.Errorf("%+v, %v", d, err)
	}
	after := as[[]actionView](w, "audit")
	if len(after) != len(before)+1 || after[0].Verb != "restore" || after[0].Detail != "lines: 8" || after[0].Why != "INC-312" ||
		after[1] != before[0] {
		t.Errorf("%+v, before %+v", after, before)
	}
	w.ok("queue", "dead", "redrive", "thumbnails", "17")
	w.ok("queue", "dead", "redrive-all", "thumbnails")
	w.ok("queue", "resume", "thumbnails")
	if got, err := q.TryClaim(ctx, 4); err != nil || len(got.Deliveries) != 4 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A pause keeps its end. One that is over by the time of the restore pauses nothing.
func TestRestoreOfPausesThatEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	q, s := saved(t, w)
	w.ok("queue", "resume", "thumbnails")
	w.ok("queue", "pause", "thumbnails", "--for", "2h")
	before, err := q.Stats(ctx)
	w.noErr(err)
	w.noErr(q.Close(ctx))
	paused := "sched/" + keyspace.Digest("billing") + "/now/paused/" + keyspace.Digest("invoices")
	_, err = w.etcd.Put(ctx, w.prefix+paused, `{"v":1,"by":"anna","at":"2026-03-01T12:00:00Z","until":"2026-03-01T14:00:00Z"}`)
	w.noErr(err)
	w.noErr(s.PauseTag(ctx, "nightly", "INC-311"))
	file := w.backup()
	w.deleteAll()
	w.ok("restore", "-f", file, "--may-repeat")
	if all, err := s.PausedJobs(ctx); err != nil || len(all) != 1 || all[0].Scope != "tag nightly" {
		t.Errorf("%+v, %v", all, err)
	}
	if resp, err := w.etcd.Get(ctx, w.prefix+paused); err != nil || resp.Count != 1 {
		t.Errorf("the pause of the job: %v, %v", resp, err)
	}
	if i, err := s.Inspect(ctx, "invoices"); err != nil || i.Paused != nil {
		t.Errorf("%+v, %v", i.Paused, err)
	}
	q, err = queue.Open(ctx, w.client("app"), "thumbnails")
	w.noErr(err)
	if after, err := q.Stats(ctx); err != nil || after.Paused != before.Paused || time.Until(after.Paused.Until) < time.Hour {
		t.Errorf("%+v, %v; it was %+v", after.Paused, err, before.Paused)
	}
	w.noErr(q.Close(ctx))
}

// A restore overwrites nothing: it says what it left out, and why.
func TestRestoreOverwritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	q, s := saved(t, w)
	file := w.backup()
	results := as[[]restoredView](w, "restore", "-f", file)
	if len(results) != 8 || slices.ContainsFunc(results, func(v restoredView) bool { return v.Result != "left out: exists" }) {
		t.Fatalf("%+v", results)
	}
	w.noErr(q.Cancel(ctx, "18"))
	_, err := q.Enqueue(ctx, queue.NewItem([]byte("new"), queue.ID("18")))
	w.noErr(err)
	_, err = q.Purge(ctx, time.Now().Add(time.Hour))
	w.noErr(err)
	w.noErr(q.Resume(ctx))
	w.noErr(q.Pause(ctx, "another"))
	w.noErr(s.Undefine(ctx, "invoices", sched.AnyVersion))
	restored := map[string]string{}
	for _, v := range as[[]restoredView](w, "restore", "-f", file, "--may-repeat") {
		restored[v.Kind+" "+v.Name] = v.Result
	}
	for name, want := range map[string]string{
		"queues thumbnails":          "left out: exists",
		"queue pauses thumbnails":    "left out: exists",
		"dead letters thumbnails 17": "restored",
		"dead letters thumbnails 18": "left out: has another queue/",
		"job definitions invoices":   "restored",
	} {
		if got := restored[name]; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	stats, err := q.Stats(ctx)
	if err != nil || stats.Dead != 3 || stats.Ready != 1 || stats.Paused.Why != "another" {
		t.Errorf("%+v, %v", stats, err)
	}
	w.noErr(q.Close(ctx))
	for text, lines := range map[string]string{
		"line 1: a backup has no such key as \"own/k\"": `{"kind":"queues","keys":[{"key":"own/k","value":"x"}]}`,
		"line 2: ":    `{"kind":"queues","keys":[{"key":"queue/k","value":"x"}]}` + "\n[]",
		"has no keys": `{"kind":"queues"}`,
	} {
		w.noErr(os.WriteFile(file, []byte(lines), 0o600))
		w.fails(exitUsage, text, "restore", "-f", file)
	}
	w.fails(exitUsage, "--file is required", "restore")
}

// What operators removed since the backup, and letters whose work may be done, do not come back.
func TestRestoreLeavesOutWhatWasRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	q, _ := saved(t, w)
	group := "group/" + keyspace.Digest("g") + "/spec"
	_, err := w.etcd.Put(ctx, w.prefix+group, `{"v":1,"group":"g","partitions":2}`)
	w.noErr(err)
	file := w.backup()
	w.ok("queue", "resume", "thumbnails", "--as", "anna")
	w.ok("sched", "undefine", "-g", "billing", "invoices", "--yes")
	w.ok("group", "remove", "g", "--yes")
	for _, id := range []string{"17", "18", "19", "20"} { // a program's call, which leaves no record
		w.noErr(q.Cancel(ctx, id))
	}
	want := map[string]string{
		"queues": "exists", "queue pauses": "removed since the backup: queue resume by anna at ", "job definitions": "removed since",
		"groups": "removed since the backup: group remove by ", "dead letters": "its work may have been done", "records of operators": "exists",
	}
	for _, v := range as[[]restoredView](w, "restore", "-f", file) {
		if !strings.HasPrefix(v.Result, "left out: "+want[v.Kind]) || want[v.Kind] == "" {
			t.Errorf("%+v, want %q", v, want[v.Kind])
		}
	}
	stats, err := q.Stats(ctx)
	if err != nil || stats.Dead != 0 || !stats.Paused.At.IsZero() {
		t.Errorf("%+v, %v", stats, err)
	}
	w.noErr(q.Close(ctx))
}

// A line that etcd refuses does not stop the others.
func TestRestoreGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(w.dir(), "claims.jsonl")
	lines := `{"kind":"groups","name":"large","keys":[{"key":"group/a/spec","value":"` + strings.Repeat("x", 1700<<10) + `"}]}` + "\n" +
		`{"kind":"groups","name":"small","keys":[{"key":"group/b/spec","value":"x"}]}`
	w.noErr(os.WriteFile(file, []byte(lines), 0o600))
	w.fails(exitFailure, `restore: 1 of 2 lines failed, the first of them groups "large"`, "restore", "-f", file)
	if out := w.ok("restore", "-f", file, "--dry-run"); !strings.Contains(out, "exists") {
		t.Error(out)
	}
}

// The recipe for keys that were deleted by hand.
func TestManualDeleted(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	q, _ := saved(t, w)
	w.noErr(q.Close(t.Context()))
	w.types(1, "doctor") // an hour before
	for _, line := range steps(t, "### Keys were deleted by hand") {
		args := words(line)
		switch {
		case strings.HasPrefix(line, "claimctl backup > claims.jsonl"):
			w.backup()
			w.deleteAll()
		case strings.HasPrefix(line, "claimctl doctor "):
			w.finds(w.types(2, args[1:]...), "deleted by no operation of claims", "dead letters: 4", "restore -f BACKUP")
		case strings.HasPrefix(line, "claimctl restore -f claims.jsonl"):
			for i, arg := range args {
				if arg == "claims.jsonl" {
					args[i] = filepath.Join(w.dir(), arg)
				}
			}
			w.types(0, args[1:]...)
		case strings.HasPrefix(line, "etcdctl del /etcdclaims.counts"):
			w.finds(w.types(1, "doctor"), "none gone that was there before", `"thumbnails" has 4 dead letters`)
			_, err := w.etcd.Delete(t.Context(), durable.LastKey(w.prefix))
			w.noErr(err)
		default:
			t.Errorf("the test does not know %q", line)
		}
	}
}
