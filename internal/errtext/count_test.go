package errtext

import "testing"

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 keys", 1: "1 key", 2: "2 keys"} {
		if got := Count(n, "key", "keys"); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
