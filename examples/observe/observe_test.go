package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// start runs the example until the test ends, and returns where its metrics are.
func start(t *testing.T) (url string) {
	t.Helper()
	bin := t.TempDir() + "/observe"
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Stderr = io.Discard
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "metrics at "))
}

// scrape returns the names of the time series at the URL.
func scrape(t *testing.T, url string) map[string]bool {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // the test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	names := map[string]bool{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if line := lines.Text(); !strings.HasPrefix(line, "#") {
			names[line[:strings.IndexAny(line, "{ ")]] = true
		}
	}
	return names
}

// TestRun runs the example, and compares what it exports with boards, alert rules
// and documentation.
func TestRun(t *testing.T) {
	url := start(t)
	deadline := time.Now().Add(time.Minute)
	for {
		names := scrape(t, url)
		rare := []string{"etcdclaims_renewal_margin_seconds_sum", "etcdclaims_zombie_count_total", "etcdclaims_takeover_count_total", "etcdclaims_wait_duration_seconds_sum", "etcdclaims_queue_dead_count", "messaging_process_duration_seconds_sum", "etcdclaims_tick_count_total", "etcdclaims_fence_lag_seconds_sum", "etcdclaims_owner_changes_total", "etcdclaims_tick_next_due_seconds", "etcdclaims_run_duration_seconds_sum"}
		missing := ""
		for _, name := range rare {
			if !names[name] {
				missing = name
			}
		}
		if missing == "" {
			testBoards(t, names)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s was not exported within a minute", missing)
		}
		time.Sleep(200 * time.Millisecond) // a scrape sees what there is; nothing announces it
	}
}
