package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"testing"

	"github.com/etcdclaims/claims/fencing/objectguard"
	"github.com/etcdclaims/claims/fencing/objectguard/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	storetest.TestStore(t, func(*testing.T) objectguard.Store { return new(objectguard.Memory) })
}

// broken is Memory with one fault.
type broken struct {
	objectguard.Memory
	fault string
}

func (b *broken) Read(ctx context.Context, name string) ([]byte, string, error) {
	data, version, err := b.Memory.Read(ctx, name)
	switch {
	case b.fault == "absent is empty" && errors.Is(err, objectguard.ErrNotFound):
		return nil, "0", nil
	case b.fault == "no versions":
		version = ""
	case b.fault == "one version for all" && err == nil:
		version = "1"
	case b.fault == "text" && err == nil:
		data = bytes.ToValidUTF8(data, nil)
	case b.fault == "gone is absent" && ctx.Err() != nil:
		err = objectguard.ErrNotFound
	}
	return data, version, err
}

func (b *broken) Create(ctx context.Context, name string, data []byte) (string, error) {
	version, err := b.Memory.Create(ctx, name, data)
	switch {
	case b.fault == "condition of Create ignored" && errors.Is(err, objectguard.ErrConflict):
		return b.overwrite(ctx, name, data)
	case b.fault == "conflict has no sentinel" && err != nil:
		err = errors.New("conflict")
	case b.fault == "wrong version":
		version += "0"
	}
	return version, err
}

func (b *broken) Replace(ctx context.Context, name string, data []byte, version string) (string, error) {
	if b.fault == "one version for all" {
		return b.overwrite(ctx, name, data)
	}
	v, err := b.Memory.Replace(ctx, name, data, version)
	switch {
	case b.fault == "condition of Replace ignored" && errors.Is(err, objectguard.ErrConflict):
		return b.overwrite(ctx, name, data)
	case b.fault == "Replace creates" && errors.Is(err, objectguard.ErrConflict):
		if v, err := b.Memory.Create(ctx, name, data); err == nil {
			return v, nil
		}
	case b.fault == "gone is conflict" && ctx.Err() != nil:
		err = objectguard.ErrConflict
	}
	return v, err
}

func (b *broken) overwrite(ctx context.Context, name string, data []byte) (string, error) {
	_, version, err := b.Memory.Read(ctx, name)
	if err != nil {
		return b.Memory.Create(ctx, name, data)
	}
	return b.Memory.Replace(ctx, name, data, version)
}

var faults = []string{
	"absent is empty", "no versions", "one version for all", "text", "gone is absent", "condition of Create ignored",
	"conflict has no sentinel", "wrong version", "condition of Replace ignored", "Replace creates", "gone is conflict",
}

var onBroken = flag.String("broken", "", "run the suite on the store with this fault")

func TestOnBrokenStore(t *testing.T) {
	if *onBroken == "" {
		t.Skip("run by TestSuiteCanFail")
	}
	storetest.TestStore(t, func(*testing.T) objectguard.Store { return &broken{fault: *onBroken} })
}

// A suite that lets everything pass tells nothing: each fault must be found, by
// the tests of the store alone.
func TestSuiteCanFail(t *testing.T) {
	for _, fault := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOnBrokenStore$/^[^GO]", "-broken="+fault)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !bytes.Contains(out, []byte("--- FAIL: TestOnBrokenStore/")) || bytes.Contains(out, []byte("panic:")) {
				t.Errorf("not found: %v\n%s", err, out)
			}
		})
	}
}
