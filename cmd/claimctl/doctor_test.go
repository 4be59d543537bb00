package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// findings runs doctor, and wants its exit code.
func (w *world) findings(code int) []finding {
	w.Helper()
	r := w.ctl("doctor", "-o", "json")
	var all []finding
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || r.code != code {
		w.Fatalf("exit code %d, want %d: %s%s", r.code, code, r.out, r.err)
	}
	for _, f := range all {
		if (f.Level == levelOK) != (f.Remedy == "") || f.Detail == "" {
			w.Errorf("%+v", f)
		}
	}
	return all
}

// has wants a finding of the level with the text.
func (w *world) has(all []finding, l level, check, text string) {
	w.Helper()
	if !slices.ContainsFunc(all, func(f finding) bool {
		return f.Level == l && strings.HasPrefix(f.Check, check) && strings.Contains(f.Detail, text)
	}) {
		w.Errorf("no %s of %s with %q: %+v", l, check, text, all)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := w.findings(0)
	for _, check := range []string{"endpoint", "alarms", "permissions", "write", "watch", "epoch", "claims", "orphans"} {
		w.has(all, levelOK, check, "")
	}
	left, err := w.etcd.Get(t.Context(), w.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count != 0 {
		t.Errorf("it left %d keys, %v", left.Count, err)
	}
	_, err = w.etcd.Put(t.Context(), w.prefix+"own/forever", `{"v":1}`)
	w.noErr(err)
	work, err := w.client("a").TryBegin(t.Context(), "lonely")
	w.noErr(err)
	_, err = w.etcd.Delete(t.Context(), w.prefix+"own/lonely")
	w.noErr(err)
	<-work.Done()
	all = w.findings(1)
	w.has(all, levelWarning, "leases", "forever")
	w.has(all, levelWarning, "orphans", "lonely")
	if out := w.ctl("doctor").out; !strings.Contains(out, "WHAT TO DO") {
		t.Errorf("%s", out)
	}
}

func TestDoctorUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	up := w.flags[1]
	w.flags = []string{"--endpoints", "127.0.0.1:1", "--dial-timeout", "200ms"}
	w.has(w.findings(2), levelError, "endpoint", "does not answer")
	w.flags = []string{"--endpoints", up + ",127.0.0.1:1", "--dial-timeout", "1s", "--prefix", w.prefix}
	all := w.findings(2)
	w.has(all, levelError, "endpoint 127.0.0.1:1", "does not answer")
	w.has(all, levelOK, "write", "")
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
	w.has(all, levelError, "alarms", "NOSPACE")
	w.has(all, levelError, "write", "cannot claim")
}

func TestDoctorPermissions(t *testing.T) {
	t.Parallel()
	server := testetcd.Start(t)
	w := worldOn(t, server)
	ctx := t.Context()
	do := func(err error) { t.Helper(); w.noErr(err) }
	_, err := w.etcd.RoleAdd(ctx, "app")
	do(err)
	for _, subtree := range []string{"own/", "wait/", "session/", "void/", "note/", "epoch"} {
		_, err = w.etcd.RoleGrantPermission(ctx, "app", w.prefix+subtree, clientv3.GetPrefixRangeEnd(w.prefix+subtree), clientv3.PermissionType(clientv3.PermReadWrite))
		do(err)
	}
	for _, user := range []string{"root", "app"} {
		_, err = w.etcd.UserAdd(ctx, user, "secret")
		do(err)
	}
	_, err = w.etcd.UserGrantRole(ctx, "app", "app")
	do(err)
	_, err = w.etcd.RoleAdd(ctx, "root")
	do(err)
	_, err = w.etcd.UserGrantRole(ctx, "root", "root")
	do(err)
	_, err = w.etcd.AuthEnable(ctx)
	do(err)
	w.flags = append(w.flags, "--user", "app:secret")
	r := w.ctl("doctor", "-o", "json")
	for _, want := range []string{"may not read " + w.prefix + "work/", "may not write " + w.prefix + "queue/", "by password", "a lease and a claim"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it does not say %q: %s%s", want, r.out, r.err)
		}
	}
	if strings.Contains(r.out, w.prefix+"own/\"") || r.code == 0 {
		t.Errorf("exit code %d: %s", r.code, r.out)
	}
	w.fails(exitUsage, "no password", "doctor", "--user", "app")
}
