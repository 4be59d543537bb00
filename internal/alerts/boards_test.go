package alerts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

const docs = "../../docs/"

// expressions returns every PromQL expression of the boards and alert rules, by
// where it stands.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	boards, err := filepath.Glob(docs + "grafana/*.json")
	if err != nil || len(boards) < 3 {
		t.Fatal(boards, err)
	}
	for _, name := range boards {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			UID    string
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := "etcdclaims-" + strings.TrimSuffix(filepath.Base(name), ".json"); board.UID != want {
			t.Errorf("the uid of %s is %q, want %q", name, board.UID, want) // so that an import replaces it
		}
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				all[filepath.Base(name)+" "+p.Title+" "+target.Expr] = strings.NewReplacer("$__rate_interval", "1m", "$job", ".*").Replace(target.Expr)
			}
		}
	}
	for _, rule := range rules(t) {
		all[rule.Alert] = rule.Expr
	}
	return all
}

// metricsOf returns the names of the metrics in an expression.
func metricsOf(t *testing.T, where, expr string) []string {
	t.Helper()
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return nil
	}
	var names []string
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			for _, m := range v.LabelMatchers {
				if m.Name == "__name__" {
					names = append(names, m.Value)
				}
			}
		}
		return nil
	})
	if len(names) == 0 {
		t.Errorf("%s names no metric", where)
	}
	return names
}

// testBoards fails unless a run has exported each metric that a board or an alert
// rule names, unless the boards show each that it exported, and unless docs/operations.md
// has what to do at each alert, where its runbook is. That it has each metric is tested beside the instruments.
func testBoards(t *testing.T, exported map[string]bool) {
	shown := map[string]bool{"target_info": true}
	for where, expr := range expressions(t) {
		for _, name := range metricsOf(t, where, expr) {
			if !exported[name] {
				t.Errorf("%s: nothing has exported %s", where, name)
			}
			shown[family(name)] = true
		}
	}
	manual, err := os.ReadFile(docs + "operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range exported {
		if !shown[family(name)] {
			t.Errorf("no board shows %s", family(name))
		}
	}
	for _, rule := range rules(t) {
		if !strings.Contains(string(manual), "### "+rule.Alert+"\n") {
			t.Errorf("docs/operations.md does not say what to do at %s", rule.Alert)
		}
		if url := rule.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/operations.md#"+strings.ToLower(rule.Alert)) {
			t.Errorf("the runbook of %s is %s", rule.Alert, url)
		}
	}
}

// family returns the name of the metric that a time series is of.
func family(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && (strings.HasSuffix(base, "_seconds") || strings.HasSuffix(base, "_ratio")) {
			return base
		}
	}
	return name
}
