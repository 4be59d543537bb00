package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/compare/load"
)

// A workload is what is measured at several points, such as numbers of
// goroutines, and printed as one table.
type workload struct {
	name    string // short, for -only
	title   string
	of      string // what is counted at each point, for the chart: "goroutines"
	columns []metric
	compare metric // what ratios are of; none if empty
	rounds  int    // if not as many as the options say
	points  []point
}

// A point is one block of the table.
type point struct {
	name string
	n    int // of goroutines, waiters, claims
	rows []row
}

// A row is one line of it.
type row struct {
	name      string
	reference bool // what the ratios of the point are to
	open      func(ctx context.Context, st *stage, n int) (contender, error)
}

// A contender is what a row measures, made ready for one point. It is measured
// once in each round.
type contender interface {
	measure(ctx context.Context) (sample, error)
	close()
}

// A sample is what one measurement found.
type sample map[metric]float64

// of makes a sample of a result.
func of(r load.Result) sample {
	return sample{rate: r.Rate, p50: r.P50, p99: r.P99, longest: r.Longest}
}

// errAbsent is wrapped by what a row cannot be measured without.
var errAbsent = errors.New("skipped")

func absent(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errAbsent, fmt.Sprintf(format, args...))
}

func label(w workload, p point, r row) string { return w.name + "/" + p.name + "/" + r.name }

// chosen returns what matches, with the references of that.
func chosen(all []workload, only *regexp.Regexp) []workload {
	var left []workload
	for _, w := range all {
		var points []point
		for _, p := range w.points {
			wanted := func(r row) bool { return only.MatchString(label(w, p, r)) }
			if !slices.ContainsFunc(p.rows, wanted) {
				continue
			}
			rows := slices.Clone(p.rows)
			p.rows = slices.DeleteFunc(rows, func(r row) bool { return !r.reference && !wanted(r) })
			points = append(points, p)
		}
		if w.points = points; len(points) > 0 {
			left = append(left, w)
		}
	}
	return left
}

// A result is what was measured of a workload.
type result struct {
	workload
	found []outcome // of each point
}

// An outcome is what was measured at a point: for each row its medians, or what
// was wrong with it.
type outcome struct {
	medians []sample
	errs    []error
}

// measure measures all points of a workload.
func (st *stage) measure(ctx context.Context, w workload) (result, error) {
	r := result{workload: w}
	began := time.Now()
	for _, p := range w.points {
		found, err := st.measurePoint(ctx, w, p)
		if err != nil {
			return r, err
		}
		r.found = append(r.found, found)
	}
	st.progress("%s: measured in %.0f s", w.name, time.Since(began).Seconds())
	return r, nil
}

// measurePoint measures the rows of one point, on an etcd that nothing else was
// done to, so that no row finds what those of other points left behind.
func (st *stage) measurePoint(ctx context.Context, w workload, p point) (outcome, error) {
	found := outcome{medians: make([]sample, len(p.rows)), errs: make([]error, len(p.rows))}
	if err := st.startEtcd(); err != nil {
		return found, err
	}
	defer st.stopEtcd()
	contenders := make([]contender, len(p.rows))
	defer func() {
		for _, c := range contenders {
			if c != nil {
				c.close()
			}
		}
	}()
	for i, r := range p.rows {
		contenders[i], found.errs[i] = r.open(ctx, st, p.n)
	}

	rounds := st.rounds
	if w.rounds > 0 {
		rounds = w.rounds
	}
	samples := make([][]sample, len(p.rows)) // of each round, nil where it failed
	for round := range rounds {
		st.progress("%s: %s, round %d of %d", w.name, p.name, round+1, rounds)
		for i := range samples {
			samples[i] = append(samples[i], nil)
		}
		for _, i := range rand.Perm(len(p.rows)) {
			if found.errs[i] != nil {
				continue
			}
			s, err := contenders[i].measure(ctx)
			if ctx.Err() != nil {
				return found, ctx.Err()
			}
			if err != nil {
				found.errs[i] = err
				st.progress("%s: %v", label(w, p, p.rows[i]), err)
				continue
			}
			samples[i][round] = s
		}
	}
	if ctx.Err() != nil {
		return found, ctx.Err()
	}
	addRatios(w.compare, p.rows, samples)
	for i := range p.rows {
		found.medians[i] = medians(samples[i])
	}
	return found, nil
}

// addRatios adds to each sample its ratio to the reference's of the same round.
func addRatios(compare metric, rows []row, samples [][]sample) {
	reference := slices.IndexFunc(rows, func(r row) bool { return r.reference })
	if compare == "" || reference < 0 {
		return
	}
	for _, rounds := range samples {
		for round, s := range rounds {
			if to := samples[reference][round]; s != nil && to != nil {
				s[ratio] = s[compare] / to[compare]
			}
		}
	}
}

// medians returns the median of each metric over the rounds.
func medians(rounds []sample) sample {
	values := map[metric][]float64{}
	for _, s := range rounds {
		for m, v := range s {
			values[m] = append(values[m], v)
		}
	}
	middle := sample{}
	for m, vs := range values {
		middle[m] = median(vs)
	}
	return middle
}

func median(vs []float64) float64 {
	vs = slices.Sorted(slices.Values(vs))
	n := len(vs)
	return (vs[(n-1)/2] + vs[n/2]) / 2
}

// failures says which rows could not be measured though all they need is there.
func failures(results []result) error {
	var errs []error
	for _, r := range results {
		for i, p := range r.points {
			for j, err := range r.found[i].errs {
				if err != nil && !errors.Is(err, errAbsent) {
					errs = append(errs, fmt.Errorf("%s: %w", label(r.workload, p, p.rows[j]), err))
				}
			}
		}
	}
	return errors.Join(errs...)
}
