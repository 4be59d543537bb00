package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// A workload is what is measured at several points, such as numbers of
// goroutines, and printed as one table.
type workload struct {
	name    string // short, for -only
	title   string
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
	measure   measurer
}

// A measurer measures a row once, at the point with that number.
type measurer func(ctx context.Context, st *stage, n int) (sample, error)

// A sample is what one measurement found.
type sample map[metric]float64

// errAbsent marks a row that was skipped, because a program is not installed.
var errAbsent = errors.New("skipped")

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

// A result is what was measured of a workload: for each point and row.
type result struct {
	workload
	found [][]outcome
}

// An outcome is the medians of a row at a point, or what was wrong with it.
type outcome struct {
	sample
	err error
}

// measure measures all points of a workload.
func (st *stage) measure(ctx context.Context, w workload) (result, error) {
	r := result{workload: w}
	for _, p := range w.points {
		found, err := st.measurePoint(ctx, w, p)
		if err != nil {
			return r, err
		}
		r.found = append(r.found, found)
	}
	return r, nil
}

// measurePoint measures the rows of one point, on an etcd that nothing else was done to, so
// that no row finds what those of other points left behind.
func (st *stage) measurePoint(ctx context.Context, w workload, p point) ([]outcome, error) {
	if err := st.startEtcd(); err != nil {
		return nil, err
	}
	defer st.stopEtcd()
	found := make([]outcome, len(p.rows))
	rounds := st.rounds
	if w.rounds > 0 {
		rounds = w.rounds
	}
	samples := make([][]sample, len(p.rows)) // of each round, nil where it failed
	for i := range samples {
		samples[i] = make([]sample, rounds)
	}
	for round := range rounds {
		st.progress("%s: %s, round %d of %d", w.name, p.name, round+1, rounds)
		for _, i := range rand.Perm(len(p.rows)) {
			if found[i].err == nil {
				samples[i][round], found[i].err = p.rows[i].measure(ctx, st, p.n)
			}
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	addRatios(w.compare, p.rows, samples)
	for i := range p.rows {
		found[i].sample = medians(samples[i])
	}
	return found, nil
}

// addRatios adds to each sample its ratio to the reference's of the same round.
func addRatios(compare metric, rows []row, samples [][]sample) {
	reference := slices.IndexFunc(rows, func(r row) bool { return r.reference })
	if reference < 0 {
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

// failures returns why rows could not be measured though all that they need is there.
func (r result) failures() error {
	var errs []error
	for i, p := range r.points {
		for j, o := range r.found[i] {
			if o.err != nil && !errors.Is(o.err, errAbsent) {
				errs = append(errs, fmt.Errorf("%s: %w", label(r.workload, p, p.rows[j]), o.err))
			}
		}
	}
	return errors.Join(errs...)
}

// A metric is something that is measured: a column of a table.
type metric string

const (
	rate     metric = "a second"
	ratio    metric = "ratio"
	p50      metric = "p50 ms"
	p99      metric = "p99 ms"
	longest  metric = "longest ms"
	requests metric = "requests" // to etcd, for each of what is counted

	memory     metric = "bytes each" // of the client's memory, heap and stacks
	requesting metric = "requests/s"
	clientCPU  metric = "client CPU %" // of one core
	etcdCPU    metric = "etcd CPU %"
	etcdMemory metric = "etcd MiB"
)

// number prints three digits or more, with commas between thousands.
func number(v float64) string {
	if math.Abs(v) < 100 {
		return fmt.Sprintf("%.3g", v)
	}
	return message.NewPrinter(language.English).Sprint(int64(math.Round(v)))
}

// columns are the metrics in the order in which they are printed.
var columns = []metric{rate, ratio, p50, p99, longest, requests, memory, requesting, clientCPU, etcdCPU, etcdMemory}

// print prints a block for each point. The names of rows are right of the numbers.
func (r result) print(out io.Writer) error {
	columns := slices.DeleteFunc(slices.Clone(columns), func(m metric) bool {
		return !slices.ContainsFunc(slices.Concat(r.found...), func(o outcome) bool { _, ok := o.sample[m]; return ok })
	})
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s\n\n", r.title)
	for _, m := range columns {
		fmt.Fprintf(w, "%s\t", m)
	}
	for i, p := range r.points {
		fmt.Fprintf(w, "%s  %s\n", strings.Repeat("\t", min(i, 1)*len(columns)), p.name)
		for j, row := range p.rows {
			for _, m := range columns {
				if v, ok := r.found[i][j].sample[m]; ok {
					fmt.Fprint(w, number(v))
				}
				fmt.Fprint(w, "\t")
			}
			name := row.name
			if err := r.found[i][j].err; err != nil {
				name += ": " + strings.ReplaceAll(err.Error(), "\n", " ")
			}
			fmt.Fprintf(w, "    %s\n", name)
		}
	}
	return w.Flush()
}
