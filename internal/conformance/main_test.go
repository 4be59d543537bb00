package conformance_test

import (
	"flag"
	"os"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// The program of the tests is also the worker that they freeze.
func TestMain(m *testing.M) {
	if library := os.Getenv(workerLibrary); library != "" {
		work(library)
		return
	}
	// Most tests wait for the clock, not for a processor.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testetcd.Main(m)
}
