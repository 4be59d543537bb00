package etcdclaims_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A loaded machine, for TestSuspectNobodyOnABusyMachine.
const (
	busyWorkers = 4 // processes whose claims can be suspected
	busyKeys    = 6 // for which the workers compete

	collection   = 300 * time.Millisecond // how long a worker is stopped, as by a collection of garbage
	tooLong      = 400 * time.Millisecond // a worker that stands still for longer may be suspected: it has 450 ms
	diskStalls   = time.Second
	diskStallGap = 20 * time.Second // from one stall to the next
)

var (
	busyFor   = flag.Duration("busy", 40*time.Second, "how long TestSuspectNobodyOnABusyMachine lasts")
	busyLoops = flag.Int("load", runtime.NumCPU(), "how many processes compute in TestSuspectNobodyOnABusyMachine")
	busyRole  = os.Getenv("ETCDCLAIMS_BUSY")
)

func init() {
	switch busyRole {
	case "":
		return
	case "loop":
		for x := 0; ; x++ { // until it is killed
			_ = x
		}
	}
	if err := workOnABusyMachine(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// busyReport is what a worker prints at its end.
type busyReport struct {
	Terms, Effects              int64
	Unanswered                  int64 // calls that etcd did not answer in time
	Superseded, Lost            int64 // terms that ended by another owner, or otherwise
	Suspected, SuspectedWrongly int64
	TooLong                     int64         // how often the worker stood still for longer than tooLong
	Longest                     time.Duration // for which it did
}

func (r *busyReport) add(o busyReport) {
	r.Terms, r.Effects, r.Unanswered = r.Terms+o.Terms, r.Effects+o.Effects, r.Unanswered+o.Unanswered
	r.Superseded, r.Lost = r.Superseded+o.Superseded, r.Lost+o.Lost
	r.Suspected, r.SuspectedWrongly = r.Suspected+o.Suspected, r.SuspectedWrongly+o.SuspectedWrongly
	r.TooLong, r.Longest = r.TooLong+o.TooLong, max(r.Longest, o.Longest)
}

// watchGaps notes for how long the process stands still.
func (r *busyReport) watchGaps(ctx context.Context) {
	const every = 10 * time.Millisecond
	for last := time.Now(); ctx.Err() == nil; {
		retry.Sleep(ctx, every)
		now := time.Now()
		gap := now.Sub(last) - every
		last = now
		if r.Longest = max(r.Longest, gap); gap > tooLong {
			r.TooLong++
		}
	}
}

// workOnABusyMachine claims some keys again and again, writes under each claim, and reports
// when its standard input ends.
func workOnABusyMachine() error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	etcd, prefix, err := childEtcd()
	if err != nil {
		return err
	}
	log, err := zap.NewProduction(zap.IncreaseLevel(zap.WarnLevel))
	if err != nil {
		return err
	}
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, Logger: log})
	if err != nil {
		return err
	}
	var r busyReport
	var lanes sync.WaitGroup
	lanes.Go(func() { r.watchGaps(ctx) })
	for i := range busyKeys {
		lanes.Go(func() {
			for ctx.Err() == nil {
				if err := r.term(ctx, c, prefix, i); err != nil && ctx.Err() == nil {
					atomic.AddInt64(&r.Unanswered, 1)
					log.Warn("call failed", zap.Error(err))
				}
			}
		})
	}
	lanes.Wait()
	st := c.Stats()
	r.Suspected, r.SuspectedWrongly = st.Suspected, st.SuspectedWrongly
	if err := c.Close(context.Background()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(&r)
}

// term holds one of the keys for some seconds.
func (r *busyReport) term(ctx context.Context, c *etcdclaims.Client, prefix string, i int) error {
	cl, err := c.Acquire(ctx, fmt.Sprint("key", i), etcdclaims.Suspectable())
	if err != nil {
		return err
	}
	atomic.AddInt64(&r.Terms, 1)
	for end := time.Now().Add(time.Second + rand.N(4*time.Second)); ctx.Err() == nil && time.Now().Before(end); retry.Sleep(ctx, 100*time.Millisecond) {
		_, err := cl.Txn(context.WithoutCancel(ctx)).Then(clientv3.OpPut("effect"+prefix+fmt.Sprint("key", i), "")).Commit()
		if err == nil {
			atomic.AddInt64(&r.Effects, 1)
			continue
		}
		if errors.Is(err, etcdclaims.ErrLost) {
			break
		}
		atomic.AddInt64(&r.Unanswered, 1)
	}
	err = cl.Release(context.WithoutCancel(ctx))
	if lost, ok := errors.AsType[*etcdclaims.LostError](err); ok {
		if lost.Reason == etcdclaims.ReasonSuperseded {
			atomic.AddInt64(&r.Superseded, 1)
		} else {
			atomic.AddInt64(&r.Lost, 1)
		}
		return nil
	}
	return err
}

// collect stops a worker for 300 ms every few seconds, and returns how often.
func collect(ctx context.Context, worker *testetcd.Child) (pauses int64, err error) {
	for ctx.Err() == nil {
		retry.Sleep(ctx, time.Second+rand.N(3*time.Second))
		began := time.Now()
		err := worker.Pause()
		if err == nil {
			time.Sleep(time.Until(began.Add(collection)))
		}
		if err := errors.Join(err, worker.Resume()); err != nil {
			return pauses, err
		}
		pauses++
	}
	return pauses, nil
}

// Nobody is suspected on a machine that is busy with other work, on which each process stands
// still for 300 ms now and then, and etcd's disk stalls for a second every 20 s.
func TestSuspectNobodyOnABusyMachine(t *testing.T) {
	if !testetcd.Long() {
		t.Skip("it takes minutes")
	}
	server := testetcd.StartProcess(t, testetcd.StallableDisk())
	etcd, prefix := server.Client(t), testetcd.Prefix(t)
	questions := watchQuestions(t, etcd, prefix)
	ctx, cancel := context.WithTimeout(t.Context(), *busyFor)
	var disturbing sync.WaitGroup
	defer disturbing.Wait()
	defer cancel()
	for range *busyLoops {
		childProcess(t, "ETCDCLAIMS_BUSY=loop", "GOMAXPROCS=1")
	}
	var ins []io.Closer
	var outs []*os.File
	var pauses atomic.Int64
	for i := range busyWorkers {
		worker, in, out := childProcess(t, append(childEnv(server, prefix), "ETCDCLAIMS_BUSY=work")...)
		ins, outs = append(ins, in), append(outs, out)
		disturbing.Go(func() {
			n, err := collect(ctx, worker)
			if err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
			pauses.Add(n)
		})
	}
	stalls := stallDisk(ctx, t, server, etcd, prefix)
	disturbing.Wait()

	var sum busyReport
	for i, in := range ins {
		noErr(t, in.Close())
		noErr(t, outs[i].SetReadDeadline(time.Now().Add(time.Minute)))
		var r busyReport
		if err := json.NewDecoder(outs[i]).Decode(&r); err != nil {
			t.Fatalf("worker %d has no report: %v", i, err)
		}
		sum.add(r)
	}
	t.Logf("%d questions, %d pauses, %d stalls of the disk: %+v", questions(), pauses.Load(), stalls, sum)
	if stalls == 0 || pauses.Load() == 0 || sum.Effects == 0 || questions() < int64(5*busyFor.Seconds()) {
		t.Error("the machine was not disturbed, or nobody asked")
	}
	if sum.Suspected > 0 && sum.Suspected <= busyKeys*sum.TooLong {
		t.Skipf("unfair: others had the machine, and workers stood still for longer than %v %d times", tooLong, sum.TooLong)
	}
	if sum.Suspected+sum.SuspectedWrongly+sum.Superseded+sum.Lost > 0 {
		t.Error("a living holder lost a claim")
	}
}

// stallDisk stalls etcd's disk every 20 s, in a short test more often, and returns how many
// stalls held up a write that came in their midst.
func stallDisk(ctx context.Context, t *testing.T, server *testetcd.Process, etcd *clientv3.Client, prefix string) (stalls int) {
	t.Helper()
	gap := min(diskStallGap, max(*busyFor/3, 2*diskStalls))
	for {
		retry.Sleep(ctx, gap-diskStalls)
		if ctx.Err() != nil {
			return stalls
		}
		began := time.Now()
		noErr(t, server.StallDisk())
		time.Sleep(diskStalls / 2)
		wrote := make(chan time.Duration, 1)
		go func() {
			if _, err := etcd.Put(t.Context(), prefix+"stalled", ""); err != nil {
				wrote <- 0
				return
			}
			wrote <- time.Since(began)
		}()
		time.Sleep(time.Until(began.Add(diskStalls)))
		noErr(t, server.ResumeDisk())
		if <-wrote >= diskStalls {
			stalls++
		}
	}
}

// watchQuestions counts the questions whether a client lives.
func watchQuestions(t *testing.T, etcd *clientv3.Client, prefix string) (count func() int64) {
	var n atomic.Int64
	ch := etcd.Watch(t.Context(), prefix+"session/", clientv3.WithPrefix(), clientv3.WithFilterDelete())
	go func() {
		for resp := range ch {
			for _, ev := range resp.Events {
				if strings.Contains(string(ev.Kv.Key), "/ask/") {
					n.Add(1)
				}
			}
		}
	}()
	return n.Load
}
