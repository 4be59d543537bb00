package objectguard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/objectguard"
)

// proxy is between the guard and a store, and changes the versions that the store returns.
type proxy struct {
	*shop
	read  func(version string) string
	wrote func(version string) string
}

func (p proxy) Read(ctx context.Context, name string) ([]byte, string, error) {
	data, version, err := p.shop.Read(ctx, name)
	if err == nil {
		version = p.read(version)
	}
	return data, version, err
}

func (p proxy) Create(ctx context.Context, name string, data []byte) (string, error) {
	version, err := p.shop.Create(ctx, name, data)
	return p.wrote(version), err
}

func (p proxy) Replace(ctx context.Context, name string, data []byte, version string) (string, error) {
	version, err := p.shop.Replace(ctx, name, data, version)
	return p.wrote(version), err
}

// Versions that are missing, weak, or changed by a proxy let no former owner in, and no write is reported as done that was not.
func TestVersions(t *testing.T) {
	t.Parallel()
	same := func(version string) string { return version }
	none := func(string) string { return "" }
	feeble := func(version string) string { return `W/"` + version + `"` }
	zipped := func(version string) string { return version + "-gzip" }
	for name, tt := range map[string]struct {
		read, wrote func(string) string
		fails       error // of the second write; nil: it is done
	}{
		"none in replies to writes":    {same, none, nil},
		"weak in replies to writes":    {same, feeble, nil},
		"changed in replies to writes": {same, zipped, nil},
		"none in reads":                {none, same, objectguard.ErrInvalid},
		"weak in reads":                {feeble, same, objectguard.ErrInvalid},
		"weak everywhere":              {feeble, feeble, objectguard.ErrInvalid},
		"changed in reads":             {zipped, zipped, fencing.ErrUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &shop{}
			first := open(t, proxy{s, tt.read, tt.wrote}, "o")
			old, newer := fencing.Token{Key: "k", Fence: 1}, fencing.Token{Key: "k", Fence: 2}
			if err := first.Write(t.Context(), old, []byte("one")); err != nil {
				// Create's own reply decides: the object was absent, so its version was not needed.
				t.Errorf("%s: first write: %v", name, err)
			}
			second := open(t, proxy{s, tt.read, tt.wrote}, "o")
			s.counted()
			err := second.Write(t.Context(), newer, []byte("two"))
			if !errors.Is(err, tt.fails) {
				t.Errorf("%s: second write: %v, want %v", name, err, tt.fails)
			}
			if done := strings.HasSuffix(s.content("o"), "two"); done != (err == nil) {
				t.Errorf("%s: %v, and there is %q", name, err, s.content("o"))
			}
			if n := s.counted(); errors.Is(tt.fails, objectguard.ErrInvalid) && n != [2]int{1, 0} {
				t.Errorf("%s: %v reads and writes", name, n)
			}
			if err != nil {
				return
			}
			for range 2 { // also after a version that was remembered wrongly
				if err := second.Write(t.Context(), newer, []byte("three")); err != nil {
					t.Errorf("%s: third write: %v", name, err)
				}
			}
			if err := first.Write(t.Context(), old, []byte("late")); !errors.Is(err, fencing.ErrStale) ||
				!strings.HasSuffix(s.content("o"), "three") {
				t.Errorf("%s: former owner: %v, and there is %q", name, err, s.content("o"))
			}
		})
	}
}
