package partitions_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/explore/partitions"
	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Nothing goes wrong in a selection of the scopes. `go run ./internal/explore` searches all of them.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, s := range partitions.Scopes() {
		if !s.IsQuick() {
			continue
		}
		t.Run(s.String()+", "+s.Describe(), func(t *testing.T) {
			t.Parallel()
			r := search.Run([]partitions.World{partitions.New(&s)}, search.Options{Workers: 1})
			if r.Bad != nil || !r.Complete || r.States < 200 {
				t.Errorf("%d states, complete: %v; %v", r.States, r.Complete, r.Bad)
			}
		})
	}
}

// Two states with the same bytes have the same next states, so one of them stands for both.
func TestBytesAreTheState(t *testing.T) {
	t.Parallel()
	next := func(w partitions.World) string {
		var all []string
		for _, ev := range w.Events() {
			n, err := ev.Do()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(n.Append(nil)))
		}
		slices.Sort(all)
		return strings.Join(all, "")
	}
	var all partitions.Faults
	for f := range all {
		all[f] = 1
	}
	for _, s := range []partitions.Scope{
		{Members: 2, Partitions: 1, Faults: all},
		{Members: 2, Partitions: 2, Grain: partitions.AtOnce, Faults: all},
		{Members: 3, Partitions: 2, Grain: partitions.Coarse, Faults: all},
	} {
		seen, again := map[string]partitions.World{}, 0
		for level := []partitions.World{partitions.New(&s)}; len(level) > 0 && len(seen) < 700; {
			var below []partitions.World
			for _, w := range level {
				for _, ev := range w.Events() {
					n, err := ev.Do()
					if err != nil {
						t.Fatal(err)
					}
					b := string(n.Append(nil))
					if old, ok := seen[b]; !ok {
						seen[b], below = n, append(below, n)
					} else if again++; next(old) != next(n) {
						t.Fatalf("%v: states with the bytes %q have different futures", &s, b)
					}
				}
			}
			level = below
		}
		if again < 200 {
			t.Errorf("%v: only %d ways meet", &s, again)
		}
	}
}

// request makes what a deliberate fault does to the requests of one step.
func request(of string, wrong func(in *pb.TxnRequest) *pb.TxnRequest) partitions.Wrong {
	return partitions.Wrong{Request: func(step string, in *pb.TxnRequest) *pb.TxnRequest {
		if step != of {
			return in
		}
		return wrong(in)
	}}
}

// Each check finds a deliberate fault, and tells how it came about.
func TestChecks(t *testing.T) {
	t.Parallel()
	of := func(p int, g partitions.Grain, faults partitions.Faults) partitions.Scope {
		return partitions.Scope{Members: 2, Partitions: p, Grain: g, Faults: faults}
	}
	two := of(1, partitions.AtOnce, partitions.Faults{})
	for _, tt := range []struct {
		name  string
		scope partitions.Scope
		wrong partitions.Wrong
		err   string
		story string // one of its sentences
	}{
		{
			"a deadline that is too late", of(1, partitions.AtOnce, partitions.One(partitions.Revocation)),
			partitions.Wrong{Overrun: true},
			"A and B believe that they own partition 0", "was revoked before its deadline",
		},
		{
			"a claim on a partition that is owned", two,
			request("Join", func(in *pb.TxnRequest) *pb.TxnRequest {
				nested := in.Success[0].GetRequestTxn()
				return &pb.TxnRequest{
					Compare: in.Compare, Failure: in.Failure,
					Success: []*pb.RequestOp{txn.Nest(&pb.TxnRequest{Success: nested.Success, Failure: nested.Failure})},
				}
			}),
			`A does not know that partition 0 is owned by "B"`, "B's Join for partition 0 arrived",
		},
		{
			"a guard that a successor leaves alone", of(1, partitions.AtOnce, partitions.One(partitions.Leave)),
			partitions.Wrong{Guard: func(h *protocol.Held) []*pb.Compare {
				return []*pb.Compare{txn.CreatedAt([]byte(h.Own(h.Key)), h.Fence)}
			}},
			"the guard of", "hand-over for partition 0 arrived",
		},
		{
			"a fence of before", two,
			partitions.Wrong{Rev: func(rev int64) int64 { return rev - 1 }},
			"has the fence", "for partition 0 arrived",
		},
		{
			"a place in line that stays", two,
			request("Undo", func(*pb.TxnRequest) *pb.TxnRequest { return &pb.TxnRequest{} }),
			"is in line", "left the line for partition 0",
		},
		{
			"a notice that stays", of(1, partitions.Coarse, partitions.Faults{partitions.Leave: 2}),
			request("release (leaving)", func(in *pb.TxnRequest) *pb.TxnRequest {
				return &pb.TxnRequest{Compare: in.Compare, Success: in.Success[:1], Failure: in.Failure}
			}),
			"of which its member knows nothing", "gave partition 0 up",
		},
		{
			"members that do not agree", two,
			partitions.Wrong{Plan: func(member string, a group.Assignment) group.Plan {
				return group.Balance([]group.MemberInfo{{Name: member}}, make([]string, len(a.Owners)))
			}},
			"is in line", "all members were told to leave",
		},
		{
			"a partition that nobody wants", two,
			partitions.Wrong{Plan: func(_ string, a group.Assignment) group.Plan {
				return group.Balance(nil, make([]string, len(a.Owners)))
			}},
			`partition 0, which "A" is to have, is owned by ""`, "A joined",
		},
		{
			"a hand-over to nobody", of(2, partitions.AtOnce, partitions.Faults{}),
			request("hand-over", func(in *pb.TxnRequest) *pb.TxnRequest {
				gone := txn.Delete(in.Success[0].GetRequestPut().Key)
				return &pb.TxnRequest{Compare: in.Compare, Success: []*pb.RequestOp{gone}, Failure: in.Failure}
			}),
			"was freed, although", "gave partition 1 up",
		},
		{
			"a release that leaves a key", two,
			request("release (leaving)", func(in *pb.TxnRequest) *pb.TxnRequest {
				more := append(in.Success[:len(in.Success):len(in.Success)], txn.Put([]byte("/p/x"), "", int64(0)))
				return &pb.TxnRequest{Compare: in.Compare, Success: more, Failure: in.Failure}
			}),
			"in the end, /p/x is left", "all members were told to leave",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.scope
			s.Wrong = tt.wrong
			r := search.Run([]partitions.World{partitions.New(&s)}, search.Options{})
			if r.Bad == nil {
				t.Fatalf("nothing was found in %d states", r.States)
			}
			if got := r.Bad.Error(); !strings.Contains(r.Bad.Err.Error(), tt.err) || !strings.Contains(got, tt.story) {
				t.Errorf("%v\nwant %q, and %q in the story", got, tt.err, tt.story)
			}
		})
	}
}
