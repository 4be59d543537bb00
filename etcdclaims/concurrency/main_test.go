package concurrency_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The tests that need etcd stand in package locks, whose test binary links the server: concurrency_*_test.go.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
