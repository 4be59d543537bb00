package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/internal/explain"
)

// feature is a row of docs/permissions.md.
type feature struct {
	name  string // of --for
	row   string // in the document
	needs map[string]string
}

var features = []feature{
	{"acquire", "TryAcquire, Check, Owns, Release, Txn", map[string]string{"own/": "RW", "wait/": "R", "session/": "RW", "void/": "RW", "epoch": "R"}},
	{"wait", "Acquire (waiting in line)", map[string]string{"own/": "RW", "wait/": "RW", "session/": "RW", "void/": "RW", "epoch": "R"}},
	{"note", "Note", map[string]string{"own/": "RW", "wait/": "R", "session/": "RW", "void/": "RW", "epoch": "R", "note/": "RW"}},
	{"work", "Begin, Complete, Fail, Record", map[string]string{"own/": "RW", "wait/": "RW", "session/": "RW", "void/": "RW", "epoch": "R", "work/": "RW"}},
	{"locks", "Locks", map[string]string{"own/": "RW", "wait/": "R", "void/": "RW", "epoch": "R", "lock/": "RW"}},
	{"supersede", "Supersede", map[string]string{"own/": "RW", "wait/": "R", "session/": "RW", "void/": "RW", "epoch": "R", "note/": "W"}},
	{"release", "ForceRelease", map[string]string{
		"own/": "RW", "wait/": "R", "session/": "RW", "void/": "RW", "epoch": "R", "note/": "W", "audit/": "RW",
	}},
	{"suspect", "Suspectable", map[string]string{"own/": "RW", "wait/": "RW", "session/": "RW", "void/": "RW", "epoch": "R", "note/": "W"}},
	{"resize", "Resize", map[string]string{"own/": "RW", "wait/": "R", "audit/": "RW"}},
	{"lookup", "Lookup", map[string]string{"own/": "R", "wait/": "R", "epoch": "R", "note/": "R"}},
	{"explain", "claimctl explain, claimctl history", map[string]string{"own/": "R", "wait/": "R", "session/": "R", "epoch": "R", "note/": "R", "work/": "R"}},
	{"list", "List, Watch", map[string]string{"own/": "R", "wait/": "R", "epoch": "R", "note/": "R"}},
	{"sched", "Scheduler", map[string]string{"own/": "RW", "wait/": "RW", "session/": "RW", "void/": "RW", "epoch": "R", "sched/": "RW"}},
	{"queue", "Queue", map[string]string{"own/": "RW", "wait/": "R", "session/": "RW", "void/": "RW", "epoch": "R", "queue/": "RW"}},
	{"group", "Groups", map[string]string{"own/": "RW", "wait/": "RW", "session/": "RW", "void/": "RW", "epoch": "R", "group/": "RW"}},
	{"gate", "etcdguard.Bearer, etcdguard.NewGate", map[string]string{"own/": "R", "epoch": "R"}},
	{"epoch", "RaiseEpoch", map[string]string{"epoch": "RW", "audit/": "RW"}},
	{"operate", "other calls of operators, and any with admin.As, beside the row of the feature", map[string]string{"audit/": "RW"}},
}

// FeatureNames returns what Examination.Features can have.
func FeatureNames() []string {
	var names []string
	for _, f := range features {
		names = append(names, f.name)
	}
	return names
}

var subtrees = []string{"own/", "wait/", "session/", "void/", "epoch", "note/", "work/", "lock/", "sched/", "queue/", "group/", "audit/"}

// permissions finds what etcd would refuse to this user, and reports each subtree once, with the
// features that need what lacks.
func (e *Examination) permissions(ctx context.Context) {
	prefix, suffice, role := e.Claims.Prefix(), true, ""
	var first []string // commands
	for _, subtree := range subtrees {
		var lacking, grant, names []string
		for _, verb := range []string{"read", "write"} {
			err := e.probe(ctx, prefix+subtree, verb)
			if err != nil && !explain.IsDenied(err) && !errors.Is(err, rpctypes.ErrNoSpace) {
				e.failed(Error, "permissions", "cannot probe "+prefix+subtree, err)
				return
			}
			switch need := e.featuresThat(verb, subtree); {
			case !explain.IsDenied(err):
				grant = append(grant, verb) // a grant replaces the one before it
			case len(need) > 0:
				lacking, grant, names = append(lacking, verb), append(grant, verb), append(names, need...)
			}
		}
		if len(lacking) == 0 {
			continue
		}
		suffice = false
		slices.Sort(names)
		level, unless, ranged := Error, "", ""
		if len(e.Features) == 0 {
			unless = ", or name the features in use with --for"
			if !slices.Contains(names, "acquire") {
				level = Warning
			}
		}
		if strings.HasSuffix(subtree, "/") {
			ranged = " --prefix=true"
		}
		if role == "" {
			role, first = e.role(ctx)
		}
		f := e.Add(level, "permissions", "as root, grant it to a role of this user"+unless,
			"may not %s %s%s, which is needed for %s", strings.Join(lacking, " or "), prefix, subtree, strings.Join(slices.Compact(names), ", "))
		f.run(append(first, fmt.Sprintf("%s role grant-permission%s %s %s %s",
			e.Commands.Root, ranged, explain.Quoted(role), strings.Join(grant, ""), explain.Quoted(prefix+subtree)))...)
		first = nil
	}
	if suffice {
		e.well("permissions", "suffice under %s for %s", prefix, cmp.Or(strings.Join(e.Features, ", "), "everything"))
	}
}

// role returns the role of the client's user, or one to make for it with the commands that do. It returns
// ROLE if the user has several, or etcd does not name them.
func (e *Examination) role(ctx context.Context) (role string, commands []string) {
	name := e.etcd().Username
	if own, _ := e.clientCertificates(); name == "" && len(own) > 0 {
		if leaf := leafOf(own[0]); leaf != nil {
			name = leaf.Subject.CommonName
		}
	}
	switch user, err := e.etcd().UserGet(ctx, name); {
	case err != nil || len(user.Roles) > 1:
		return "ROLE", nil
	case len(user.Roles) == 1:
		return user.Roles[0], nil
	}
	add, give := e.Commands.Root+" role add "+explain.Quoted(name), e.Commands.Root+" user grant-role"+explain.Arguments(name, name)
	return name, []string{add, give}
}

// featuresThat returns the names of the features in use that read or write a subtree.
func (e *Examination) featuresThat(verb, subtree string) (names []string) {
	for _, f := range features {
		if (len(e.Features) == 0 || slices.Contains(e.Features, f.name)) && strings.Contains(f.needs[subtree], strings.ToUpper(verb[:1])) {
			names = append(names, f.name)
		}
	}
	return names
}

// probe asks for a permission. The operation is in a branch that is never taken, but
// whose permissions etcd checks.
func (e *Examination) probe(ctx context.Context, subtree, verb string) error {
	key, op := subtree, clientv3.OpGet(subtree)
	if strings.HasSuffix(subtree, "/") {
		key, op = subtree+"claimctl-doctor-probe", clientv3.OpGet(subtree, clientv3.WithPrefix(), clientv3.WithLimit(1))
	}
	if verb == "write" {
		op = clientv3.OpPut(key, "")
	}
	// Without conditions the other branch is never taken, and a condition would need
	// permission to read.
	_, err := e.etcd().Txn(ctx).Else(op).Commit()
	return err
}
