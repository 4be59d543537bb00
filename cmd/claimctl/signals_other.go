//go:build !unix

package main

import "os"

// interrupts are the signals that end claimctl.
var interrupts = []os.Signal{os.Interrupt}
