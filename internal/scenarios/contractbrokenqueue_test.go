package scenarios_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/contract"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// edited returns an etcd that carries out other operations than those of its
// transactions.
func edited(edit func(op clientv3.Op) clientv3.Op) func(tb testing.TB) claimtest.Etcd {
	return func(tb testing.TB) claimtest.Etcd {
		tb.Helper()
		return wrapped(claimtest.Start(tb), func(c *clientv3.Client) { c.KV = editing{c.KV, edit} })
	}
}

// without returns an etcd that leaves out some operations.
func without(drops func(op clientv3.Op) bool) func(tb testing.TB) claimtest.Etcd {
	return edited(func(op clientv3.Op) clientv3.Op {
		if drops(op) {
			return clientv3.OpGet("nothing") // so that each operation has an answer at its place
		}
		return op
	})
}

var laterKey = regexp.MustCompile(`^(.*)/index/later/([^/]+)/([^/]+)/([^/]+)$`)

// early puts items that have not vested among the visible ones.
func early(op clientv3.Op) clientv3.Op {
	if m := laterKey.FindStringSubmatch(string(op.KeyBytes())); m != nil && op.IsPut() {
		return clientv3.OpPut(m[1]+"/index/ready/"+m[3]+"/"+m[2]+"/"+m[4], string(op.ValueBytes()))
	}
	return op
}

var rank = regexp.MustCompile(`/index/ready/[^/]+/`)

// flat puts all visible items under one priority.
func flat(op clientv3.Op) clientv3.Op {
	if key := string(op.KeyBytes()); op.IsPut() && rank.MatchString(key) {
		return clientv3.OpPut(rank.ReplaceAllString(key, "/index/ready/8000000000000064/"), string(op.ValueBytes()))
	}
	return op
}

var configuration = regexp.MustCompile(`"spec":\{[^}]*\}`)

// withoutConfig keeps the configuration of a queue neither in its key nor in the entries of sessions.
func withoutConfig(op clientv3.Op) clientv3.Op {
	key := string(op.KeyBytes())
	switch {
	case op.IsPut() && strings.HasSuffix(key, "/spec"):
		return clientv3.OpGet("nothing")
	case op.IsPut() && strings.Contains(key, "/worker/"):
		return clientv3.OpPut(key, configuration.ReplaceAllString(string(op.ValueBytes()), `"spec":{}`))
	}
	return op
}

// puts matches operations that put a key which contains part.
func puts(part string) func(op clientv3.Op) bool {
	return func(op clientv3.Op) bool { return op.IsPut() && strings.Contains(string(op.KeyBytes()), part) }
}

// deletes matches operations that delete such a key.
func deletes(part string) func(op clientv3.Op) bool {
	return func(op clientv3.Op) bool { return op.IsDelete() && strings.Contains(string(op.KeyBytes()), part) }
}

// Queues that are broken, as brokenEtcds are for claims: each case of the suite of queues
// fails with one of them.
var brokenQueues = map[string]broken{
	"clients of different namespaces": {
		start: brokenEtcds["clients of different namespaces"].start,
		fails: []string{
			"QueueClaimWaits", "QueueCompleteWithWrites", "QueueLostWorker", "QueueHandle", "QueueLimits", "QueuePause",
			"QueueCloseGivesBack", "QueueManyItems",
		},
	},
	"a cache in between": {
		start: brokenEtcds["a cache in between"].start,
		fails: []string{"QueueCancel", "QueueDeadLetters", "QueueHandle"},
	},
	"an item that is claimed stays visible": {
		start: without(deletes("/index/ready/")),
		fails: []string{
			"QueueOrder", "QueueIDOnce", "QueueCompleteWithWrites", "QueueFailUntilDead", "QueueCancel", "QueueManyItems",
		},
	},
	"an item that is completed stays taken": {
		start: without(deletes("/taken/")),
		fails: []string{"QueueHandle"},
	},
	"an item is visible before its time": {
		start: edited(early),
		fails: []string{"QueueVesting", "QueueSnoozeAndRelease"},
	},
	"priorities do not count": {
		start: edited(flat),
		fails: []string{"QueueOrder", "QueueFailPriority"},
	},
	"what is taken is noted nowhere": {
		start: without(puts("/taken/")),
		fails: []string{"QueueHeartbeatRaisesFence", "QueueCompleteWithWrites"},
	},
	"dead letters are lost": {
		start: without(puts("/dead/")),
		fails: []string{"QueueFailUntilDead", "QueueDeadLetters", "QueueOverDead"},
	},
	"a limit that counts nothing": {
		start: without(puts("/slot/")),
		fails: []string{"QueueLimits"},
	},
	"a configuration that is not kept": {
		start: edited(withoutConfig),
		fails: []string{"QueueLimits"},
	},
	"a pause that is not kept": {
		start: without(puts("/paused")),
		fails: []string{"QueuePause"},
	},
	"a pause that does not end": {
		start: without(deletes("/paused")),
		fails: []string{"QueuePause"},
	},
}

func TestQueuesCanFail(t *testing.T) {
	t.Parallel()
	mustFail(t, contract.QueueCases(), brokenQueues, testetcd.Sample)
	var fails []string
	for _, broken := range brokenQueues {
		fails = append(fails, broken.fails...)
	}
	for _, c := range contract.QueueCases() {
		if !slices.Contains(fails, c.Name) {
			t.Errorf("nothing makes %s fail", c.Name)
		}
	}
}

// editing changes operations.
type editing struct {
	clientv3.KV
	edit func(op clientv3.Op) clientv3.Op
}

func (kv editing) Txn(ctx context.Context) clientv3.Txn { return editingTxn{kv.KV.Txn(ctx), kv.edit} }

type editingTxn struct {
	clientv3.Txn
	edit func(op clientv3.Op) clientv3.Op
}

func (txn editingTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	return editingTxn{txn.Txn.If(cmps...), txn.edit}
}

func (txn editingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return editingTxn{txn.Txn.Then(txn.all(ops)...), txn.edit}
}

func (txn editingTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	return editingTxn{txn.Txn.Else(txn.all(ops)...), txn.edit}
}

func (txn editingTxn) all(ops []clientv3.Op) []clientv3.Op {
	ops = slices.Clone(ops)
	for i, op := range ops {
		if op.IsTxn() {
			cmps, then, otherwise := op.Txn()
			ops[i] = clientv3.OpTxn(cmps, txn.all(then), txn.all(otherwise))
		} else {
			ops[i] = txn.edit(op)
		}
	}
	return ops
}
