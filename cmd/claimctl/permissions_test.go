package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/internal/permissions"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// guarded is a world whose user has the permissions, and may be given others.
func guarded(t *testing.T, needs map[string]string) (w *world, set func(subtree, permission string)) {
	t.Helper()
	w = worldOn(t, testetcd.Start(t))
	ctx := context.Background()
	check := func(_ any, err error) { t.Helper(); w.noErr(err) }
	for _, name := range []string{"root", "app"} {
		_, err := w.etcd.RoleAdd(ctx, name)
		check(nil, err)
		_, err = w.etcd.UserAdd(ctx, name, "secret")
		check(nil, err)
		_, err = w.etcd.UserGrantRole(ctx, name, name)
		check(nil, err)
	}
	admin := w.etcd
	set = func(subtree, permission string) {
		t.Helper()
		key := w.prefix + subtree
		end := clientv3.GetPrefixRangeEnd(key)
		if permission == "" {
			_, err := admin.RoleRevokePermission(ctx, "app", key, end)
			check(nil, err)
			return
		}
		kind := map[string]clientv3.PermissionType{
			"R": clientv3.PermissionType(clientv3.PermRead), "RW": clientv3.PermissionType(clientv3.PermReadWrite),
		}[permission]
		_, err := admin.RoleGrantPermission(ctx, "app", key, end, kind)
		check(nil, err)
	}
	for subtree, permission := range needs {
		set(subtree, permission)
	}
	_, err := w.etcd.AuthEnable(ctx)
	check(nil, err)
	admin = w.asRoot()
	w.flags = append(w.flags, "--user", "app:secret")
	return w, set
}

// asRoot returns a client of the user who may do all.
func (w *world) asRoot() *clientv3.Client {
	w.Helper()
	return testetcd.NewClient(w.T, clientv3.Config{
		Endpoints: strings.Split(w.flags[1], ","), Username: "root", Password: "secret",
	})
}

// A role with the row of a feature suffices for it, and doctor says which grant
// lacks.
func TestDoctorPermissions(t *testing.T) {
	t.Parallel()
	rows, err := permissions.Table("../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	needs := rows["Begin, Complete, Fail, Record"]
	delete(needs, permissions.Data)
	w, set := guarded(t, needs)
	all := w.findings(1, "--for", "work,acquire")
	for _, f := range all { // of what the role may not see it is silent
		if f.Level != doctor.OK && f.Check != "auth" && !strings.HasPrefix(f.Check, "endpoint") {
			t.Errorf("%+v", f)
		}
	}
	w.has(all, doctor.OK, "permissions", "suffice")
	w.has(all, doctor.Warning, "auth", "by password: a login took")
	w.has(all, doctor.OK, "write", "a lease and a claim")
	all = w.findings(1)
	w.has(all, doctor.Warning, "permissions", "may not read or write "+w.prefix+"queue/, which is needed for queue")
	for subtree, permission := range needs {
		set(subtree, "")
		all = w.findings(2, "--for", "work")
		verbs := map[string]string{"R": "read", "RW": "read or write"}[permission]
		w.has(all, doctor.Error, "permissions", "may not "+verbs+" "+w.prefix+subtree)
		grant := " --user root role grant-permission --prefix=true app readwrite " + w.prefix + subtree
		if subtree == "epoch" { // which nobody need write who does not raise it
			grant = " --user root role grant-permission app read " + w.prefix + subtree
		}
		if !slices.ContainsFunc(all, func(f doctor.Finding) bool {
			return f.Check == "permissions" && slices.Equal(f.Commands, []string{w.command("etcdctl") + grant})
		}) {
			t.Errorf("no %q in %+v", grant, all)
		}
		if permission == "RW" {
			set(subtree, "R")
			all = w.findings(2, "--for", "work")
			w.has(all, doctor.Error, "permissions", "may not write "+w.prefix+subtree)
			set(subtree, "")
		}
		set(subtree, permission)
	}
	w.has(w.findings(1, "--for", "work"), doctor.OK, "permissions", "suffice")
	w.fails(exitUsage, "no password", "doctor", "--user", "app")
	w.fails(exitUsage, "is not one of", "doctor", "--for", "everything")
	wrong := w.findings(2, "--problems", "--user", "app:wrong")
	if w.has(wrong, doctor.Error, "auth", "cannot log in"); len(wrong) != 1 {
		t.Errorf("%+v", wrong)
	}
	user := slices.Index(w.flags, "--user")
	w.flags = slices.Delete(slices.Clone(w.flags), user, user+2)
	none := w.findings(2, "--problems")
	if w.has(none, doctor.Error, "auth", "etcd requires a user, and this client names none"); len(none) != 1 {
		t.Errorf("%+v", none)
	}
}

// A role that may not read the lines sees the keys, and a remark.
func TestListWithoutLines(t *testing.T) {
	t.Parallel()
	w, set := guarded(t, map[string]string{"own/": "RW", "note/": "R", "epoch": "R"})
	app, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(w.flags[1], ","), Username: "app", Password: "secret"})
	w.noErr(err)
	defer func() { _ = app.Close() }()
	_, err = app.Put(t.Context(), w.prefix+"own/forever", `{"v":1,"owner":"x"}`)
	w.noErr(err)
	const remark = "the waiters are not known: "
	if r := w.ctl("ls"); r.code != 0 || !strings.Contains(r.out, "forever") || !strings.HasPrefix(r.err, "claimctl: "+remark) {
		t.Errorf("%+v", r)
	}
	if r := w.ctl("ls", "-o", "json"); r.code != 0 || !strings.HasPrefix(r.out, "[\n") || !strings.HasPrefix(r.err, `{"note":"`+remark) {
		t.Errorf("%+v", r)
	}
	if r := w.ctl("ls", "-o", "name"); r.code != 0 || r.err != "" {
		t.Errorf("%+v", r)
	}
	set("wait/", "R")
	w.ok("ls")
}

// A role that may not read sessions and work sees the rest of a key, and a remark.
func TestExplainWithoutSessions(t *testing.T) {
	t.Parallel()
	rows, err := permissions.Table("../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	w, set := guarded(t, rows["Lookup"])
	root := w.asRoot()
	owner, err := etcdclaims.New(root, etcdclaims.Config{Prefix: w.prefix, Owner: "api-7"})
	w.noErr(err)
	defer func() { w.noErr(owner.Close(context.Background())) }()
	claim := w.claim(owner, "k")
	partly := func(shown, remark string) {
		t.Helper()
		r := w.ctl("explain", "k")
		if r.code != 0 || !strings.Contains(r.out, shown) || strings.Contains(r.out, "Work:") || !strings.HasPrefix(r.err, "claimctl: "+remark) {
			t.Errorf("%+v", r)
		}
	}
	partly("api-7", "its work is not known: ")
	w.noErr(claim.Release(t.Context()))
	partly("free", "its work is not known: ")
	set("work/", "R")
	partly("free", "its earlier terms are not known: ")
	set("session/", "R")
	if out := w.ok("explain", "k"); !strings.Contains(out, "Previous:") {
		t.Error(out)
	}
	all := w.findings(1, "--for", "explain")
	w.has(all, doctor.OK, "permissions", "suffice")
	if slices.ContainsFunc(all, func(f doctor.Finding) bool { return f.Level == doctor.Error || f.Check == "write" }) {
		t.Errorf("doctor claims a key, which explaining does not: %+v", all)
	}
	w.fails(exitFailure, "the key has no claim, no record", "explain", "nosuch")
}
