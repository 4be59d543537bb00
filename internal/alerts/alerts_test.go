package alerts

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"go.yaml.in/yaml/v3"
)

// rule is an alert rule.
type rule struct {
	Alert, Expr string
	For         yamlDuration
	Annotations map[string]string
}

type yamlDuration time.Duration

func (d *yamlDuration) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := time.ParseDuration(n.Value)
	*d = yamlDuration(parsed)
	return err
}

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(docs + "grafana/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// failures are, for each alert, time series of a failure and of a system in order:
// a sample every 30 s, in the notation of Prometheus' tests. Empty lines are between failures.
var failures = map[string]struct{ bad, good string }{
	"EtcdclaimsUnreachable": {
		`etcdclaims_client_unreachable{job="j",instance="a"} 0x20 1x40`, `etcdclaims_client_unreachable{job="j",instance="a"} 0x60`,
	},
	"EtcdclaimsRenewalMarginLow": {
		`etcdclaims_renewal_margin_ratio_bucket{job="j",le="0.1"} 0+1x60
		etcdclaims_renewal_margin_ratio_bucket{job="j",le="0.55"} 0+20x60
		etcdclaims_renewal_margin_ratio_bucket{job="j",le="+Inf"} 0+20x60`,
		`etcdclaims_renewal_margin_ratio_bucket{job="j",le="0.5"} 0x60
		etcdclaims_renewal_margin_ratio_bucket{job="j",le="0.55"} 0+20x60
		etcdclaims_renewal_margin_ratio_bucket{job="j",le="+Inf"} 0+20x60`,
	},
	"EtcdclaimsClaimsLost": {
		`etcdclaims_claim_ends_total{job="j",instance="a",etcdclaims_reason="expired"} 3x60
		etcdclaims_claim_ends_total{job="j",instance="b",etcdclaims_reason="expired"} _x30 1x30`, // its first
		`etcdclaims_claim_ends_total{job="j",etcdclaims_reason="released"} 0+7x60
		etcdclaims_claim_ends_total{job="j",etcdclaims_reason="expired"} 3x24 stale 3x60`, // a scrape failed
	},
	"EtcdclaimsHandlerOverdue": {
		`etcdclaims_handler_overdue{job="j",instance="a"} 0x20 1x40`,
		`etcdclaims_handler_overdue{job="j",instance="a"} 0x40 1 0x20`, // it stopped after all
	},
	"EtcdclaimsStaleWrites": {
		`etcdclaims_fence_admissions_total{job="j",etcdclaims_gate="g",etcdclaims_result="stale"} _x30 1x30`,
		`etcdclaims_fence_admissions_total{job="j",etcdclaims_gate="g",etcdclaims_result="admitted"} 0+9x60
		etcdclaims_fence_admissions_total{job="j",etcdclaims_gate="g",etcdclaims_result="stale"} 3x24 stale 3x60`,
	},
	"EtcdclaimsRequestErrors": {
		`etcdclaims_request_count_total{job="j",etcdclaims_result="error"} 0+1x60
		etcdclaims_request_count_total{job="j",etcdclaims_result="ok"} 0+9x60`,
		`etcdclaims_request_count_total{job="j",etcdclaims_result="error"} 0+1x60
		etcdclaims_request_count_total{job="j",etcdclaims_result="ok"} 0+99x60`,
	},
	"EtcdclaimsNoOwner": {
		`etcdclaims_owner{job="j",instance="a",etcdclaims_group="g"} 1x20 0x40
		etcdclaims_owner{job="j",instance="b",etcdclaims_group="g"} 0x60`,
		`etcdclaims_owner{job="j",instance="a",etcdclaims_group="g"} 1x20 0x40
		etcdclaims_owner{job="j",instance="b",etcdclaims_group="g"} 0x20 1x40`,
	},
	"EtcdclaimsTicksOverdue": {
		`etcdclaims_tick_overdue_seconds{job="j",etcdclaims_group="g"} 0x10 0+30x50`,
		`etcdclaims_tick_overdue_seconds{job="j",etcdclaims_group="g"} 0x40 30 0 2 0x20`,
	},
	"EtcdclaimsTicksLost": {
		`etcdclaims_tick_count_total{job="j",etcdclaims_group="g",etcdclaims_job="x",etcdclaims_outcome="missed"} _x30 3x30`,
		`etcdclaims_tick_count_total{job="j",etcdclaims_group="g",etcdclaims_job="x",etcdclaims_outcome="skipped"} 0+1x60
		etcdclaims_tick_count_total{job="j",etcdclaims_group="g",etcdclaims_job="x",etcdclaims_outcome="missed"} 3x24 stale 3x60`,
	},
	"EtcdclaimsRunsFail": {
		`etcdclaims_tick_count_total{job="j",etcdclaims_group="g",etcdclaims_job="x",etcdclaims_outcome="failed"} 0+3x60
		etcdclaims_tick_count_total{job="j",etcdclaims_group="g",etcdclaims_job="x",etcdclaims_outcome="ok"} 0+1x60

		etcdclaims_tick_count_total{job="j",etcdclaims_group="g",etcdclaims_job="x",etcdclaims_outcome="failed"} _x32 1x40`,
		`etcdclaims_tick_count_total{job="j",etcdclaims_group="g",etcdclaims_job="x",etcdclaims_outcome="failed"} 0+1x60
		etcdclaims_tick_count_total{job="j",etcdclaims_group="g",etcdclaims_job="x",etcdclaims_outcome="ok"} 0+3x60`,
	},
	"EtcdclaimsQueueStuck": {
		`etcdclaims_queue_oldest_seconds{job="j",messaging_destination_name="q"} 0+30x60
		etcdclaims_queue_paused_seconds{job="j",messaging_destination_name="q"} 0x60`,
		`etcdclaims_queue_oldest_seconds{job="j",messaging_destination_name="q"} 0+30x60
		etcdclaims_queue_paused_seconds{job="j",messaging_destination_name="q"} 1x60`,
	},
	"EtcdclaimsDeadLetters": {
		`etcdclaims_queue_dead_letters{job="j",messaging_destination_name="q"} 2x60`, // as long as there are any
		`etcdclaims_queue_dead_letters{job="j",messaging_destination_name="q"} 2x20 0x40`,
	},
	"EtcdclaimsWorkOrphaned": {
		`etcdclaims_work_records{job="j",etcdclaims_work="w",etcdclaims_work_state="orphaned"} 0x20 1x40`,
		`etcdclaims_work_records{job="j",etcdclaims_work="w",etcdclaims_work_state="orphaned"} 0x40 1x5 0x15`, // it is taken over
	},
	"EtcdclaimsWorkDead": {
		`etcdclaims_work_records{job="j",etcdclaims_work="w",etcdclaims_work_state="dead"} 2x60`,
		`etcdclaims_work_records{job="j",etcdclaims_work="w",etcdclaims_work_state="dead"} 2x20 0x40`,
	},
	"EtcdclaimsOwnerFlaps": {
		`etcdclaims_owner_changes_total{job="j",instance="a",etcdclaims_group="g"} 0+1x60
		etcdclaims_owner_changes_total{job="j",instance="b",etcdclaims_group="g"} 0+1x60`,
		`etcdclaims_owner_changes_total{job="j",instance="a",etcdclaims_group="g"} 7x30 8x30`, // a deployment
	},
	"EtcdclaimsPausedLong": {
		`etcdclaims_queue_paused_seconds{job="j",messaging_destination_name="q"} 85000+30x60

		etcdclaims_job_paused_seconds{job="j",etcdclaims_group="g"} 85000+30x60`,
		`etcdclaims_job_paused_seconds{job="j",etcdclaims_group="g"} 85000x20 0x40
		etcdclaims_queue_paused_seconds{job="j",messaging_destination_name="q"} 0+30x60`,
	},
	"EtcdclaimsWaitsLong": {
		`etcdclaims_call_oldest_seconds{job="j",instance="a"} 3000+30x60`, `etcdclaims_call_oldest_seconds{job="j",instance="a"} 0+30x30 0x30`,
	},
	"EtcdclaimsPartitionsFree": {
		`etcdclaims_group_partitions{job="j",etcdclaims_group="g",etcdclaims_partition_state="free"} 0x20 3x40`,
		`etcdclaims_group_partitions{job="j",etcdclaims_group="g",etcdclaims_partition_state="free"} 0x20 3 3 0x40
		etcdclaims_group_partitions{job="j",etcdclaims_group="g",etcdclaims_partition_state="reserved"} 3x60`,
	},
}

// TestAlerts evaluates each alert rule at the end of half an hour of a failure, in which it
// must fire, and of a system in order, in which it must not.
func TestAlerts(t *testing.T) {
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	seen := map[string]bool{}
	for _, r := range rules(t) {
		seen[r.Alert] = true
		t.Run(r.Alert, func(t *testing.T) {
			staged, ok := failures[r.Alert]
			if !ok {
				t.Fatal("no failure is staged for it")
			}
			for bad := range strings.SplitSeq(staged.bad, "\n\n") {
				if !fires(t, engine, r, bad) {
					t.Errorf("did not fire in the failure %s", bad)
				}
			}
			if fires(t, engine, r, staged.good) {
				t.Error("fired though all is well")
			}
		})
	}
	for name := range failures {
		if !seen[name] {
			t.Errorf("there is no rule %s", name)
		}
	}
}

// fires reports whether the expression of a rule has a result for as long as the
// rule's For, at every evaluation.
func fires(t *testing.T, engine *promql.Engine, r rule, series string) bool {
	t.Helper()
	const every = 30 * time.Second
	storage := promqltest.LoadedStorage(t, "load 30s\n"+series)
	defer storage.Close()
	start := time.Unix(0, 0).Add(15 * time.Minute) // what was before is known for longer than the rules look back
	query, err := engine.NewRangeQuery(context.Background(), storage, nil, r.Expr, start, start.Add(15*time.Minute), every)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	matrix, err := query.Exec(context.Background()).Matrix()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range matrix {
		run, last := int64(0), int64(-1)
		for _, p := range s.Floats {
			if last >= 0 && p.T-last == every.Milliseconds() {
				run += p.T - last
			} else {
				run = 0
			}
			last = p.T
			if run >= time.Duration(r.For).Milliseconds() {
				return true
			}
		}
	}
	return false
}
