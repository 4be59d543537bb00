package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A run that was kept is read again, and what is worse than in it is named: by ratios, and
// without them by what is needed. Peers are not judged.
func TestAgainst(t *testing.T) {
	run := func(ours, peer, wake, bytes float64) []result {
		one := func(name string, compare metric, columns []metric, rows []row, medians ...sample) result {
			return result{
				workload: workload{name: name, compare: compare, columns: columns, points: []point{{name: "p", rows: rows}}},
				found:    []outcome{{medians: medians, errs: make([]error, len(medians))}},
			}
		}
		rows := []row{{name: "etcdclaims"}, {name: "etcd Mutex", reference: true}, {name: "peer"}}
		return []result{
			one("cycles", rate, []metric{rate, ratio}, rows, sample{rate: 7, ratio: ours}, sample{rate: 9, ratio: 1}, sample{ratio: peer}),
			one("wake-up", p50, []metric{p50, ratio}, rows[:1], sample{p50: 3, ratio: wake}),
			one("holding", "", []metric{memory, goroutines}, rows[:1], sample{memory: bytes}),
		}
	}
	path := filepath.Join(t.TempDir(), "run.json")
	if err := keep(options{}, machine{}, run(2, 2, 2, 200)).write(path); err != nil {
		t.Fatal(err)
	}
	before, err := readKept(path)
	if err != nil {
		t.Fatal(err)
	}
	f := func(results []result, want ...string) {
		t.Helper()
		got, rows := fallen(results, before)
		if !slices.Equal(got, want) || rows != 3 {
			t.Errorf("%d rows, fallen are %q, want %q", rows, got, want)
		}
	}
	f(run(1.95, 1, 2.05, 205))
	f(run(3, 3, 1, 100))
	f(run(1.5, 2, 2, 200), "cycles/p/etcdclaims: ratio 1.50, was 2.00 (-25 %)")
	f(run(2, 2, 3, 400), "wake-up/p/etcdclaims: ratio 3.00, was 2.00 (+50 %)", "holding/p/etcdclaims: bytes each 400, was 200 (+100 %)")

	var out strings.Builder
	if err := printFallen(&out, path, before, options{rounds: 3}, machine{}, run(1.5, 2, 2, 200)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Worse than in " + path + " by more than 5 %, of 3 rows:\n  cycles/p/", "was measured with 0 cores"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", &out, want)
		}
	}
	if _, err := readKept(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error for a file that is not there")
	}
}
