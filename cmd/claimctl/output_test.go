package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

var (
	noon    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	claimed = etcdclaims.Info{
		Key: "orders/42", Held: true, Fence: 8812, Claim: "0190-c", Owner: "api-7", Instance: "0190-i",
		Since: noon, Attempt: 2, Note: []byte("step 3\x1b[2J of 5\nand more"), Lease: 0x7587, TTL: 9 * time.Second, Expires: noon.Add(time.Hour),
	}
	terms = []admin.Term{
		{Key: "orders/42", Fence: 8790, Owner: "worker-3", Since: noon, Attempt: 1, EndRevision: 8801, Ending: "lease ended"},
		{Key: "orders/42", Fence: 8802, Owner: "a\u202eb", Since: noon, EndRevision: 8811, Ending: "forced", Cause: "ann: stuck"},
		{Key: "orders/42", Fence: 8812, Owner: "api-7", Since: noon, Attempt: 2},
	}
	record = work.Record{
		Key: "orders/42", State: work.StateFailed, Attempt: 2, Fence: 8812, Owner: "api-7", Begun: noon, Ended: noon,
		NotBefore: noon.Add(time.Minute), Error: "disk\nfull",
	}
)

// show returns the list in every format.
func show[T view](t *testing.T, columns string, rows []T) string {
	t.Helper()
	var out bytes.Buffer
	for _, format := range []string{formatTable, formatWide, formatJSON, formatLines, formatYAML, formatName} {
		a := &app{format: format, out: &out}
		if err := printList(a, columns, sequence(rows)); err != nil {
			t.Fatal(err)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func TestFormats(t *testing.T) {
	t.Parallel()
	golden(t, "ls", show(t, claimColumns, views([]etcdclaims.Info{
		claimed, {Key: "orders/7", Held: true, Fence: 1<<47 + 5, Owner: "b", Kind: "zombie"},
	}, viewClaim)))
	golden(t, "history", show(t, termColumns, views(terms, viewTerm)))
	golden(t, "work", show(t, workColumns, views([]work.Record{record}, viewWork)))
	if got := show(t, claimColumns, []claimView(nil)); !bytes.Contains([]byte(got), []byte("\n[]\n")) {
		t.Errorf("an empty list: %s", got)
	}
}

func TestExplainText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	previous, job := viewTerm(terms[1]), viewWork(record)
	x := explanation{
		claimView: viewClaim(claimed), Left: "9s", Work: &job, Previous: &previous,
		Renewal: &renewal{TTL: "15s", is: explain.Renewal{At: noon.Add(81 * time.Second), TTL: 15 * time.Second, Overdue: true}},
		Waiting: []waiterView{{Owner: "api-8", Since: noon, Ghost: true}, {Owner: "api-9"}},
		Next:    &nextView{Owner: "api-9", At: noon.Add(time.Hour)},
	}
	x.text(&out, noon.Add(90*time.Second), "claimctl")
	out.WriteString("\n")
	explanation{claimView: viewClaim(etcdclaims.Info{Key: "free"})}.text(&out, noon, "claimctl")
	golden(t, "explain", out.String())
}

// A table of jobs leaves out what each cron schedule has, and shows the same schedule.
func TestJobSchedule(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"TZ=Europe/Berlin 30 2 * * *":           "TZ=Europe/Berlin 30 2 * * *",
		"TZ=Europe/Berlin GAP=skip 30 2 * * *":  "TZ=Europe/Berlin GAP=skip 30 2 * * *",
		"TZ=Europe/Berlin FOLD=both 30 2 * * *": "TZ=Europe/Berlin FOLD=both 30 2 * * *",
		"*/5 * * * *":                           "TZ=UTC */5 * * * *",
		"0 */5 * * * *":                         "TZ=UTC */5 * * * *",
		"*/5 * * * * *":                         "TZ=UTC */5 * * * * *",
		"0 0 0 1 1 * 2030-2040":                 "TZ=UTC 0 0 0 1 1 * 2030-2040",
		"@every 10m0s":                          "@every 10m0s",
	} {
		text := fmt.Sprint(calendar.Must(calendar.Cron(expr)))
		if got := viewJob(sched.JobInfo{Schedule: text}).Short; got != want {
			t.Errorf("%q of %q is shown as %q, want %q", expr, text, got, want)
		} else if again := fmt.Sprint(calendar.Must(calendar.Cron(got))); again != text {
			t.Errorf("%q is shown as %q, which is %q", text, got, again)
		}
	}
	const calendar = " EXCEPT dates(UTC: 12-25) ONLY x=y 1 2"
	if got := shortSchedule("TZ=UTC GAP=fire FOLD=first 0 30 2 * * *" + calendar); got != "TZ=UTC 30 2 * * *"+calendar {
		t.Error(got)
	}
}

// Commands to be copied name the system that was looked at, and no password.
func TestRemedies(t *testing.T) {
	t.Parallel()
	given := func(args ...string) *app {
		a := &app{}
		a.flags = a.root().PersistentFlags()
		if err := a.flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		a.secure.Cert = "/from/environment"
		return a
	}
	a := given("--endpoints", "h1:2379,h2:2379", "--cacert", "/ca.pem", "--insecure-skip-tls-verify",
		"--user", "root:secret", "--password", "secret", "--prefix", "/a b/")
	for got, want := range map[string]string{
		a.claimctl():        "claimctl --endpoints h1:2379,h2:2379 --cacert /ca.pem --insecure-skip-tls-verify --prefix '/a b/'",
		a.etcdctl():         "etcdctl --endpoints h1:2379,h2:2379 --cacert /ca.pem --insecure-skip-tls-verify",
		a.etcdctlAtMember(): "etcdctl --cacert /ca.pem --insecure-skip-tls-verify",
		a.etcdctlAsRoot():   "etcdctl --endpoints h1:2379,h2:2379 --cacert /ca.pem --insecure-skip-tls-verify --user root",
		given().claimctl():  "claimctl",
		given("--cacert", "ca.pem", "--cert", "app.pem", "--key", "app-key.pem").etcdctlAsRoot(): "etcdctl --cacert ca.pem",
		given("-d", "claims.test", "--insecure-discovery=false").claimctl(): "claimctl --discovery-srv claims.test " +
			"--insecure-discovery=false",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Entries that cannot be read hide no others, in no format. Without an entry nothing is printed.
func TestListWithErrors(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	rows := func(yield func(queueName, error) bool) {
		_ = yield(queueName{"a"}, nil) && yield(queueName{}, first) && yield(queueName{"b"}, nil) && yield(queueName{}, second)
	}
	for format, want := range map[string]string{
		formatTable: "QUEUE\na\nb\n",
		formatJSON:  "[\n  {\n    \"queue\": \"a\"\n  },\n  {\n    \"queue\": \"b\"\n  }\n]\n",
		formatLines: "{\"queue\":\"a\"}\n{\"queue\":\"b\"}\n",
		formatName:  "a\nb\n",
	} {
		var out bytes.Buffer
		err := printList(&app{format: format, out: &out}, "QUEUE", rows)
		if out.String() != want || !errors.Is(err, first) || !errors.Is(err, second) || err.Error() != "first; second" {
			t.Errorf("%s: %q, %v", format, out.String(), err)
		}
		out.Reset()
		if err := printList(&app{format: format, out: &out}, "QUEUE", sequence[queueName](nil, first)); err != first || out.Len() > 0 { //nolint:errorlint // itself
			t.Errorf("%s: %q, %v", format, out.String(), err)
		}
	}
}
