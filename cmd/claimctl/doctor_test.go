package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// doctor runs doctor. A long
// TTL fits also where the machine is busy.
func (w *world) doctor(args ...string) result {
	w.Helper()
	return w.ctl(append([]string{"doctor", "--ttl", "10m"}, args...)...)
}

// findings runs doctor, and wants its exit code.
func (w *world) findings(code int, args ...string) []doctor.Finding {
	w.Helper()
	r := w.doctor(append(args, "-o", "json")...)
	var all []doctor.Finding
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || r.code != code {
		w.Fatalf("exit code %d, want %d: %s%s", r.code, code, r.out, r.err)
	}
	for _, f := range all {
		if (f.Level == doctor.OK) != (f.Remedy == "") || f.Detail == "" {
			w.Errorf("%+v", f)
		}
	}
	return all
}

// has wants a finding of the level with the text.
func (w *world) has(all []doctor.Finding, l doctor.Level, check, text string) {
	w.Helper()
	if !slices.ContainsFunc(all, func(f doctor.Finding) bool {
		return f.Level == l && strings.HasPrefix(f.Check, check) && strings.Contains(f.Detail, text)
	}) {
		w.Errorf("no %s of %s with %q: %+v", l, check, text, all)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	all := w.findings(0)
	for _, check := range []string{"endpoint", "space", "members", "alarms", "permissions", "epoch", "write", "watch", "latency", "claims", "lines", "work", "queues", "jobs"} {
		w.has(all, doctor.OK, check, "")
	}
	left, err := w.etcd.Get(t.Context(), w.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count != 0 {
		t.Errorf("it left %d keys, %v", left.Count, err)
	}
	_, err = w.etcd.Put(t.Context(), w.prefix+"own/forever", `{"v":1}`)
	w.noErr(err)
	work, err := testwork.Of(w.client("a")).TryBegin(t.Context(), "lonely")
	w.noErr(err)
	_, err = w.etcd.Delete(t.Context(), w.prefix+"own/lonely")
	w.noErr(err)
	<-work.Done()
	all = w.findings(1)
	w.has(all, doctor.Warning, "claims", "forever")
	w.has(all, doctor.Warning, "work", "lonely")
	out := w.doctor().out
	for _, want := range []string{
		"What to do:", "\n      " + w.command("claimctl") + " explain forever\n", "\n      " + w.command("claimctl") + " work show lonely\n",
		"epoch ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := w.doctor("--problems").out; strings.Contains(out, "epoch ") || !strings.Contains(out, "forever") {
		t.Errorf("problems: %s", out)
	}
	for _, f := range w.findings(1, "--problems") {
		if f.Level == doctor.OK {
			t.Errorf("%+v", f)
		}
	}
}

func TestDoctorUnreachable(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	up := w.flags[1]
	w.flags = []string{"--endpoints", "127.0.0.1:1", "--dial-timeout", "200ms"}
	w.has(w.findings(2), doctor.Error, "endpoint", "does not answer")
	w.flags = []string{"--endpoints", up + ",127.0.0.1:1", "--dial-timeout", "1s", "--prefix", w.prefix}
	all := w.findings(2)
	w.has(all, doctor.Error, "endpoint 127.0.0.1:1", "does not answer")
	w.has(all, doctor.OK, "write", "")
}

func TestDoctorFull(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t, testetcd.Quota(4<<20)))
	for {
		if _, err := w.etcd.Put(t.Context(), "/filler", strings.Repeat("x", 1<<20)); err != nil {
			break
		}
	}
	all := w.findings(2)
	w.has(all, doctor.Error, "alarms", "NOSPACE")
	w.has(all, doctor.Error, "write", "cannot claim")
}

// A fence that was seen elsewhere shows a restore.
func TestDoctorRewound(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	claim := w.claim(w.client("a"), "k")
	w.has(w.findings(0, "--fence", fmt.Sprint(claim.Fence())), doctor.OK, "revision", "not behind")
	_, err := w.etcd.Put(t.Context(), w.prefix+"own/forever", `{"v":1}`)
	w.noErr(err)
	ahead := fmt.Sprint(claim.Fence() + 1_000_000)
	all := w.findings(2, "--fence", ahead)
	w.has(all, doctor.Error, "revision", "has revision")
	if first := all[0]; first.Check != "revision" || first.After != "" {
		t.Errorf("the first finding is %+v", first)
	}
	if !slices.ContainsFunc(all, func(f doctor.Finding) bool {
		return f.Check == "claims" && f.Level == doctor.Warning && f.After == "revision"
	}) {
		t.Errorf("what may follow from the restore is not marked: %+v", all)
	}
	out := w.doctor("--fence", ahead).out
	if !strings.Contains(out, "; can be the cause of: claims\n") || !strings.Contains(out, "epoch raise") || strings.Contains(out, "forever") {
		t.Errorf("%s", out)
	}
	if out := w.doctor("--fence", ahead, "-o", "wide").out; !strings.Contains(out, "\n  claims ") || !strings.Contains(out, "forever") {
		t.Errorf("%s", out)
	}
	_, err = w.etcd.Delete(t.Context(), w.prefix+"own/forever")
	w.noErr(err)
	w.noErr(claim.Release(t.Context())) // it would end with the raise: its handler is a zombie then
	w.ok("epoch", "raise", "--yes")
	w.has(w.findings(0, "--fence", ahead), doctor.OK, "revision", "not behind")
	w.has(w.findings(2, "--fence", fmt.Sprint(int64(3<<47))), doctor.Error, "revision", "of epoch 3")
	w.fails(exitUsage, "--fence must not be negative", "doctor", "--fence", "-1")
}

func TestDoctorLines(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	put := func(key string, opts ...clientv3.OpOption) string {
		t.Helper()
		name := w.prefix + "wait/" + keyspace.Digest(key) + "/" + key
		_, err := w.etcd.Put(t.Context(), name, `{"v":1,"claim":"`+key+`","owner":"sleepy","since":"2026-03-01T12:00:00Z"}`, opts...)
		w.noErr(err)
		return name
	}
	lease, err := w.etcd.Grant(t.Context(), 600)
	w.noErr(err)
	defer func() { _, _ = w.etcd.Revoke(context.Background(), lease.ID) }()
	deaf := put("free", clientv3.WithLease(lease.ID))
	all := w.findings(1)
	w.has(all, doctor.Warning, "lines", "sleepy is first in line for a key that is free")
	_, err = w.etcd.Delete(t.Context(), deaf)
	w.noErr(err)
	w.claim(w.client("a"), "held")
	ghost := put("held")
	all = w.findings(1)
	w.has(all, doctor.Warning, "lines", "a ghost waits: sleepy")
	if !slices.ContainsFunc(all, func(f doctor.Finding) bool {
		return slices.Equal(f.Commands, []string{w.command("etcdctl") + " get " + ghost, w.command("etcdctl") + " del " + ghost})
	}) {
		t.Errorf("no remedy: %+v", all)
	}
	_, err = w.etcd.Delete(t.Context(), ghost)
	w.noErr(err)
	w.has(w.findings(0), doctor.OK, "lines", "0 in line")
}

func TestDoctorLimit(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	a := w.client("a")
	for i := range 3 {
		w.claim(a, fmt.Sprint("k", i))
	}
	w.has(w.findings(0, "--limit", "2"), doctor.Note, "claims", "2 keys are held or more; the others were not read")
	w.fails(exitUsage, "--limit", "doctor", "--limit", "0")
}

func TestDoctorMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a member that does not answer")
	}
	t.Parallel()
	cluster := testetcd.StartCluster(t, 3)
	w := &world{T: t, prefix: testetcd.Prefix(t)}
	at := func(patience string, endpoints ...string) {
		w.flags = []string{"--endpoints", strings.Join(endpoints, ","), "--prefix", w.prefix, "--dial-timeout", patience, "--command-timeout", "30s"}
	}
	at("10s", cluster.Endpoints()...) // a busy machine may answer late
	w.has(w.findings(0), doctor.OK, "members", "3, of which 1 may fail")
	at("10s", cluster.Endpoints()[:2]...)
	w.has(w.findings(1), doctor.Warning, "members", "not among the endpoints: ")
	cluster.Stop(t, 2)
	cluster.Leader(t)                // an election may take longer than the patience
	at("3s", cluster.Endpoints()...) // each look at the stopped member takes that long
	all := w.findings(2)
	w.has(all, doctor.Error, "endpoint "+cluster.Member(2).Endpoints()[0], "does not answer")
	w.has(all, doctor.OK, "write", "")
	cluster.Stop(t, 1)
	w.flags = []string{"--endpoints", strings.Join(cluster.Endpoints(), ","), "--prefix", w.prefix}
	begun := time.Now()
	all = w.findings(2, "--problems")
	if took := time.Since(begun); took > 6*time.Second {
		t.Errorf("it took %s", took)
	}
	if all[0].Check != "quorum" || slices.ContainsFunc(all[1:], func(f doctor.Finding) bool { return f.After != "quorum" }) {
		t.Errorf("two of three are stopped: %+v", all)
	}
	w.finds(w.doctor("--problems").out, "2 of 3 members do not answer, so that etcd has no leader", "can be the cause of: endpoint", "etcdctl --endpoints "+strings.Join(cluster.Endpoints()[1:], ",")+" endpoint health")
}

// Levels are colored on terminals only, and the columns stay where they are.
func TestLevelColors(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if isColored(&bytes.Buffer{}) || isColored(file) {
		t.Error("what is no terminal is colored")
	}
	var plain, colored bytes.Buffer
	all := table{header: []string{"CHECK", "RESULT", "DETAIL"}, short: make([]bool, 3)}
	all.add("claims", "warning", "ok")
	all.add("jobs", "ok", "error")
	for out, paint := range map[*bytes.Buffer]func(int, string) string{&plain: nil, &colored: paintLevel} {
		all.paint = paint
		if err := all.print(out, math.MaxInt); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(colored.String(), "\x1b[33mwarning\x1b[0m  ok\n") || strings.Count(colored.String(), "\x1b[") != 4 {
		t.Errorf("%q", colored.String())
	}
	if text := regexp.MustCompile(`\x1b\[\d+m`).ReplaceAllString(colored.String(), ""); text != plain.String() {
		t.Errorf("%q, want %q", text, plain.String())
	}
}
