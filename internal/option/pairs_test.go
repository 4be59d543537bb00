package option_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// calls are the acquiring calls, by the kind of option that they accept. OPT stands
// for the option.
var calls = map[string][]string{
	"acquire": {
		`c.Acquire(ctx, "k", OPT)`,
		`c.TryAcquire(ctx, "k", OPT)`,
		`c.Run(ctx, "k", nil, OPT)`,
		`c.TryRun(ctx, "k", nil, OPT)`,
		`middleware.Func(c, key, fn, middleware.FuncConfig{}, etcdclaims.TTL(0), OPT)`,
		`middleware.Exclusive(c, nil, middleware.Config{}, OPT)`,
		`middleware.Singleton(ctx, c, "k", nil, middleware.SingletonConfig{}, OPT)`,
		`grpcmw.Exclusive(c, grpcmw.Key{}, grpcmw.Config{}, OPT)`,
		`jobs.NewElector(c, "k", middleware.SingletonConfig{}, OPT)`,
		`jobs.River(c, func(string) string { return "" }, jobs.Config{}, OPT)`,
		`jobs.Watermill[func(message) ([]message, error)](c, keyOf, jobs.Config{}, OPT)`,
		`jobs.WatermillNoPublish[func(message) error](c, keyOf, jobs.Config{}, OPT)`,
		`jobs.NewLocker[unlocker](c, etcdclaims.MinHold(0), OPT)`,
	},
	"work": {
		`works.Begin(ctx, "k", OPT)`,
		`works.TryBegin(ctx, "k", OPT)`,
		`works.Run(ctx, "k", nil, OPT)`,
		`works.TryRun(ctx, "k", nil, OPT)`,
		`works.Once(ctx, "k", nil, OPT)`,
		`works.TryOnce(ctx, "k", nil, OPT)`,
		`middleware.FuncOnce(works, key, fn, middleware.FuncConfig{}, etcdclaims.TTL(0), OPT)`,
		`middleware.Once(works, nil, middleware.OnceConfig{}, OPT)`,
		`jobs.NewTicks(c, works, "job", nil, jobs.TicksConfig{}, etcdclaims.TTL(0), OPT)`,
	},
	"all":  {`c.TryAcquireAll(ctx, nil, OPT)`},
	"many": {`c.TryAcquireEach(ctx, nil, OPT)`},
}

// accepts says which calls accept an option.
var accepts = map[string]string{
	`etcdclaims.TTL(0)`:        "acquire work all many",
	`etcdclaims.MaxHold(0)`:    "acquire work all many",
	`etcdclaims.Note(nil)`:     "acquire work all many",
	`etcdclaims.MinHold(0)`:    "acquire all many",
	`etcdclaims.If()`:          "acquire work all",
	`etcdclaims.Then()`:        "acquire work all",
	`etcdclaims.Manual()`:      "acquire work",
	`etcdclaims.Supersede()`:   "acquire work",
	`etcdclaims.Reentrant()`:   "acquire",
	`etcdclaims.Slots(1)`:      "acquire",
	`etcdclaims.Shared()`:      "acquire",
	`etcdclaims.Suspectable()`: "acquire",
	`etcdclaims.Prefer(0)`:     "acquire",
	`etcdclaims.LazyRelease()`: "acquire",
	`work.AtMostOnce()`:        "work",
	`work.Again()`:             "work",
	`outsider{}`:               "", // options are those of etcdclaims
	`etcdclaims.Option(nil)`:   "acquire work all many",
	`[]etcdclaims.Option{}[0]`: "acquire work all many",
}

const program = `package pairs

import (
	"context"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/grpcmw"
	"github.com/etcdclaims/claims/middleware/jobs"
)

var (
	ctx context.Context
	c   *etcdclaims.Client
	works *work.Runner
	cl    *etcdclaims.Claim
	key func(string) string
	fn  func(context.Context, string) (string, error)
)

type outsider struct{}

func (outsider) acquire() {}
func (outsider) work()    {}
func (outsider) all()     {}
func (outsider) each()    {}

type unlocker interface{ Unlock(context.Context) error }

type message interface {
	Context() context.Context
	SetContext(context.Context)
}

func keyOf(message) string { return "" }

func all() {
`

// TestPairs shows that an option compiles with each call that accepts it, and with
// no other.
func TestPairs(t *testing.T) {
	lines := strings.Split(program, "\n")
	want := map[int]bool{} // lines that compile
	for _, opt := range slices.Sorted(maps.Keys(accepts)) {
		for kind, forms := range calls {
			for _, form := range forms {
				lines[len(lines)-1] = "\t" + strings.Replace(form, "OPT", opt, 1)
				want[len(lines)] = slices.Contains(strings.Fields(accepts[opt]), kind)
				lines = append(lines, "")
			}
		}
	}
	lines[len(lines)-1] = "}\n"
	failed := compile(t, strings.Join(lines, "\n"))
	for line, why := range failed {
		if _, ok := want[line]; !ok {
			t.Errorf("line %d, %q: %s", line, lines[line-1], why)
		}
	}
	for line, right := range want {
		switch why := failed[line]; {
		case right && why != "":
			t.Errorf("%s: %s", strings.TrimSpace(lines[line-1]), why)
		case !right && why == "":
			t.Errorf("%s compiles", strings.TrimSpace(lines[line-1]))
		}
	}
}

var compileError = regexp.MustCompile(`(?m)^\S*pairs\.go:(\d+):\d+: (.*)$`)

// compile compiles a package of one file, which it shows to the compiler without
// storing it in the module. It returns the lines that are wrong, and why.
func compile(t *testing.T, source string) map[int]string {
	t.Helper()
	dir := t.TempDir()
	stored := filepath.Join(dir, "pairs.go")
	if err := os.WriteFile(stored, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	shown, err := filepath.Abs(filepath.Join("pairs", "pairs.go"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{shown: stored}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlay, "-gcflags=-e", "./pairs") // -e: all errors
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	failed := map[int]string{}
	for _, found := range compileError.FindAllStringSubmatch(string(out), -1) {
		line, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		failed[line] = fmt.Sprint(failed[line], found[2])
	}
	if len(failed) == 0 {
		t.Fatalf("nothing was found wrong:\n%s", out)
	}
	return failed
}
