// Worker is a loop that runs in one process at a time, of any number: three of them
// compete, the one that leads is killed, and the next goes on where it was.
//
//	go run ./examples/worker                        # an etcd of its own
//	go run ./examples/worker -endpoints http://localhost:2379
//
// What a program needs is in work.go: middleware.Singleton around its loop. This
// file starts three processes of it, and kills one.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/examples/demoetcd"
)

const (
	limit  = 40 // what is counted to
	fateOf = 10 // at which the leader is killed
)

func main() {
	endpoints := flag.String("endpoints", "", "etcd to use, as URLs separated by commas (default one in this process)")
	name := flag.String("name", "", "be one worker, of this name, instead of starting three")
	root := flag.String("root", "/worker/"+rand.Text()+"/", "where in etcd everything is stored")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var err error
	if *name != "" {
		err = work(ctx, strings.Split(*endpoints, ","), *root, *name, os.Stdout)
	} else {
		err = demonstrate(ctx, *endpoints, *root, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "worker: %v\n", err)
		os.Exit(1)
	}
}

// demonstrate starts three workers, and kills the one that leads.
func demonstrate(ctx context.Context, endpoints, root string, out io.Writer) error {
	at, stop, err := demoetcd.Open(endpoints)
	if err != nil {
		return err
	}
	defer stop()
	defer tidy(at, root)
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, done := context.WithCancel(ctx)
	lines := make(chan string)
	var wg sync.WaitGroup
	defer func() {
		done() // kills those that run
		go func() { wg.Wait(); close(lines) }()
		for range lines { // lets them say their last words
		}
	}()
	workers := make(map[string]*exec.Cmd)
	for _, name := range []string{"one", "two", "three"} {
		cmd := exec.CommandContext(ctx, program, "-name", name, "-endpoints", strings.Join(at, ","), "-root", root)
		cmd.Stderr = os.Stderr
		said, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		workers[name] = cmd
		wg.Go(func() {
			for scan := bufio.NewScanner(said); scan.Scan(); {
				lines <- scan.Text()
			}
			_ = cmd.Wait() // it was killed, or has said why not
		})
	}
	victim := ""
	for n := 0; ; {
		select {
		case line := <-lines:
			var name string
			var fence int64
			if _, err := fmt.Sscanf(line, "%s counts %d under fence %d", &name, &n, &fence); err != nil {
				return fmt.Errorf("a worker says %q", line)
			}
			_, _ = fmt.Fprintln(out, line)
			switch {
			case n == limit && name == victim, n == limit && victim == "":
				return errors.New("nobody was replaced")
			case n == limit:
				return nil
			case n >= fateOf && victim == "":
				victim = name
				_, _ = fmt.Fprintf(out, "%s is killed\n", name)
				_ = workers[name].Process.Kill()
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
