package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
)

// A process is a worker, as the parent sees it. It belongs to the goroutine of
// the parent.
type process struct {
	name     string
	state    string
	done     int // results that bear its name
	ready    bool
	held     event // what it holds, if it was told to
	killed   bool
	finished bool

	cmd    *exec.Cmd
	orders *json.Encoder
}

func (p *parent) startWorkers(ctx context.Context, running *sync.WaitGroup) error {
	for rank := range p.Of {
		j := p.job
		j.Name, j.Rank, j.Hold = fmt.Sprintf("worker-%d", rank+1), rank, rank < 2
		running.Add(1)
		var w *process
		w, err := startProcess(ctx, j,
			func(e event) { p.send(ctx, func() { p.note(w, e) }) },
			func(err error) {
				defer running.Done()
				p.send(ctx, func() { p.ended(w, err) })
			})
		if err != nil {
			running.Done()
			return fmt.Errorf("starting %s: %w", j.Name, err)
		}
		p.workers = append(p.workers, w)
	}
	return nil
}

// startProcess starts a worker. What it tells, and in the end how it ended, is
// passed on from another goroutine. It is killed when ctx ends.
func startProcess(ctx context.Context, j job, tell func(event), ended func(error)) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, workerCommand)
	dieWithParent(cmd)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for events := json.NewDecoder(out); ; {
			var e event
			if err := events.Decode(&e); err != nil {
				break // how it ended says more
			}
			tell(e)
		}
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", j.Name, err, bytes.TrimSpace(complaints.Bytes()))
		}
		ended(err)
	}()
	p := &process{name: j.Name, state: "starting", cmd: cmd, orders: json.NewEncoder(in)}
	if err := p.orders.Encode(j); err != nil {
		// It has ended already, and ended says why.
		p.state = "failed"
	}
	return p, nil
}
