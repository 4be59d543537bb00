package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const story = `partitions: member-1 4 member-2 4 member-3 4
partitions: member-1 3 member-2 3 member-3 3 member-4 3
partitions: member-2 4 member-3 4 member-4 4
the late write of member-1 is refused: true
each partition was counted one by one
`

func TestPartitionsMoveAndCountOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := run(t.Context(), claimtest.Start(t).Etcd(t), "/shards/", &out); err != nil || out.String() != story {
			t.Errorf("%v, got\n%swant\n%s", err, &out, story)
		}
	})
}
