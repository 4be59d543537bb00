package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/spf13/cobra"
)

const benchText = `Measure this etcd from this host for a few seconds, and judge whether --ttl fits it:

  cycles     claims and releases of keys of their own, by one caller and by --callers
  hand-over  one key that two clients pass to each other
  renewal    a renewal with its verification, as sessions make every third of the TTL
  write      an entry in etcd's log and on its disk that changes nothing

It makes at most 10,000 cycles and hand-overs, which leave some 10 MiB of revisions
until etcd is compacted. Everything that uses the etcd feels it.

The exit code is 0 if the TTL fits, 1 if it is short, 2 if claims would be lost.`

// mostCycles bounds what bench leaves in etcd until its compaction.
const mostCycles = 10_000

// measurement is one line of bench.
type measurement struct {
	What   string  `json:"what"`
	Rate   float64 `json:"perSecond"`
	Median string  `json:"median"`
	P99    string  `json:"p99"`
	N      int     `json:"n"`
}

func (m measurement) name() string { return m.What }
func (m measurement) cells() []string {
	return []string{m.What, fmt.Sprintf("%.0f", m.Rate), m.Median, m.P99, fmt.Sprint(m.N)}
}

func measured(what string, took []time.Duration, in time.Duration) measurement {
	return measurement{
		What: what, Rate: float64(len(took)) / in.Seconds(), N: len(took),
		Median: doctor.Round(doctor.Quantile(took, 0.5)).String(), P99: doctor.Round(doctor.Quantile(took, 0.99)).String(),
	}
}

// benchView is what bench found.
type benchView struct {
	Measurements []measurement `json:"measurements"`
	TTL          string        `json:"ttl"`
	LeastTTL     string        `json:"leastTTL"`
	Level        doctor.Level  `json:"level"`
	Verdict      string        `json:"verdict"`
	Remedy       string        `json:"remedy,omitempty"`
}

func (v benchView) name() string    { return v.LeastTTL }
func (v benchView) cells() []string { return []string{v.TTL, v.LeastTTL, v.Verdict} }

// bench is one run.
type bench struct {
	claims   *etcdclaims.Client
	root     string // of its keys
	each     time.Duration
	callers  int
	findings []measurement
}

func (a *app) benchCommand() *cobra.Command {
	var ttl, duration time.Duration
	var callers int
	cmd := &cobra.Command{
		Use: "bench", GroupID: groupSee, Args: cobra.NoArgs, Short: "Measure etcd with claims, and judge the TTL", Long: benchText,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if callers < 1 || callers > 4096 || duration < time.Second || duration > time.Minute || ttl < etcdclaims.MinTTL {
				return usageError("bench: --callers from 1 to 4096, --duration from 1s to 1m, --ttl %s at least", etcdclaims.MinTTL)
			}
			claims, done, err := a.client(etcdclaims.Config{})
			if err != nil {
				return err
			}
			defer func() { _ = done() }() // it releases what it holds
			if err := a.reach(cmd.Context(), claims); err != nil {
				return err
			}
			b := &bench{claims: claims, root: "claimctl-bench/" + rand.Text() + "/", each: duration / 5, callers: callers}
			f, err := b.run(cmd.Context(), a, ttl)
			if err != nil {
				return err
			}
			l, remedy := f.Judge()
			v := benchView{Measurements: b.findings, TTL: ttl.String(), LeastTTL: f.Least.String(), Level: l, Verdict: f.Text(), Remedy: remedy}
			if err := printOne(a, v, func(io.Writer) { err = b.text(a, v) }); err != nil {
				return err
			}
			if err == nil && l != doctor.OK {
				return &exitError{code: exitCodes[l]}
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", etcdclaims.DefaultTTL, "lease time to judge")
	cmd.Flags().DurationVar(&duration, "duration", 3*time.Second, "how long to measure in all")
	cmd.Flags().IntVar(&callers, "callers", 32, "goroutines that claim at the same time")
	return cmd
}

func (b *bench) text(a *app, v benchView) error {
	err := printList(a, []string{"WHAT", "PER SECOND", "MEDIAN", "P99", "N"}, sequence(b.findings))
	a.say("%s%s", v.Verdict, strings.TrimSuffix("; "+v.Remedy, "; "))
	return err
}

func (b *bench) run(ctx context.Context, a *app, ttl time.Duration) (doctor.Fit, error) {
	for _, callers := range []int{1, b.callers} {
		if err := b.cycles(ctx, callers); err != nil {
			return doctor.Fit{}, err
		}
	}
	if err := b.handOvers(ctx, a); err != nil {
		return doctor.Fit{}, err
	}
	if err := b.renewals(ctx); err != nil {
		return doctor.Fit{}, err
	}
	begun := time.Now()
	took, err := doctor.TimeWrites(ctx, b.claims.Etcd(), b.claims.OwnKey(b.root+"absent"), mostCycles, b.each)
	if err != nil {
		return doctor.Fit{}, fmt.Errorf("bench: %w", err)
	}
	b.findings = append(b.findings, measured("write", took, time.Since(begun)))
	return doctor.FitOf(ttl, doctor.Quantile(took, 0.99)), nil
}

// times collects durations of goroutines.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *times) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d)
}

// together runs f in goroutines again and again until the time of one measurement
// is over, and reports what f took.
func (b *bench) together(ctx context.Context, what string, callers int, f func(ctx context.Context, caller int) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.each+30*time.Second) // for the last calls
	defer cancel()
	var t times
	var left atomic.Int64
	left.Store(mostCycles / 3)
	errs := make(chan error, callers)
	begun := time.Now()
	for caller := range callers {
		go func() {
			var err error
			for err == nil && time.Since(begun) < b.each && left.Add(-1) >= 0 {
				from := time.Now()
				err = f(ctx, caller)
				t.add(time.Since(from))
			}
			errs <- err
		}()
	}
	var first error
	for range callers {
		if err := <-errs; err != nil && first == nil {
			first = fmt.Errorf("bench: %s: %w", what, err)
			cancel()
		}
	}
	b.findings = append(b.findings, measured(what, t.all, time.Since(begun)))
	return first
}

func (b *bench) cycles(ctx context.Context, callers int) error {
	return b.together(ctx, fmt.Sprintf("cycles, %d callers", callers), callers, func(ctx context.Context, caller int) error {
		claim, err := b.claims.TryAcquire(ctx, fmt.Sprint(b.root, caller))
		if err != nil {
			return err
		}
		return claim.Release(ctx)
	})
}

// handOvers has two clients wait in line for one key.
func (b *bench) handOvers(ctx context.Context, a *app) error {
	other, done, err := a.client(etcdclaims.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = done() }() // it releases what it holds
	clients := []*etcdclaims.Client{b.claims, other}
	return b.together(ctx, "hand-over", len(clients), func(ctx context.Context, caller int) error {
		claim, err := clients[caller].Acquire(ctx, b.root+"shared")
		if err != nil {
			return err
		}
		return claim.Release(ctx)
	})
}

func (b *bench) renewals(ctx context.Context) error {
	claim, err := b.claims.TryAcquire(ctx, b.root+"renewed")
	if err != nil {
		return err
	}
	err = b.together(ctx, "renewal", 1, func(ctx context.Context, _ int) error { return claim.Renew(ctx) })
	if releaseErr := claim.Release(ctx); err == nil {
		err = releaseErr
	}
	return err
}
