package simulation_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/simulation"
)

var (
	first    = flag.Uint64("seed", 1, "the first seed")
	seeds    = flag.Int("seeds", 12, "how many")
	lasting  = flag.Duration("simulate", 5*time.Minute, "how long each run lasts, in virtual time")
	replays  = flag.Int("replays", 100, "how often a run that failed is done again, until it fails again")
	kept     = flag.String("kept", filepath.Join(os.TempDir(), "simulation"), "where the histories of runs that fail are kept")
	queues   = flag.Bool("queues", false, "every run has a queue, not every twelfth")
	progress = flag.Bool("progress", false, "print how far it is")
)

// enough virtual time is for everything to occur.
const enough = 10 * time.Hour

// TestSimulation runs clients under faults, a seed each. For a campaign:
//
//	go test ./internal/simulation -seeds 20000 -simulate 2m -progress -timeout 5h
//
// and for one seed: -seed 4711 -seeds 1. With -queues every seed has a queue.
func TestSimulation(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 3)
	}
	var mu sync.Mutex
	done, total, began := 0, map[string]int{}, time.Now()
	t.Cleanup(func() {
		t.Logf("%d seeds of %v:\n%s", done, *lasting, simulation.Summary(total))
		for _, what := range simulation.Exercised {
			if total[what] == 0 && time.Duration(done)**lasting >= enough {
				t.Errorf("in %d runs there were no %s: the simulation does not try that any more", done, what)
			}
		}
	})
	for i := range n {
		seed := *first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			out := run(t, seed)
			if err := out.Check(); err != nil {
				dir := filepath.Join(*kept, fmt.Sprintf("seed-%d", seed))
				t.Errorf("seed %d: %v\nits history is kept in %s (%v)", seed, err, dir, out.Keep(dir))
				replay(t, seed)
			}
			mu.Lock()
			defer mu.Unlock()
			for what, n := range out.Counts {
				total[what] += n
			}
			if done++; *progress && done%100 == 0 {
				fmt.Printf("%d of %d seeds after %v\n", done, n, time.Since(began).Round(time.Second))
			}
		})
	}
}

func run(t *testing.T, seed uint64) (out *simulation.Outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		out = simulation.Run(t, simulation.Plan{Seed: seed, For: *lasting, Queue: *queues})
	})
	return out
}

// replay does a run again that failed, since a seed does not fix the order of
// goroutines, and says how soon it fails again.
func replay(t *testing.T, seed uint64) {
	t.Helper()
	for try := range *replays {
		out := run(t, seed)
		if err := out.Check(); err != nil {
			dir := filepath.Join(*kept, fmt.Sprintf("seed-%d-again", seed))
			t.Logf("seed %d: failed again when it was run for the %d. time: %v\nits history is kept in %s (%v)", seed, try+1, err, dir, out.Keep(dir))
			return
		}
	}
	t.Logf("seed %d: did not fail again in %d runs: what is kept of the first is all there is", seed, *replays)
}
