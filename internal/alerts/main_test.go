package alerts

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// start runs a fleet until the test ends, and returns where its metrics are.
func start(t *testing.T) (url string) {
	t.Helper()
	etcd := claimtest.Start(t).Etcd(t)
	tel, metrics, err := newTelemetry()
	check(t, err)
	server := httptest.NewServer(metrics)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runFleet(ctx, etcd, "/fleet/", tel) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Close()
		check(t, tel.Close())
	})
	return server.URL
}

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

func TestFleet(t *testing.T) {
	url := start(t)
	deadline := time.Now().Add(time.Minute)
	for {
		names := scrape(t, url)
		rare := []string{"etcdclaims_renewal_margin_seconds_sum", "etcdclaims_zombie_count_total", "etcdclaims_takeover_count_total", "etcdclaims_wait_duration_seconds_sum", "etcdclaims_queue_dead_letters", "messaging_process_duration_seconds_sum", "etcdclaims_tick_count_total", "etcdclaims_fence_lag_seconds_sum", "etcdclaims_owner_changes_total", "etcdclaims_tick_next_due_timestamp_seconds", "etcdclaims_run_duration_seconds_sum"}
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
