package objectguard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/objectguard"
)

// copied is a store whose operator copies each object onto itself, to encrypt it anew or to
// change its storage class. The content stays the same, and S3 gives it another ETag.
type copied struct {
	objectguard.Memory
	times int
}

func (c *copied) tag(version string) string { return fmt.Sprintf("%s-%d", version, c.times) }

func (c *copied) Read(ctx context.Context, name string) ([]byte, string, error) {
	data, version, err := c.Memory.Read(ctx, name)
	return data, c.tag(version), err
}

func (c *copied) Create(ctx context.Context, name string, data []byte) (string, error) {
	version, err := c.Memory.Create(ctx, name, data)
	return c.tag(version), err
}

func (c *copied) Replace(ctx context.Context, name string, data []byte, version string) (string, error) {
	version, current := strings.CutSuffix(version, c.tag(""))
	if !current {
		return "", objectguard.ErrConflict
	}
	version, err := c.Memory.Replace(ctx, name, data, version)
	return c.tag(version), err
}

// A version can change without the content. A write that was to replace the old version is
// certainly not done then, and is made for the new one.
func TestCopiedOntoItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(copied)
		o, err := objectguard.New(s, "state")
		must(t, err)
		must(t, o.Write(t.Context(), older, []byte("a")))
		s.times++
		must(t, o.Write(t.Context(), older, []byte("b")))
		has(t, o, older, "b")
		s.times++
		must(t, o.Delete(t.Context(), older))
		other, err := objectguard.New(s, "state")
		must(t, err)
		must(t, other.Admit(t.Context(), newer))
		s.times++
		wants(t, o.Write(t.Context(), older, []byte("c")), fencing.ErrStale)
	})
}
