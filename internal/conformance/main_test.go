package conformance_test

import (
	"os"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
	"go.uber.org/goleak"
)

// The program of the tests is also the worker that they freeze.
func TestMain(m *testing.M) {
	if library := os.Getenv(workerLibrary); library != "" {
		work(library)
		return
	}
	testetcd.Main(m,
		// River's own, which it leaves behind when it stops (v0.51.0 with pgx).
		goleak.IgnoreTopFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).backgroundHealthCheck"),
	)
}
