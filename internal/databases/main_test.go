package databases_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(dieInTransaction) != "" {
		os.Exit(runAndDie())
	}
	code := m.Run()
	pooler.stop()
	postgres.stop()
	mariadb.stop()
	if code == 0 { // after a failure leaks are a consequence
		if err := goleak.Find(); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines are left over: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}
