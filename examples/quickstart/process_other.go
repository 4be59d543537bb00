//go:build !unix

package main

import (
	"errors"
	"os"
	"os/exec"
)

func checkPlatform() error {
	return errors.New("this example needs unix: it freezes processes with SIGSTOP")
}

func freeze(*os.Process) error           { return errors.ErrUnsupported }
func thaw(*os.Process) error             { return errors.ErrUnsupported }
func notifyThawed() <-chan os.Signal     { return nil }
func terminalWidth(*os.File) (int, bool) { return 0, false }
func dieWithParent(*exec.Cmd)            {}
