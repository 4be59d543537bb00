package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPrometheus lets a Prometheus scrape the example with the alert rules as they
// are. In the example a late write is refused every few seconds, for which one of
// them must fire; TestAlerts has the others.
func TestPrometheus(t *testing.T) {
	bin, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("needs Prometheus (Debian: apt-get install prometheus)")
	}
	target := strings.TrimSuffix(strings.TrimPrefix(start(t), "http://"), "/metrics")
	alerts, err := filepath.Abs(docs + "grafana/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: observe
    static_configs: [{targets: [%q]}]
`, alerts, target)
	if err := os.WriteFile(dir+"/prometheus.yml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	var out strings.Builder
	cmd := exec.CommandContext(t.Context(), bin, "--config.file="+dir+"/prometheus.yml", "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+addr)
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	}()
	var have []alertState
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		have = askRules(t, addr)
		for _, r := range have {
			if r.Health == "err" {
				t.Fatalf("rule %s: %s", r.Name, r.LastError)
			}
			if r.Name == "EtcdclaimsStaleWrites" && r.State == "firing" && len(have) == len(failures) {
				return
			}
		}
	}
	t.Errorf("EtcdclaimsStaleWrites did not fire within a minute: %+v", have)
}

// alertState is what Prometheus knows of an alert rule.
type alertState struct{ Name, State, Health, LastError string }

// askRules returns the alert rules of the Prometheus at the address, or none if it
// is not ready.
func askRules(t *testing.T, addr string) []alertState {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get("http://" + addr + "/api/v1/rules") //nolint:noctx // it is bounded by the test
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			Groups []struct{ Rules []alertState }
		}
	}
	if json.NewDecoder(resp.Body).Decode(&answer) != nil || len(answer.Data.Groups) == 0 {
		return nil
	}
	return answer.Data.Groups[0].Rules
}
