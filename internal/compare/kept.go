package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// kept is a run as -json keeps it, for -against.
type kept struct {
	Cores  int       `json:"cores"`
	System string    `json:"system"`
	Go     string    `json:"go"`
	Etcd   string    `json:"etcd"`
	Sync   float64   `json:"syncMs"`
	Rounds int       `json:"rounds"`
	Window string    `json:"window"`
	Rows   []keptRow `json:"rows"`
}

// keptRow is what was measured of a row: medians over the rounds.
type keptRow struct {
	Name    string `json:"name"` // as for -only
	Medians sample `json:"medians,omitempty"`
	Error   string `json:"error,omitempty"`
}

func keep(o options, m machine, results []result) kept {
	k := kept{
		Cores: m.cores, System: m.os, Go: m.golang, Etcd: m.etcd, Sync: float64(m.sync) / float64(time.Millisecond),
		Rounds: o.rounds, Window: o.window.String(),
	}
	for _, r := range results {
		for i, p := range r.points {
			for j, row := range p.rows {
				kr := keptRow{Name: label(r.workload, p, row), Medians: r.found[i].medians[j]}
				if err := r.found[i].errs[j]; err != nil {
					kr.Error = err.Error()
				}
				k.Rows = append(k.Rows, kr)
			}
		}
	}
	return k
}

func (k kept) write(path string) error {
	text, err := json.MarshalIndent(k, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readKept(path string) (k kept, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		return k, fmt.Errorf("-against: %w", err)
	}
	return k, nil
}

// much is by how much a row must have fallen to be named.
const much = 0.05

// frugality are metrics of which less is better, and that depend little on the machine.
var frugality = []metric{requests, memory, requesting, perThing, traffic, perMember, goroutines}

// fallen returns in what the rows of this SDK are worse than in an earlier run: ratios to the
// reference where there is one, and otherwise what they need.
func fallen(results []result, before kept) (all []string, rows int) {
	was := map[string]sample{}
	for _, r := range before.Rows {
		was[r.Name] = r.Medians
	}
	for _, r := range results {
		for i, p := range r.points {
			for j, row := range p.rows {
				name := label(r.workload, p, row)
				then, now := was[name], r.found[i].medians[j]
				if then == nil || now == nil || row.reference || !strings.HasPrefix(row.name, "etcdclaims") {
					continue
				}
				rows++
				for _, m := range r.judged(then, now) {
					change := now[m]/then[m] - 1
					if change > much && r.less(m) || change < -much && !r.less(m) {
						all = append(all, fmt.Sprintf("%s: %s %s, was %s (%+.0f %%)", name, m, number(now[m]), number(then[m]), 100*change))
					}
				}
			}
		}
	}
	return all, rows
}

// judged returns by which metrics a row is judged.
func (w workload) judged(then, now sample) (by []metric) {
	both := func(m metric) bool { return then[m] > 0 && now[m] > 0 }
	if both(ratio) {
		return []metric{ratio}
	}
	for _, m := range w.columns {
		if slices.Contains(frugality, m) && both(m) {
			by = append(by, m)
		}
	}
	return by
}

// less reports whether less of a metric is better.
func (w workload) less(m metric) bool {
	if m == ratio {
		m = w.compare
	}
	return m != rate && m != claiming
}

// printFallen says what fell since an earlier run, which was kept in a file.
func printFallen(out io.Writer, path string, before kept, o options, m machine, results []result) error {
	all, rows := fallen(results, before)
	text := fmt.Sprintf("\nOf %d rows that %s has too, none is worse by more than %.0f %%.\n", rows, path, 100*much)
	if len(all) > 0 {
		text = fmt.Sprintf("\nWorse than in %s by more than %.0f %%, of %d rows:\n  %s\n", path, 100*much, rows, strings.Join(all, "\n  "))
	}
	if this := keep(o, m, nil); this.Cores != before.Cores || this.System != before.System || this.Etcd != before.Etcd || this.Rounds != before.Rounds || this.Window != before.Window {
		text += fmt.Sprintf("That was measured with %d cores, %s, etcd %s, in %d rounds of %s.\n", before.Cores, before.System, before.Etcd, before.Rounds, before.Window)
	}
	_, err := io.WriteString(out, text)
	return err
}
