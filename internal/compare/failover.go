package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// failOvers is how soon the next in line owns what a process had that is killed: from
// SIGKILL to the return of the waiter's call.
func failOvers(o options) workload {
	w := workload{
		name: "fail-over", of: "claims", compare: p50, rounds: 2,
		title:   fmt.Sprintf("From the SIGKILL of a holder to the next owner, TTL %v; ratios of times to Mutex", etcdclaims.DefaultTTL),
		columns: []metric{p50, ratio, p99, longest, early},
	}
	if o.quick {
		w.rounds = 1
	}
	for _, n := range []int{1, 1000} {
		w.points = append(w.points, point{name: fmt.Sprintf("%d of one process", n), n: n, rows: []row{
			{name: "etcdclaims, Suspectable", open: failOver("suspectable")},
			{name: claimsRow, open: failOver("claims")},
			{name: mutexRow, reference: true, open: failOver("mutex")},
		}})
	}
	return w
}

// An owner acquires a key, and keeps it.
type owner func(ctx context.Context, key string) error

// owners makes those of a process that share a prefix, on a connection.
var owners = map[string]func(ctx context.Context, etcd *clientv3.Client, prefix string) (own owner, end func(), err error){
	"suspectable": claimOwner(etcdclaims.Suspectable()),
	"claims":      claimOwner(),
	"mutex": func(ctx context.Context, etcd *clientv3.Client, prefix string) (owner, func(), error) {
		s, err := session(ctx, etcd)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, key string) error {
			return concurrency.NewMutex(s, prefix+key).Lock(ctx)
		}, func() { _ = s.Close() }, nil
	},
}

func claimOwner(opts ...etcdclaims.AcquireOption) func(context.Context, *clientv3.Client, string) (owner, func(), error) {
	return func(_ context.Context, etcd *clientv3.Client, prefix string) (owner, func(), error) {
		c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix})
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, key string) error {
			_, err := c.Acquire(ctx, key, opts...)
			return err
		}, func() { closeClaims(context.Background(), c) }, nil
	}
}

// A doomed is a process that is to be killed, and what it holds.
type doomed struct {
	Kind      string   `json:"kind"`
	Endpoints []string `json:"endpoints"`
	Prefix    string   `json:"prefix"`
	Claims    int      `json:"claims"`
}

// holdVariable makes this program such a process.
const holdVariable = "COMPARE_HOLD"

func (d doomed) key(i int) string { return fmt.Sprintf("key/%04d", i) }

// each has each key acquired.
func (d doomed) each(ctx context.Context, etcd *clientv3.Client, had func()) (end func(), err error) {
	own, end, err := owners[d.Kind](ctx, etcd, d.Prefix)
	if err != nil {
		return nil, err
	}
	return end, each(d.Claims, d.Claims, func(i int) error {
		err := own(ctx, d.key(i))
		had()
		return err
	})
}

// hold is what such a process does: it holds its keys until it is killed, or nobody listens.
func hold(ctx context.Context, order string, stdin io.Reader, stdout io.Writer) error {
	var d doomed
	if err := json.Unmarshal([]byte(order), &d); err != nil {
		return err
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: d.Endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	if _, err := d.each(ctx, etcd, func() {}); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, "held"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// start starts the process, and waits until it has its keys.
func (d doomed) start(ctx context.Context) (_ *testetcd.Child, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	order, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self) //nolint:noctx // it is killed when it is time
	cmd.Env = append(os.Environ(), holdVariable+"="+string(order))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // which ends with this process
		return nil, err
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	cmd.Stdout = theirs
	child, err := testetcd.StartChild(cmd)
	err = errors.Join(err, theirs.Close())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, child.Kill)
	defer stop()
	if line, err := bufio.NewReader(ours).ReadString('\n'); line != "held\n" {
		child.Kill()
		return nil, fmt.Errorf("the holder did not start: %w", errors.Join(err, child.Err(), ctx.Err()))
	}
	return child, nil
}

// failing is a contender whose holders are killed.
type failing struct {
	st     *stage
	kind   string
	claims int
}

func failOver(kind string) func(context.Context, *stage, int) (contender, error) {
	return func(_ context.Context, st *stage, n int) (contender, error) {
		return &failing{st, kind, n}, nil
	}
}

func (f *failing) close() {}

// measure kills several processes at random moments of their renewals.
func (f *failing) measure(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	deaths := f.st.deaths
	if f.claims > 1 {
		deaths = 2
	}
	var mu sync.Mutex
	var all []float64
	tooEarly := 0
	err := each(deaths, deaths, func(int) error {
		took, err := f.once(ctx)
		again := 0
		// A Suspectable holder that the machine stalled is suspected while it lives.
		for ; errors.Is(err, errEarly) && f.kind == "suspectable" && again < 5; again++ {
			took, err = f.once(ctx)
		}
		mu.Lock()
		defer mu.Unlock()
		tooEarly += again
		all = append(all, took...)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	return sample{p50: median(all), p99: all[len(all)*99/100], longest: all[len(all)-1], early: float64(tooEarly)}, nil
}

var errEarly = errors.New("a key had another owner before its holder was killed")

// once kills one. It returns how long each of its keys took, in ms. The error is errEarly if
// a key went to the waiter before the kill.
func (f *failing) once(ctx context.Context) ([]float64, error) {
	d := doomed{Kind: f.kind, Endpoints: f.st.etcd.Endpoints(), Prefix: prefix(), Claims: f.claims}
	child, err := d.start(ctx)
	if err != nil {
		return nil, err
	}
	defer child.Kill()
	etcd, err := new(wire).dial(f.st, plain)
	if err != nil {
		return nil, err
	}
	defer hangUp(etcd)
	var mu sync.Mutex
	var owned []time.Time
	waited := make(chan error, 1)
	waiting, leave := context.WithCancel(ctx)
	defer leave()
	go func() {
		end, err := d.each(waiting, etcd, func() {
			mu.Lock()
			defer mu.Unlock()
			owned = append(owned, time.Now())
		})
		if end != nil {
			end()
		}
		waited <- err
	}()
	if err = sleep(ctx, 2*settled+rand.N(etcdclaims.DefaultTTL/3)); err != nil {
		leave()
		return nil, errors.Join(err, <-waited)
	}
	killed := time.Now()
	child.Kill()
	if err = <-waited; err != nil {
		return nil, err
	}
	took := make([]float64, len(owned))
	for i, at := range owned {
		if at.Before(killed) {
			return nil, errEarly
		}
		took[i] = float64(at.Sub(killed)) / float64(time.Millisecond)
	}
	return took, nil
}
