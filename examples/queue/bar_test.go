package main

import (
	"bytes"
	"log"
	"testing"
)

// On a terminal the bar stays below what is logged; elsewhere there are lines only.
func TestBar(t *testing.T) {
	defer log.SetOutput(log.Writer())
	defer log.SetFlags(log.Flags())
	log.SetFlags(0)
	for terminal, want := range map[bool]string{
		true: "start\n" +
			"\r\x1b[K[##########..............................] 1/4" +
			"\r\x1b[Ka line\n[##########..............................] 1/4" +
			"\r\x1b[K[########################################] 4/4\n" +
			"end\n",
		false: "start\n1 of 4 items are done\na line\n4 of 4 items are done\nend\n",
	} {
		var out bytes.Buffer
		b := &bar{out: &out, terminal: terminal}
		log.SetOutput(b)
		log.Print("start")
		b.set(0, 4)
		b.set(1, 4)
		b.set(1, 4)
		log.Print("a line")
		b.set(4, 4)
		log.Print("end")
		if got := out.String(); got != want {
			t.Errorf("terminal %t: got %q, want %q", terminal, got, want)
		}
	}
}
