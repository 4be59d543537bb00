package conformance_test

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
	"github.com/etcdclaims/claims/internal/testwork"
)

// A process is stopped in the midst of its job until another has done the job, and
// then goes on as if nothing had been. Its late write must be refused, and its
// library must not be told that the job is done: what has a queue tries again.
func TestFrozen(t *testing.T) {
	t.Parallel()
	if err := testetcd.Signals(); err != nil {
		t.Skip(err)
	}
	var mu sync.Mutex
	var table []string
	t.Cleanup(func() {
		slices.Sort(table)
		t.Log("\n| library | Check in the late job | its write | what the library was told | run again |\n|---|---|---|---|---|\n" + strings.Join(table, "\n"))
	})
	for library := range libraries {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			server := ""
			switch library {
			case "asynq":
				server = startRedis(t)
			case "River":
				server = migrated(t, startPostgres(t))
			}
			row := freeze(t, library, server)
			mu.Lock()
			defer mu.Unlock()
			table = append(table, row)
		})
	}
}

// freeze does so to one library, and returns what became of it.
func freeze(t *testing.T, library, server string) (row string) {
	t.Helper()
	prefix := testetcd.Prefix(t)
	etcd := testetcd.Shared(t).Client(t)
	other := newClaims(t, prefix)

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerLibrary+"="+library, workerEtcd+"="+testetcd.Shared(t).Endpoints()[0], workerPrefix+"="+prefix, workerServer+"="+server)
	cmd.Stderr = os.Stderr
	in := must(cmd.StdinPipe())
	pipe := must(cmd.StdoutPipe())
	child, err := testetcd.StartChild(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(child.Kill)
	says := make(chan said, 100)
	go func() {
		defer close(says)
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			var s said
			if err := json.Unmarshal(lines.Bytes(), &s); err == nil {
				says <- s
			}
		}
	}()
	// hear returns what is said next of a kind, or false if nothing is for so long.
	hear := func(what string, within time.Duration) (said, bool) {
		deadline := time.After(within)
		for {
			select {
			case s, ok := <-says:
				if !ok {
					return s, false
				}
				if s.What == what {
					return s, true
				}
			case <-deadline:
				return said{}, false
			}
		}
	}
	const patience = 30 * time.Second
	begun, ok := hear("begun", patience)
	if !ok {
		t.Fatalf("the job does not begin: %+v", begun)
	}

	if err := child.Pause(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	takeOver(t, etcd, other, prefix, begun.Key)
	frozen := time.Since(stopped)
	if err := child.Resume(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "go on")

	check, _ := hear("check", patience)
	write, _ := hear("write", patience)
	told, _ := hear("told", patience)
	if !check.Lost || !write.Stale || !told.Lost {
		t.Errorf("frozen for %v: check %+v, write %+v, told %+v", frozen, check, write, told)
	}
	again, queue := "no", server != "" || library == "watermill"
	if queue {
		second, _ := hear("begun", patience)
		rewrite, ok := hear("write", patience)
		if !ok || rewrite.Err != "" || second.Fence <= begun.Fence {
			t.Errorf("run again: %+v, %+v", second, rewrite)
		}
		again = "yes"
	} else if s, ok := hear("begun", 500*time.Millisecond); ok {
		t.Errorf("run again: %+v", s)
	}
	_ = in.Close()
	if err := child.Err(); err != nil {
		t.Errorf("the worker: %v", err)
	}
	got, err := etcd.Get(t.Context(), dataOf(prefix))
	if err != nil || len(got.Kvs) != 1 || (string(got.Kvs[0].Value) == "other") == queue {
		t.Errorf("%v, %v", got, err)
	}
	t.Logf("frozen for %v: %s", frozen.Round(time.Millisecond), told.Err)
	if told.Lost {
		told.Err = "claim lost: " + told.Err[strings.LastIndex(told.Err, "lost: ")+len("lost: "):]
	}
	return fmt.Sprintf("| %s | lost: %v | refused as stale: %v | %s | %s |", library, check.Lost, write.Stale, told.Err, again)
}

// takeOver does the job of the frozen process in another, as soon as it may: as work
// where that is a tick.
func takeOver(t *testing.T, etcd *client, claims *etcdclaims.Client, prefix, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	do := func(ctx context.Context) error {
		token, _ := fencing.FromContext(ctx)
		_, err := etcdguard.NewKV(etcd, etcdguard.Bearer(prefix, token)).Put(ctx, dataOf(prefix), "other")
		return err
	}
	var err error
	if strings.Contains(key, "/") {
		_, _, err = testwork.Of(claims).Once(ctx, key, func(ctx context.Context) ([]byte, error) { return nil, do(ctx) })
	} else {
		err = claims.Run(ctx, key, do)
	}
	if err != nil {
		t.Fatal(errors.Join(errors.New("the job is not taken over"), err))
	}
}
