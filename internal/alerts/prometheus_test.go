package alerts

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPrometheus stages a failure for each alert, and has a Prometheus scrape what
// comes of it. It has the rules in fast motion, and all must fire.
func TestPrometheus(t *testing.T) {
	bin, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("needs Prometheus (Debian: apt-get install prometheus)")
	}
	t.Parallel()
	dir := t.TempDir()
	staged := newIncidents(t)
	addr := runPrometheus(t, bin, dir, strings.TrimPrefix(staged.url, "http://"))
	staged.begin()
	fired := map[string]bool{}
	began := time.Now()
	for deadline := began.Add(3 * time.Minute); len(fired) < len(failures); time.Sleep(100 * time.Millisecond) {
		for _, r := range askRules(t, addr) {
			if r.Health == "err" {
				t.Fatalf("rule %s: %s", r.Name, r.LastError)
			}
			if r.State == "firing" && !fired[r.Name] {
				t.Logf("%s fired after %v", r.Name, time.Since(began).Round(time.Second))
				fired[r.Name] = true
			}
		}
		if fired["EtcdclaimsUnreachable"] && fired["EtcdclaimsClaimsLost"] && fired["EtcdclaimsNoOwner"] && fired["EtcdclaimsRequestErrors"] {
			staged.heal()
		}
		if time.Now().After(deadline) {
			for name := range failures {
				if !fired[name] {
					t.Errorf("%s did not fire within three minutes", name)
				}
			}
			return
		}
	}
}

// faster returns the rules with a second for each minute, and 10 s for a time of more than that.
func faster(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(docs + "grafana/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fast := regexp.MustCompile(`\d+[smh]\b|> \d\d+`).ReplaceAllStringFunc(string(text), func(s string) string {
		if seconds, ok := strings.CutPrefix(s, "> "); ok {
			n, _ := strconv.Atoi(seconds)
			return fmt.Sprint("> ", min(n/60, 10))
		}
		d, _ := time.ParseDuration(s)
		return fmt.Sprint((d / 60).Milliseconds(), "ms")
	})
	return fast
}

// runPrometheus runs a Prometheus until the test ends, and returns its address.
func runPrometheus(t *testing.T, bin, dir, target string) (addr string) {
	t.Helper()
	check(t, os.WriteFile(dir+"/alerts.yaml", []byte(faster(t)), 0o600))
	config := fmt.Sprintf(`
global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 500ms}
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: observe
    metrics_path: /
    static_configs: [{targets: [%q]}]
`, target)
	check(t, os.WriteFile(dir+"/prometheus.yml", []byte(config), 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	addr = listener.Addr().String()
	_ = listener.Close()
	var out strings.Builder
	cmd := exec.Command(bin, "--config.file="+dir+"/prometheus.yml", "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+addr)
	cmd.Stderr = &out
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	return addr
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
