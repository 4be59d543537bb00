package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/refusals"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/txn"
)

const (
	refusing = 2 * time.Second  // how long etcd refuses
	patience = 40 * time.Second // how long a loop may then take
	recovery = 7 * time.Second  // the time between two refusals, in which claims are renewed
	most     = 50_000           // how many requests are refused at most: clientv3 repeats some a hundred times at once
)

// refuse refuses the requests of the client, and breaks its connection, so that streams are opened
// again, too. A loop that tries again without a pause would never end, because virtual time stands
// still meanwhile: after most requests it is refused no more, and the test fails.
func (w *world) refuse(refusal error) *claimtest.Injection {
	fault := w.host.Inject(claimtest.Fault{On: claimtest.Every, Times: most, Err: refusal, LoseRequest: true})
	w.host.Break()
	w.Cleanup(func() {
		if fault.Hits() >= most {
			w.Errorf("%v: %d requests were refused without a pause", refusal, most)
		}
	})
	return fault
}

// world is one etcd, a client whose requests are refused for a while, and another one.
type world struct {
	*testing.T
	host          *claimtest.Host
	claims, other *etcdclaims.Client
}

// loop is something that goes on while etcd refuses for a passing reason.
type loop struct {
	name string
	// begin prepares it, and returns what it does once for each refusal, while etcd refuses
	// and afterwards.
	begin func(w *world) (step func(ctx context.Context, key string) error)
	// fails allows the step to fail if the outcome of a request may be unknown.
	fails bool
	// settles allows an unknown outcome of what was refused: it is done in the background.
	settles bool
}

// theRefusals returns those after which a request that changes nothing may pass when it is sent again,
// or the others.
func theRefusals(t *testing.T, pass bool) map[string]error {
	all, err := refusals.OfEtcd()
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, refusals.Others())
	maps.DeleteFunc(all, func(_ string, err error) bool { return txn.MayPass(err) != pass })
	return all
}

// always are refusals that each loop meets, also without -long.
var always = []string{"learner of etcd 3.5", "HTTP 403", "LeaderChanged", "PermissionDenied", "NoSpace"}

// sample returns all refusals if -long is given. Otherwise it returns those that each loop meets, and
// others at random, up to a number.
func sample(all map[string]error, n int) map[string]error {
	if testetcd.Long() {
		return all
	}
	some := map[string]error{}
	for _, name := range always {
		if err, ok := all[name]; ok {
			some[name] = err
		}
	}
	for name, err := range all { // in random order
		if len(some) >= n {
			break
		}
		some[name] = err
	}
	return some
}

// outlives runs a loop through refusals, in one world.
func outlives(t *testing.T, l loop) {
	all := sample(theRefusals(t, true), 5)
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		w := &world{T: t, host: server.Host(t)}
		w.claims = claimtest.NewClient(t, w.host, etcdclaims.Config{})
		w.other = claimtest.NewClient(t, server.Host(t), etcdclaims.Config{})
		step := l.begin(w)
		n := 0
		for name, refusal := range all {
			n++
			fault := w.refuse(refusal)
			over := time.AfterFunc(refusing, fault.Remove)
			ctx, cancel := context.WithTimeout(t.Context(), refusing+patience)
			if err := step(ctx, fmt.Sprintf("k%d", n)); err != nil &&
				!(l.fails && errors.Is(err, etcdclaims.ErrUnknown) && txn.MayBeDone(refusal)) {
				t.Errorf("%s: after %q: %v", l.name, name, err)
			}
			cancel()
			if fault.Hits() == 0 {
				t.Errorf("%s: %s: nothing was refused", l.name, name)
			}
			over.Stop()
			fault.Remove()
			time.Sleep(recovery)
		}
	})
}

// ends runs a loop through refusals that would be repeated, each in a world of its own.
func ends(t *testing.T, l loop) {
	for name, refusal := range sample(theRefusals(t, false), 2) {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { endsOnce(t, l, refusal) })
		})
	}
}

func endsOnce(t *testing.T, l loop, refusal error) {
	server := claimtest.Start(t)
	w := &world{T: t, host: server.Host(t)}
	w.claims = claimtest.NewClient(t, w.host, etcdclaims.Config{})
	w.other = claimtest.NewClient(t, server.Host(t), etcdclaims.Config{})
	step := l.begin(w)
	fault := w.refuse(refusal)
	defer fault.Remove()
	over := time.AfterFunc(refusing, fault.Remove)
	defer over.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), refusing+patience)
	defer cancel()
	begun := time.Now()
	err := step(ctx, "k")
	switch took := time.Since(begun); {
	case took > refusing+patience+time.Second:
		t.Errorf("it took %v", took)
	case err == nil && took < refusing && fault.Hits() > 0:
		t.Errorf("a success within %v", took)
	case err != nil && fault.Hits() > 0:
		if wrong := wrongError(err, refusal, false, l.settles); wrong != "" {
			t.Errorf("%v: %s", err, wrong)
		}
	}
}

// newQueue returns access to a queue.
func (w *world) newQueue(claims *etcdclaims.Client) *queue.Queue {
	q, err := queue.New(claims, queue.Config{Name: "q"})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = q.Close(context.Background()) })
	return q
}

// background runs something until the test ends. It returns an error if that has ended before.
func (w *world) background(run func(ctx context.Context) error) (stillRuns func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	w.Cleanup(func() { cancel(); <-ended })
	return func() error {
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("it has ended: %w", err)
		default:
			return nil
		}
	}
}
