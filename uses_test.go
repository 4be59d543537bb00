package claims_test

import (
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A useRule says which names of one package another one may use. An importRule could only
// allow or forbid all of them.
type useRule struct {
	why   string
	in    string   // the package that the rule is about
	of    string   // the package whose names it may use or not
	only  []string // if set, nothing but these, and the methods and fields of these types
	never []string // a name that contains one of these may not be used, nor a method or field
}

var useRules = []useRule{
	{
		why:  "a session knows where it stands in etcd, and no step of the protocol of claims",
		in:   "./internal/lease",
		of:   "./internal/protocol",
		only: []string{"Layout", "Version", "Sentinel", "Eviction"},
	},
	{
		why:   "who waits in line does not renew and verify what is held",
		in:    "./internal/line",
		of:    "./internal/lease",
		never: []string{"Renew", "Verify", "KeepAlive"},
	},
	{
		why:   "a scheduler sends requests by package retry or under a claim, which bound them",
		in:    "./sched",
		of:    "go.etcd.io/etcd/client/v3",
		never: []string{"KV."},
	},
}

func TestUses(t *testing.T) {
	for _, rule := range useRules {
		t.Run(rule.why, func(t *testing.T) {
			for _, p := range checkedPackages(t) {
				for _, name := range rule.violations(p) {
					t.Errorf("%s uses %s of %s", p.path, name, rule.of)
				}
			}
		})
	}
}

func (r useRule) violations(p checked) []string {
	if p.path != r.in {
		return nil
	}
	return filter(usedNames(p, r.of), func(name string) bool {
		first, _, _ := strings.Cut(name, ".")
		return len(r.only) > 0 && !slices.Contains(r.only, first) ||
			slices.ContainsFunc(r.never, func(part string) bool { return strings.Contains(name, part) })
	})
}

// usedNames returns what a package uses of another one, sorted: a method or field is
// written with its type, as in "Layout.Own".
func usedNames(p checked, of string) []string {
	var used []string
	for _, object := range p.uses {
		if object.Pkg() == nil || ours(object.Pkg().Path()) != of {
			continue
		}
		name := object.Name()
		if owner := ownerOf(object); owner != "" {
			name = owner + "." + name
		}
		used = append(used, name)
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// ownerOf returns the name of the type that declares a method or field.
func ownerOf(object types.Object) string {
	origin := object // as a generic type declares it
	switch object := object.(type) {
	case *types.Func:
		origin = object.Origin()
	case *types.Var:
		origin = object.Origin()
	}
	scope := object.Pkg().Scope()
	for _, name := range scope.Names() {
		declared, ok := scope.Lookup(name).(*types.TypeName)
		if !ok || declared.IsAlias() {
			continue
		}
		found, index, _ := types.LookupFieldOrMethod(declared.Type(), true, object.Pkg(), object.Name())
		if found == origin && len(index) == 1 { // a longer one leads to what is embedded
			return name
		}
	}
	return ""
}

func TestUseRulesCanFail(t *testing.T) {
	sources := exampleSources{
		module + "/internal/protocol": {"a.go": `package protocol
			const Version = 1
			type Layout struct{ Prefix string }
			func (l Layout) Own() string { return l.Prefix }
			type Sentinel struct{ Layout }
			type Take struct{ Layout; Build func(); Mode Mode }
			type Mode interface{ Keys() string }
			type Judged[T any] struct{ Done T }
			func (j Judged[T]) Err() error { return nil }`},
		module + "/internal/steps": {"a.go": `package steps
			import "` + module + `/internal/protocol"
			func Of() (t protocol.Take) { return t }
			func Judge() (j protocol.Judged[int]) { return j }`},
		module + "/internal/lease": {"a.go": `package lease
			type Session struct{ RenewedAt int }
			func (s *Session) Lease() int64 { return 0 }
			func (s *Session) KeepAliveOnce() {}
			func VerifyAll() {}`},
		"go.etcd.io/etcd/client/v3": {"a.go": `package clientv3
			type KV interface{ Get(key string); Txn() Txn }
			type Txn interface{ Commit() }
			type Client struct{ KV }`},
	}
	user := func(path, code string, imports ...string) checked {
		source := "package " + path[strings.LastIndex(path, "/")+1:] + "\n"
		for _, name := range imports {
			source += `import "` + module + "/internal/" + name + `"` + "\n"
		}
		example := maps.Clone(sources)
		example[strings.Replace(path, ".", module, 1)] = map[string]any{"b.go": source + code}
		return example.check(t, path)
	}
	lease := func(code string) checked {
		return user("./internal/lease", "var _, _ = protocol.Version, steps.Of\n"+code, "protocol", "steps")
	}
	line := func(code string) checked {
		return user("./internal/line", "var s lease.Session\n"+code, "lease")
	}
	scheduler := func(code string) checked {
		example := maps.Clone(sources)
		example[module+"/sched"] = map[string]any{"b.go": "package sched\nimport clientv3 \"go.etcd.io/etcd/client/v3\"\n" + code}
		return example.check(t, "./sched")
	}
	tests := []struct {
		name  string
		pkg   checked
		wrong []string
	}{
		{"OK layout", lease(`var _ = protocol.Sentinel{}.Layout.Own() + protocol.Sentinel{}.Own() + protocol.Layout{}.Prefix`), nil},
		{"step", lease(`var t protocol.Take; var _ = protocol.Layout{}.Own()`), []string{"Take"}},
		{"field and method of a step that another package hands out", lease(`func f() { t := steps.Of(); t.Build(); t.Mode.Keys() }`), []string{"Mode.Keys", "Take.Build", "Take.Mode"}},
		{"field and method of a generic type", lease(`var _, _ = steps.Judge().Done, steps.Judge().Err()`), []string{"Judged.Done", "Judged.Err"}},
		{"OK lease of a session", line(`var _ = s.Lease()`), nil},
		{"renewal", line(`func f() { s.KeepAliveOnce(); lease.VerifyAll(); s.RenewedAt++ }`), []string{"Session.KeepAliveOnce", "Session.RenewedAt", "VerifyAll"}},
		{"OK transaction of a claim", scheduler(`func f(t clientv3.Txn, _ clientv3.KV) { t.Commit() }`), nil},
		{"request without a bound", scheduler(`func f(c clientv3.Client, kv clientv3.KV) { c.Get("k"); kv.Txn().Commit() }`), []string{"KV.Get", "KV.Txn"}},
		{"OK another package", user("./internal/elsewhere", "var t protocol.Take", "protocol"), nil},
	}
	broken := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, rule := range useRules {
				found := rule.violations(tt.pkg)
				broken[rule.why] = broken[rule.why] || len(found) > 0
				got = append(got, found...)
			}
			if !slices.Equal(got, tt.wrong) {
				t.Errorf("got %q, want %q", got, tt.wrong)
			}
		})
	}
	for _, rule := range useRules {
		if !broken[rule.why] {
			t.Errorf("no package above breaks the rule %q", rule.why)
		}
	}
}
