package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0123: "0.0123", 1: "1", 9.876: "9.88", 12.34: "12.3", 123.4: "123", 1234567: "1,234,567"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
}

// Ratios are of the same round: of three rounds in which everything was twice as
// fast as in the one before, the ratio is that of each, not of the medians.
func TestRatios(t *testing.T) {
	rows := []row{{name: "ours"}, {name: "reference", reference: true}, {name: "broken"}}
	samples := [][]sample{
		{{rate: 30}, {rate: 20}, {rate: 400}},
		{{rate: 10}, {rate: 20}, {rate: 40}},
		{nil, nil, nil},
	}
	addRatios(rate, rows, samples)
	if got := medians(samples[0])[ratio]; got != 3 {
		t.Errorf("ratio %v of 3, 1 and 10, want 3", got)
	}
	if got := medians(samples[2]); len(got) > 0 {
		t.Errorf("%v of what was not measured", got)
	}
}

func TestTable(t *testing.T) {
	r := result{
		workload: workload{title: "Title", points: []point{{name: "1 goroutine", rows: []row{
			{name: claimsRow},
			{name: mutexRow, reference: true},
			{name: "elsewhere"},
			{name: "broken"},
		}}}},
		found: [][]outcome{{
			{sample: sample{rate: 1234, ratio: 1.5}},
			{sample: sample{rate: 800, ratio: 1}},
			{err: fmt.Errorf("%w: not installed", errAbsent)},
			{err: errors.New("two\nlines")},
		}},
	}
	const want = `
Title

  a second  ratio  1 goroutine
     1,234    1.5    etcdclaims
       800      1    etcd Mutex, a shared session
                     elsewhere: skipped: not installed
                     broken: two lines
`
	var out strings.Builder
	if err := r.print(&out); err != nil || out.String() != want {
		t.Errorf("got %s, %v\nwant %s", &out, err, want)
	}
	if err := r.failures(); err == nil || strings.Contains(err.Error(), "installed") || !strings.Contains(err.Error(), "two") {
		t.Errorf("failures %v, want what is broken and not what is absent", err)
	}
}
