package scenarios_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// The parameters have the names, and but for the lists the defaults, of Jepsen's tests.
var (
	processes     = flag.Bool("processes", false, "five members, each a process, in real time, in place of one in virtual time")
	only          = flag.String("workload", "", "the one workload to run: lock, lock-set or lock-etcd-set")
	nemeses       = flag.String("nemesis", "pause,partition,kill", "the faults, separated by commas; none makes none")
	nemesisEvery  = flag.Duration("nemesis-interval", 5*time.Second, "how long a fault lasts, and how long it is quiet after it, on average")
	timeLimit     = flag.Duration("time-limit", time.Minute, "how long faults are made, for each workload and lock")
	nConcurrent   = flag.Int("concurrency", 5, "how many processes work")
	nKeys         = flag.Int("keys", 1, "how many locks, each with a set")
	latency       = flag.Duration("latency", time.Second, "how long a lock is held on average")
	jepsenSeed    = flag.Uint64("seed", 1, "of what processes and nemesis choose")
	recoveryPause = 10 * time.Second // after the last fault
)

// TestJepsen runs the lock workloads of Jepsen's tests of etcd, each against etcd's
// Mutex and against claims, and prints which updates were lost. Claims lose none.
//
// With -long the Mutex must lose some: otherwise the faults would show nothing.
func TestJepsen(t *testing.T) {
	if testetcd.Long() {
		*timeLimit, *latency = max(*timeLimit, 10*time.Minute), max(*latency, 2*time.Second)
	}
	mutexLost := 0
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "workload\tlock\tdone\tlost or overlapping\trefused\tunknown\tfaults")
	for _, w := range workloads {
		for _, kind := range w.locks {
			if *only != "" && *only != w.name {
				continue
			}
			t.Run(w.name+"/"+kind.name, func(t *testing.T) {
				var o outcome
				var faults int
				if *processes {
					o, faults = runWorkload(t, newMembers(t), w, kind)
				} else {
					synctest.Test(t, func(t *testing.T) { o, faults = runWorkload(t, newMember(t), w, kind) })
				}
				fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", w.name, kind.name, o.done, o.lost, o.refused, o.unknown, faults)
				if !kind.safe {
					mutexLost += o.lost
				}
				switch {
				case kind.safe && o.lost > 0:
					t.Errorf("%d of %d are lost or overlap; -seed %d", o.lost, o.done, *jepsenSeed)
				case o.done == 0:
					t.Error("nothing was done")
				}
			})
		}
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if testetcd.Long() && *only == "" && mutexLost == 0 {
		t.Error("the Mutex has lost nothing")
	}
	t.Logf("-concurrency %d -keys %d -latency %v -nemesis %s -nemesis-interval %v -time-limit %v -seed %d -processes=%v, TTL %v\n%s",
		*nConcurrent, *nKeys, *latency, *nemeses, *nemesisEvery, *timeLimit, *jepsenSeed, *processes, lease, &out)
}

// runWorkload returns what was counted, and how many faults there were.
func runWorkload(t *testing.T, c cluster, w workload, kind lockKind) (outcome, int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := w.open()
	var working sync.WaitGroup
	for i := range *nConcurrent {
		host := c.host(t)
		p := &process{Rand: rand.New(rand.NewPCG(*jepsenSeed, uint64(i)+1)), etcd: host.Etcd(t), acquire: kind.open(t, host)}
		working.Go(func() {
			for ctx.Err() == nil {
				s.work(ctx, p, "foo"+strconv.Itoa(p.IntN(*nKeys)))
			}
		})
	}
	faults := disturb(t, c)
	time.Sleep(recoveryPause)
	stop()
	working.Wait()
	reading, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	o, err := s.outcome(reading, c.Etcd(t))
	if err != nil {
		t.Fatal(err)
	}
	return o, faults
}
