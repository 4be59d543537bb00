package audit

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Records are removed by age and by number, the oldest first, and at most a hundred by one action.
func TestBeyond(t *testing.T) {
	t.Parallel()
	var oldest []*mvccpb.KeyValue
	for i := range mostTrimmed {
		oldest = append(oldest, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%03d", i)})
	}
	for _, tt := range []struct {
		all  int
		old  string
		want string
	}{
		{all: Most},
		{all: Most, old: "000"},
		{all: Most, old: "001", want: "000\x00"},
		{all: Most + 3, want: "002\x00"},
		{all: Most + 3, old: "010", want: "009\x00"},
		{all: Most + 3, old: "001", want: "002\x00"},
		{all: 10 * Most, want: "099\x00"},
		{all: Most, old: "9", want: "099\x00"},
	} {
		if got := beyond(oldest, tt.all, tt.old); got != tt.want {
			t.Errorf("of %d, old before %q: %q, want %q", tt.all, tt.old, got, tt.want)
		}
	}
	if got := beyond(nil, 0, "9"); got != "" {
		t.Errorf("of none: %q", got)
	}
}
