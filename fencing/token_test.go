package fencing_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTokenIsZero(t *testing.T) {
	t.Parallel()
	for token, want := range map[fencing.Token]bool{
		{}:                    true,
		{Key: "k"}:            true,
		{Fence: 1}:            false,
		{Key: "k", Fence: 1}:  false,
		{Key: "k", Fence: -1}: false,
	} {
		if got := token.IsZero(); got != want {
			t.Errorf("%v: %v", token, got)
		}
	}
}

// invalid are tokens that no gate may admit, and why.
var invalid = map[string]struct {
	token fencing.Token
	want  error
}{
	"nothing":               {fencing.Token{}, fencing.ErrNoToken},
	"fence 0":               {fencing.Token{Key: "k"}, fencing.ErrNoToken},
	"negative fence":        {fencing.Token{Key: "k", Fence: -1}, fencing.ErrMalformed},
	"least fence":           {fencing.Token{Key: "k", Fence: -1 << 63}, fencing.ErrMalformed},
	"no key":                {fencing.Token{Fence: 1}, fencing.ErrMalformed},
	"huge key":              {fencing.Token{Key: strings.Repeat("k", 1025), Fence: 1}, fencing.ErrMalformed},
	"NUL in the key":        {fencing.Token{Key: "a\x00b", Fence: 1}, fencing.ErrMalformed},
	"line break in the key": {fencing.Token{Key: "a\r\nb", Fence: 1}, fencing.ErrMalformed},
	"DEL in the key":        {fencing.Token{Key: "a\x7f", Fence: 1}, fencing.ErrMalformed},
	"C1 control in the key": {fencing.Token{Key: "a\u0085", Fence: 1}, fencing.ErrMalformed},
	"key that is not UTF-8": {fencing.Token{Key: "a\xff", Fence: 1}, fencing.ErrMalformed},
	"huge key, not UTF-8":   {fencing.Token{Key: strings.Repeat("\xff", 9000), Fence: 1}, fencing.ErrMalformed},
}

func TestTokenValidate(t *testing.T) {
	t.Parallel()
	for name, tt := range invalid {
		err := tt.token.Validate()
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		if text, err := tt.token.MarshalText(); !errors.Is(err, tt.want) || len(text) > 0 {
			t.Errorf("%s: marshalled as %q, %v", name, text, err)
		}
	}
	for _, token := range []fencing.Token{
		{Key: "k", Fence: 1},
		{Key: strings.Repeat("k", 1024), Fence: 1<<63 - 1},
		{Key: `with space, "quotes" and \`, Fence: 2},
		{Key: "caf\u00e9/\U0001f512", Fence: 3},
	} {
		if err := token.Validate(); err != nil {
			t.Errorf("%v: %v", token, err)
		}
	}
}

func TestTokenInContext(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if token, ok := fencing.FromContext(ctx); ok || token != (fencing.Token{}) {
		t.Errorf("%v, %v", token, ok)
	}
	one := fencing.Token{Key: "one", Fence: 1}
	outer := fencing.NewContext(ctx, one)
	two := fencing.Token{Key: "two", Fence: 2}
	inner, cancel := context.WithCancel(fencing.NewContext(outer, two))
	defer cancel()
	if token, ok := fencing.FromContext(outer); !ok || token != one {
		t.Errorf("%v, %v", token, ok)
	}
	if token, ok := fencing.FromContext(inner); !ok || token != two {
		t.Errorf("%v, %v", token, ok)
	}
	// A token without a fence is there, and says so.
	none := fencing.NewContext(ctx, fencing.Token{Key: "k"})
	if token, ok := fencing.FromContext(none); !ok || !token.IsZero() {
		t.Errorf("%v, %v", token, ok)
	}
}
