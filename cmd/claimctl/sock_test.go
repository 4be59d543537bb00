//go:build unix

package main

import (
	"fmt"
	"testing"
	"time"
)

// A note on a lost claim exits as check does: the claim is lost.
func TestNoteOnLostClaim(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(w.client("a"), "k")
	s, err := listenSock(&holding{Claim: claim}, 5*time.Second)
	w.noErr(err)
	defer s.close()
	t.Setenv("CLAIM_SOCK", s.path())
	w.ok("note", "step 1")
	w.ok("release", "k", "--fence", fmt.Sprint(claim.Fence()))
	<-claim.Done()
	w.fails(exitLost, "lost", "check")
	w.fails(exitLost, "lost", "note", "step 2")
}
