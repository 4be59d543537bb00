package claims_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// A rule that cannot fail pins nothing, so every rule is shown what it must
// refuse and what it must let pass.

func TestImportRulesCanFail(t *testing.T) {
	const (
		etcdClient = "go.etcd.io/etcd/client/v3"
		etcdServer = "go.etcd.io/etcd/server/v3/embed"
		goleakPath = "go.uber.org/goleak"
	)
	linked := func(path string, deps ...string) pkg {
		return pkg{path: path, files: []file{{name: "a.go"}}, deps: deps}
	}
	imported := func(path string, imports ...string) pkg {
		return pkg{path: path, files: []file{{name: "a.go", imports: imports}}}
	}
	inTest := func(path string, imports ...string) pkg {
		return pkg{path: path, files: []file{{name: "a.go"}, {name: "a_test.go", test: true, imports: imports}}}
	}

	refused := []pkg{
		linked("./fencing", etcdClient),
		linked("./fencing", "golang.org/x/sys/unix"),
		linked("./fencing", "./internal/clock"),
		imported("./fencing", etcdClient), // in a file for another platform, so not in deps
		linked("./internal/structured", "golang.org/x/net/http/httpguts"),
		linked("./fencing/sqlguard", etcdClient),
		linked("./fencing/objectguard", "github.com/aws/aws-sdk-go-v2/service/s3"),
		linked("./fencing/objectguard/storetest", "github.com/aws/aws-sdk-go-v2/service/s3"),
		imported("./fencing/objectguard", "testing"),
		linked("./fencing/fencetest", "./etcdclaims"),
		linked("./fencing/etcdguard", "./etcdclaims"),
		linked("./fencing/etcdguard", "./middleware/grpcmw"),
		linked("./etcdclaims", "./etcdclaims/queue"),
		linked("./etcdclaims", "./etcdclaims/admin"),
		linked("./etcdclaims", "./etcdclaims/concurrency"),
		linked("./etcdclaims", "./etcdclaims/work"),
		linked("./internal/retention", "./etcdclaims"),
		imported("./cmd/claimctl", "./internal/core"),
		linked("./internal/outage", "./etcdclaims"),
		linked("./internal/lease", "./internal/term"),
		linked("./internal/lease", "./internal/line"),
		linked("./internal/lease", "./etcdclaims"),
		linked("./internal/term", "./internal/line"),
		linked("./internal/term", "./internal/acquire"),
		linked("./internal/acquire", "./internal/line"),
		linked("./internal/line", "./etcdclaims"),
		imported("./internal/protocol", "context"),
		imported("./internal/protocol", "sync/atomic"),
		imported("./internal/protocol", "time"),
		imported("./internal/protocol", etcdClient),
		imported("./internal/item", "context"),
		imported("./internal/item", "./internal/clock"),
		imported("./internal/record", "./etcdclaims"),
		linked("./etcdclaims", "./etcdclaims/claimtest"),
		linked("./etcdclaims", "./sched"),
		linked("./etcdclaims", "./middleware"),
		linked("./etcdclaims/queue", "./sched"),
		linked("./etcdclaims", "./etcdclaims/group"),
		linked("./etcdclaims/group", "./sched"),
		linked("./etcdclaims/group", "./etcdclaims/queue"),
		linked("./sched", "./etcdclaims/group"),
		linked("./etcdclaims/queue", "./etcdclaims/claimtest"),
		linked("./sched", "./etcdclaims/queue"),
		imported("./etcdclaims/webui", etcdClient),
		linked("./etcdclaims/queue", "./etcdclaims/webui"),
		linked("./sched", "./middleware/jobs"),
		linked("./sched/calendar", etcdClient),
		linked("./sched/calendar", "./sched"),
		linked("./sched/ical", "./sched"),
		linked("./sched", "github.com/teambition/rrule-go"),
		linked("./sched", "go.yaml.in/yaml/v3"),
		linked("./middleware", "./etcdclaims"),
		linked("./middleware/grpcmw", etcdClient),
		linked("./middleware/jobs", "./fencing/etcdguard"),
		linked("./etcdclaims", etcdServer),
		linked("./internal/clock", etcdServer),
		linked("./sched", "./internal/testetcd"),
		linked("./etcdclaims", "github.com/spf13/cobra"),
		imported("./sched", "github.com/spf13/pflag"),
		linked("./etcdclaims", "go.opentelemetry.io/otel/metric"),
		linked("./sched", "./etcdclaims/telemetry"),
		linked("./etcdclaims/zaplog", "./etcdclaims"),
		linked("./etcdclaims", "./etcdclaims/zaplog"),
		linked("./etcdclaims/telemetry", "go.opentelemetry.io/otel/sdk/metric"),
		linked("./etcdclaims/telemetry", "github.com/prometheus/client_golang/prometheus"),
		linked("./internal/campaign", "./cmd/claimctl"),
		linked("./cmd/claimctl", etcdServer),
		linked("./internal/history", "./internal/testetcd"),
		imported("./etcdclaims", "testing"),
		imported("./internal/clock", "testing/synctest"),
		imported("./internal/tick", "sync"),
		imported("./internal/jobstate", "context"),
		imported("./examples/quickstart", "testing"),
		imported("./middleware", "net/http/httptest"),
		imported("./etcdclaims", goleakPath),
		imported("./fencing/fencetest", goleakPath),
	}
	allowed := []pkg{
		linked("./fencing", "context", "internal/bytealg", "vendor/golang.org/x/net/idna", "unsafe"),
		linked("./fencing/sqlguard", "database/sql", "./fencing"),
		linked("./fencing/objectguard", "crypto/sha256", "./fencing"),
		linked("./fencing/objectguard/storetest", "testing", "./fencing/objectguard", "./fencing/fencetest"),
		linked("./fencing/fencetest", "testing", "./fencing"),
		linked("./fencing/etcdguard", "./fencing", etcdClient),
		linked("./etcdclaims", "./fencing", "./internal/clock", etcdClient, "golang.org/x/sys/unix"),
		imported("./internal/item", "time", "./internal/txn"),
		imported("./internal/record", "time", "./internal/protocol"),
		linked("./etcdclaims", "./internal/line", "./internal/term", "./internal/lease"),
		linked("./internal/term", "./internal/lease", "./internal/protocol"),
		linked("./internal/line", "./internal/lease", "./internal/protocol"),
		linked("./internal/lease", "./internal/protocol", "./internal/txn"),
		linked("./etcdclaims", "testing"), // through a dependency: not ours to forbid
		linked("./etcdclaims/queue", "./etcdclaims"),
		imported("./etcdclaims/locks", "./etcdclaims", "./internal/core"),
		imported("./etcdclaims/concurrency", "./etcdclaims", "./internal/core", etcdClient),
		linked("./etcdclaims/group", "./etcdclaims", "./fencing", etcdClient),
		imported("./etcdclaims/webui", "./etcdclaims", "./etcdclaims/queue", "./sched", "html/template", "go.uber.org/zap"),
		linked("./cmd/claimctl", "./etcdclaims/webui"),
		linked("./sched", "./etcdclaims", "./sched/calendar"),
		linked("./sched/calendar", "time", "slices"),
		linked("./sched/ical", "./sched/calendar", "github.com/emersion/go-ical", "github.com/teambition/rrule-go"),
		linked("./middleware/grpcmw", "./fencing", "google.golang.org/grpc"),
		linked("./cmd/claimctl", "./etcdclaims", "./etcdclaims/queue", "./sched", "./sched/ical", "github.com/teambition/rrule-go", "github.com/spf13/cobra"),
		linked("./etcdclaims/telemetry", "./etcdclaims", "./etcdclaims/queue", "./sched", "go.opentelemetry.io/otel/metric"),
		linked("./etcdclaims/zaplog", "log/slog", "go.uber.org/zap/zapcore", "go.uber.org/multierr"),
		linked("./internal/testetcd", etcdServer, "github.com/spf13/cobra", "go.opentelemetry.io/otel/sdk/trace"),
		linked("./etcdclaims/claimtest", etcdServer, "./internal/testetcd"),
		linked("./internal/history", "./etcdclaims", "github.com/anishathalye/porcupine", "testing"),
		linked("./examples/quickstart", etcdServer, "./etcdclaims", "./internal/testetcd"),
		imported("./internal/testetcd", "testing", goleakPath),
		imported("./etcdclaims/claimtest", "testing", goleakPath),
		imported("./fencing/fencetest", "testing"),
		inTest("./fencing", "testing", goleakPath),
		inTest("./etcdclaims", "./internal/testetcd", etcdServer),
		inTest("./middleware", "./etcdclaims", "net/http/httptest"),
	}

	violations := func(p pkg) []string {
		var all []string
		for _, rule := range importRules {
			all = append(all, rule.violations(p)...)
		}
		return all
	}
	for _, p := range refused {
		if len(violations(p)) == 0 {
			t.Errorf("let pass: %s", describe(p))
		}
	}
	for _, p := range allowed {
		if got := violations(p); len(got) > 0 {
			t.Errorf("refused: %s: %v", describe(p), got)
		}
	}
	for _, rule := range importRules {
		refuses := func(p pkg) bool { return len(rule.violations(p)) > 0 }
		if len(filter(refused, refuses)) == 0 {
			t.Errorf("no package above breaks the rule %q", rule.why)
		}
	}
}

func TestHouseRulesCanFail(t *testing.T) {
	source := func(f file) file { f.name = "a.go"; return f }
	test := func(f file) file { f.name, f.test = "a_test.go", true; return f }
	documented := source(file{doc: true})

	tests := []struct {
		rule   string
		name   string
		pkg    pkg
		faults int
	}{
		{"place", "OK", pkg{path: "./internal/clock", files: []file{documented}}, 0},
		{"place", "OK root with tests", pkg{path: ".", files: []file{test(file{})}}, 0},
		{"place", "root with code", pkg{path: ".", files: []file{documented}}, 1},
		{"place", "unknown top level", pkg{path: "./pkg/thing", files: []file{documented}}, 1},
		{"place", "a longer name is another", pkg{path: "./scheduler", files: []file{documented}}, 1},

		{"name", "OK", pkg{path: "./internal/clock", files: []file{source(file{pkg: "clock"})}}, 0},
		{"name", "path", pkg{path: "./internal/etcdutil", files: []file{source(file{pkg: "etcd"})}}, 1},
		{"name", "package clause", pkg{path: "./internal/etcd", files: []file{source(file{pkg: "helpers"})}}, 1},
		{"name", "common", pkg{path: "./internal/common"}, 1},
		{"name", "manager", pkg{path: "./etcdclaims/manager"}, 1},

		{"package doc", "OK", pkg{files: []file{documented, source(file{})}}, 0},
		{"package doc", "OK tests only", pkg{files: []file{test(file{})}}, 0},
		{"package doc", "none", pkg{files: []file{source(file{}), test(file{doc: true})}}, 1},
		{"package doc", "two", pkg{files: []file{documented, documented}}, 1},

		{"size", "OK", pkg{files: []file{source(file{lines: maxLines})}}, 0},
		{"size", "OK long test", pkg{files: []file{test(file{lines: maxLines + 1})}}, 0},
		{"size", "too long", pkg{files: []file{source(file{lines: maxLines + 1})}}, 1},

		{"function", "OK", pkg{files: []file{source(file{longest: function{"f", maxFunc}})}}, 0},
		{"function", "OK long test", pkg{files: []file{test(file{longest: function{"f", maxFunc + 1}})}}, 0},
		{"function", "too long", pkg{files: []file{source(file{longest: function{"f", maxFunc + 1}})}}, 1},

		{"leaks", "OK", pkg{files: []file{test(file{}), test(file{leaks: true})}}, 0},
		{"leaks", "OK no tests", pkg{files: []file{documented}}, 0},
		{"leaks", "no TestMain", pkg{files: []file{test(file{})}}, 1},
	}
	failed := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.rule+"/"+tt.name, func(t *testing.T) {
			if got := houseRules[tt.rule](tt.pkg); len(got) != tt.faults {
				t.Errorf("got %d faults %q, want %d", len(got), got, tt.faults)
			}
		})
		failed[tt.rule] = failed[tt.rule] || tt.faults > 0
	}
	for rule := range houseRules {
		if !failed[rule] {
			t.Errorf("no package above breaks the rule %q", rule)
		}
	}
}

func TestMatch(t *testing.T) {
	f := func(pattern, importPath string, want bool) {
		t.Helper()
		if got := match(pattern, importPath); got != want {
			t.Errorf("match(%q, %q) = %v, want %v", pattern, importPath, got, want)
		}
	}
	f("std", "testing", true)
	f("std", "net/http/httptest", true)
	f("std", "golang.org/x/sys/unix", false)
	f("std", "./fencing", false)
	f("std", ".", false)
	f("./fencing", "./fencing", true)
	f("./fencing", "./fencing/sqlguard", false)
	f("./fencing/...", "./fencing", true)
	f("./fencing/...", "./fencing/sqlguard", true)
	f("./sched/...", "./scheduler", false)
	f("testing/...", "testing", true)
	f("testing/...", "testing/synctest", true)
	f("internal/clock", "./internal/clock", false)
	f("go.etcd.io/etcd/server/...", "go.etcd.io/etcd/server/v3/embed", true)
	f("go.etcd.io/etcd/server/...", "go.etcd.io/etcd/client/v3", false)
}

func TestParseSource(t *testing.T) {
	lines := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	tests := []struct {
		name string
		file string
		src  string
		want file
	}{
		{
			"OK", "a.go",
			lines("// Package a is documented.", "package a", `import "`+module+`/fencing"`, `import "fmt"`),
			file{pkg: "a", doc: true, lines: 4, imports: []string{"./fencing", "fmt"}},
		},
		{
			"build tag is no doc", "a.go",
			lines("//go:build linux", "", "package a"),
			file{pkg: "a", lines: 3},
		},
		{
			"directive is no doc", "a.go",
			lines("//go:generate true", "package a"),
			file{pkg: "a", lines: 2},
		},
		{
			"licence is no doc", "a.go",
			lines("// Copyright 2026", "", "package a"),
			file{pkg: "a", lines: 3},
		},
		{
			"testetcd.Main", "a_test.go",
			lines("package a_test", "func TestMain(m *testing.M) { testetcd.Main(m) }"),
			file{pkg: "a_test", test: true, leaks: true, lines: 2},
		},
		{
			"goleak with options", "a_test.go",
			lines("package a", "func TestMain(m *testing.M) { x := 1; _ = x; goleak.VerifyTestMain(m, opts()...) }"),
			file{pkg: "a", test: true, leaks: true, lines: 2},
		},
		{
			"the longest function", "a.go",
			lines("package a", "", "// Short is short.", "func short() {}", "", "// Long is longer.", "func (T) long() {", "}", "func last() {}"),
			file{pkg: "a", lines: 9, longest: function{"long", 2}},
		},
		{
			"TestMain without goleak", "a_test.go",
			lines("package a", "func TestMain(m *testing.M) { os.Exit(m.Run()) }"),
			file{pkg: "a", test: true, lines: 2},
		},
		{
			"goleak elsewhere", "a_test.go",
			lines("package a", "func TestX(t *testing.T) { goleak.VerifyTestMain(nil) }"),
			file{pkg: "a", test: true, lines: 2},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.name = tt.file
			got, err := parseSource(tt.file, []byte(tt.src))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
	if _, err := parseSource("a.go", []byte("not Go")); err == nil {
		t.Error("no error for a file that is not Go")
	}
}

func describe(p pkg) string {
	var imports []string
	for _, f := range p.files {
		imports = append(imports, f.imports...)
	}
	return fmt.Sprintf("%s importing %v, linking %v", p.path, imports, p.deps)
}
