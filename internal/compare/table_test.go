package main

import (
	"errors"
	"strings"
	"testing"
)

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0123: "0.0123", 1: "1.00", 9.87: "9.87", 12.34: "12.3", 123.4: "123", 999.6: "1,000", 12345: "12,345", 1234567: "1,234,567",
	} {
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
		workload: workload{title: "Title", columns: []metric{rate, ratio}, points: []point{{name: "1 goroutine", rows: []row{
			{name: claimsRow},
			{name: mutexRow, reference: true},
			{name: "elsewhere"},
			{name: "broken"},
		}}}},
		found: []outcome{{
			medians: []sample{{rate: 1234, ratio: 1.5, p99: 3}, {rate: 800, ratio: 1, p99: 4}, {}, {}},
			errs:    []error{nil, nil, absent("not | installed"), errors.New("two\nlines")},
		}},
	}
	const plain = `
Title

                                a second  ratio
1 goroutine
  etcdclaims                       1,234   1.50
  etcd Mutex, a shared session       800   1.00
  elsewhere                                      skipped: not | installed
  broken                                         failed: two lines
`
	if got := r.table().String(); got != plain {
		t.Errorf("got %s\nwant %s", got, plain)
	}
	if err := failures([]result{r}); err == nil || strings.Contains(err.Error(), "installed") || !strings.Contains(err.Error(), "two") {
		t.Errorf("failures %v, want what is broken and not what is absent", err)
	}
}
