package world

import (
	"fmt"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// States that are wrong are found out.
func TestChecksOfWrongRecords(t *testing.T) {
	t.Parallel()
	claimed := record.Record{State: record.Claimed, Attempt: 1, Claim: "A1"}
	second := claimed
	second.Attempt, second.Claim = 2, "C1"
	for _, tt := range []struct {
		records   []record.Record
		completed int
		want      string
	}{
		{[]record.Record{claimed}, 0, ""},
		{[]record.Record{claimed, claimed.Done("", noon)}, 0, `completed 0 times, and its record says "done"`},
		{[]record.Record{claimed}, 1, `completed 1 times, and its record says "claimed"`},
		{[]record.Record{claimed}, 2, "completed 2 times"},
		{[]record.Record{claimed, second}, 0, "1 attempts count that no caller got"},
		{[]record.Record{second}, 0, "the record counts 2 attempts after 0"},
	} {
		w := New(&Scope{Callers: all(2, Call{Work: Completes})}).fork()
		var err error
		for _, r := range tt.records {
			if err == nil {
				err = w.do(txn.Put([]byte(recordKey), r.Value().Encode(), int64(0)))
			}
		}
		for n := range tt.completed {
			if err == nil {
				put := txn.Put([]byte(done+fmt.Sprint(n)), fmt.Sprint(Completes), int64(0)) // without the guard that it needs
				w.etcd, _, err = w.etcd.Txn(&pb.TxnRequest{Success: []*pb.RequestOp{put}})
			}
		}
		if err == nil {
			err = w.checkWork()
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v, completed %d times: %v; want %q", tt.records, tt.completed, err, tt.want)
		}
	}
}

func TestCheckOfWrites(t *testing.T) {
	t.Parallel()
	w := New(&Scope{Callers: all(1, Call{Writes: true})}).fork()
	if err := w.do(txn.Put([]byte(resource), "2", int64(0))); err != nil {
		t.Fatal(err)
	}
	err := w.do(txn.Put([]byte(resource), "1", int64(0)))
	if want := "a holder with the fence 1 wrote after one with the fence 2"; err == nil || err.Error() != want {
		t.Errorf("%v; want %q", err, want)
	}
}
