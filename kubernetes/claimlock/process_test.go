package claimlock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/kubernetes/claimlock"
	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// candidateVariable makes the program of the tests a candidate. Its value is the prefix of
// all keys, the name of the candidate, and the endpoint of etcd.
const candidateVariable = "CLAIMLOCK_CANDIDATE"

// Those of the processes: short, since their time is real, and long enough that a leader
// stays one on a machine that stalls for seconds.
const (
	processDuration = 8 * time.Second
	processDeadline = 6 * time.Second
	processRetry    = 300 * time.Millisecond
)

// processLapse is how long after the death of a leader another one leads: the lease, the
// second within which etcd revokes it, the longest time between two tries, and ten seconds
// for a busy machine.
const processLapse = processDuration + time.Second + processRetry*22/10 + 10*time.Second

// report is what a candidate says on its standard output.
type report struct {
	What  string // "leads", "stopped", or "refused": a write
	Fence int64
}

// runCandidate runs client-go's elector again and again, until the process is killed.
func runCandidate(prefix, name, endpoint string) error {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	own := prefix + "claims/"
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: own, Owner: name, AllowShortTTL: true})
	if err != nil {
		return err
	}
	lock, err := claimlock.New(claims, claimlock.Config{Key: key, Identity: name, Record: prefix + "record"})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(what string, fence int64) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(report{what, fence})
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: processDuration, RenewDeadline: processDeadline, RetryPeriod: processRetry, Name: key,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				token := lock.Claim().Token()
				say("leads", token.Fence)
				// The worst that a controller can do: it writes until etcd refuses it.
				kv := etcdguard.NewKV(etcd, etcdguard.Bearer(own, token))
				for ; ; time.Sleep(10 * time.Millisecond) {
					_, err := kv.Put(context.Background(), prefix+"data", fmt.Sprint(token.Fence))
					if errors.Is(err, fencing.ErrStale) {
						say("refused", token.Fence)
						return
					}
				}
			},
			OnStoppedLeading: func() { say("stopped", 0) },
		},
	})
	if err != nil {
		return err
	}
	for ctx := klog.NewContext(context.Background(), logr.Discard()); ; {
		elector.Run(ctx)
	}
}

// candidateProcess is a candidate in a process of its own, as the test sees it.
type candidateProcess struct {
	*testetcd.Child
	name    string
	reports chan report
}

func startCandidate(t *testing.T, prefix, name, endpoint string) *candidateProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), candidateVariable+"="+strings.Join([]string{prefix, name, endpoint}, " "))
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child, err := testetcd.StartChild(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(child.Kill)
	c := &candidateProcess{child, name, make(chan report, 1000)}
	go func() {
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			var r report
			if err := json.Unmarshal(lines.Bytes(), &r); err == nil {
				c.reports <- r
			}
		}
	}()
	return c
}

// hears waits until the candidate has said all of some kinds of things, in any order. It
// returns the fence of each.
func (c *candidateProcess) hears(t *testing.T, within time.Duration, kinds ...string) map[string]int64 {
	t.Helper()
	fences := map[string]int64{}
	for deadline := time.After(within); len(fences) < len(kinds); {
		select {
		case r := <-c.reports:
			if slices.Contains(kinds, r.What) {
				fences[r.What] = r.Fence
			}
		case <-deadline:
			t.Fatalf("%s said %v within %v, want %q", c.name, fences, within, kinds)
		}
	}
	return fences
}

// elected waits until one of the candidates, but for one, leads with a fence greater than
// that of the last leader.
func elected(t *testing.T, all []*candidateProcess, but *candidateProcess, last int64, within time.Duration) (*candidateProcess, int64) {
	t.Helper()
	for began := time.Now(); time.Since(began) < within; time.Sleep(5 * time.Millisecond) {
		for _, c := range all {
			if c == but {
				continue
			}
			select {
			case r := <-c.reports:
				if r.What != "leads" {
					continue
				}
				if r.Fence <= last {
					t.Errorf("%s leads with fence %d, after %d", c.name, r.Fence, last)
				}
				t.Logf("%s leads after %v, fence %d", c.name, time.Since(began).Round(time.Millisecond), r.Fence)
				return c, r.Fence
			default:
			}
		}
	}
	t.Fatalf("nobody leads within %v", within)
	return nil, 0
}

// written waits until the leader with the fence has written, and returns the revision.
func written(t *testing.T, etcd *clientv3.Client, data string, fence int64) int64 {
	t.Helper()
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		got, err := etcd.Get(t.Context(), data)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Kvs) == 1 && string(got.Kvs[0].Value) == fmt.Sprint(fence) {
			return got.Kvs[0].ModRevision
		}
	}
	t.Fatalf("the leader with fence %d has not written", fence)
	return 0
}

// Real processes elect, whose leader is killed with SIGKILL or stopped with SIGSTOP. Another
// one leads in time, with a greater fence. One that goes on writes as if it still led, and
// etcd refuses that.
func TestProcesses(t *testing.T) {
	if err := testetcd.Signals(); err != nil {
		t.Skip(err)
	}
	server := testetcd.Shared(t)
	etcd, endpoint, prefix := server.Client(t), server.Endpoints()[0], testetcd.Prefix(t)
	var all []*candidateProcess
	for i := range 3 {
		all = append(all, startCandidate(t, prefix, fmt.Sprint("candidate-", i), endpoint))
	}
	leader, fence := elected(t, all, nil, 0, 30*time.Second)
	faults := []string{"SIGKILL", "SIGSTOP", "SIGSTOP", "SIGKILL"}
	if testing.Short() {
		faults = faults[:2]
	}
	for round, fault := range faults {
		written(t, etcd, prefix+"data", fence)
		former, past := leader, fence
		t.Logf("%s for %s", fault, former.name)
		if fault == "SIGKILL" {
			former.Kill()
		} else if err := former.Pause(); err != nil {
			t.Fatal(err)
		}
		leader, fence = elected(t, all, former, past, processLapse)
		if fault == "SIGKILL" {
			for i, c := range all {
				if c == former {
					all[i] = startCandidate(t, prefix, fmt.Sprintf("%s-%d", c.name, round), endpoint)
				}
			}
			continue
		}
		if err := former.Resume(); err != nil {
			t.Fatal(err)
		}
		// Its elector may notice before its write has an answer.
		if got := former.hears(t, 30*time.Second, "refused", "stopped")["refused"]; got != past {
			t.Errorf("a write with fence %d was refused, not with %d", got, past)
		}
	}

	last := written(t, etcd, prefix+"data", fence)
	var fences []int64
	for resp := range etcd.Watch(t.Context(), prefix+"data", clientv3.WithRev(1)) {
		for _, e := range resp.Events {
			var f int64
			if _, err := fmt.Sscan(string(e.Kv.Value), &f); err != nil {
				t.Fatal(err)
			}
			if n := len(fences); n == 0 || f > fences[n-1] {
				fences = append(fences, f)
			} else if f < fences[n-1] {
				t.Fatalf("a write with fence %d was accepted after one with %d", f, fences[n-1])
			}
			if e.Kv.ModRevision == last {
				if len(fences) != len(faults)+1 {
					t.Errorf("written with the fences %d, of %d leaders", fences, len(faults)+1)
				}
				return
			}
		}
	}
	t.Fatal("the watch ended")
}
