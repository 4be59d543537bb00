package claimlock_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) {
	if of := os.Getenv(candidateVariable); of != "" {
		of := strings.Split(of, " ")
		fmt.Fprintln(os.Stderr, runCandidate(of[0], of[1], of[2]))
		os.Exit(1)
	}
	testetcd.Main(m)
}
