package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
)

// devProgram is a program of its own: with the etcd server in it claimctl would be
// half as large again, and take twice as long to start.
const devProgram = "claimctl-dev"

func (a *app) devCommand() *cobra.Command {
	return &cobra.Command{
		Use: "dev [FLAG...]", GroupID: groupRun, DisableFlagParsing: true,
		Short: "Start an etcd with samples on this machine, to try things (needs claimctl-dev)",
		Long: `Run claimctl-dev, a separate program that claimctl does not contain. Install it first:

  go install github.com/etcdclaims/claims/cmd/claimctl-dev@latest

dev finds it in the directory of claimctl, or else in PATH.

claimctl-dev starts an etcd on this machine with samples of claims, waiters, work,
queues and schedules, and the live page of it, until it is interrupted, and prints
what to try. It is for development: its data is gone afterwards.

All flags are passed on to it. The global flags below have no effect.

  -listen ADDRESS   of etcd (default 127.0.0.1:2379; port 0 takes a free one)
  -page ADDRESS     of the live page (default 127.0.0.1:2381; empty: none)
  -empty            start without samples`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && slices.Contains([]string{"-h", "-help", "--help"}, args[0]) {
				return cmd.Help()
			}
			return a.dev(args)
		},
	}
}

// dev runs claimctl-dev.
func (a *app) dev(args []string) error {
	path, err := devPath()
	if err != nil {
		return &exitError{exitNotFound, fmt.Errorf("dev: the separate program %s is neither beside claimctl nor in PATH: go install github.com/etcdclaims/claims/cmd/%s@latest", devProgram, devProgram)}
	}
	cmd := &exec.Cmd{Path: path, Args: append([]string{devProgram}, args...), Stdin: a.in, Stdout: a.out, Stderr: a.err}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, interrupts...)
	defer signal.Stop(signals)
	err = cmd.Start()
	if err == nil {
		done := make(chan struct{})
		defer close(done)
		go passOn(signals, cmd.Process, done)
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &exitError{code: exitOf(exit)}
	}
	return err
}

// devPath finds the program beside claimctl, or where programs are.
func devPath() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), devProgram)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(devProgram)
}

// passOn sends what asks claimctl to end to another process.
func passOn(signals <-chan os.Signal, to *os.Process, done <-chan struct{}) {
	for {
		select {
		case sig := <-signals:
			_ = to.Signal(sig) // it may have ended
		case <-done:
			return
		}
	}
}
