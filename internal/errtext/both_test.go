package errtext

import (
	"errors"
	"testing"
)

func TestBoth(t *testing.T) {
	t.Parallel()
	a, b := errors.New("a\nb"), errors.New("etcdclaims: c")
	if err := Both(a, b); err.Error() != "a; b; c" || !errors.Is(err, a) || !errors.Is(err, b) {
		t.Error(err)
	}
	for _, err := range []error{Both(a, nil), Both(nil, a)} {
		if err != a { //nolint:errorlint // itself
			t.Error(err)
		}
	}
	if err := Both(nil, nil); err != nil {
		t.Error(err)
	}
}
