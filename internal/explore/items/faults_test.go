package items_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/fault"
	"github.com/etcdclaims/claims/internal/explore/items"
	"github.com/etcdclaims/claims/internal/explore/search"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// on returns a change of the requests of one step.
func on(step string, change func(*pb.TxnRequest) *pb.TxnRequest) change {
	return func(name string, in *pb.TxnRequest) *pb.TxnRequest {
		if name == step {
			return change(in)
		}
		return in
	}
}

// dropping drops the conditions on keys whose name contains a part.
func dropping(part string) func(*pb.TxnRequest) *pb.TxnRequest {
	return func(in *pb.TxnRequest) *pb.TxnRequest {
		return fault.Without(in, func(c *pb.Compare) bool { return strings.Contains(string(c.Key), part) })
	}
}

// changing changes the values that are put below a prefix.
func changing(part, from, to string) func(*pb.TxnRequest) *pb.TxnRequest {
	return func(in *pb.TxnRequest) *pb.TxnRequest {
		in = proto.Clone(in).(*pb.TxnRequest)
		fault.Transactions(in, func(one *pb.TxnRequest) {
			for _, op := range one.Success {
				if put := op.GetRequestPut(); put != nil && strings.Contains(string(put.Key), part) {
					put.Value = []byte(strings.Replace(string(put.Value), from, to, 1))
				}
			}
		})
		return in
	}
}

// omitting leaves out the operations on keys whose name contains a part.
func omitting(part string) func(*pb.TxnRequest) *pb.TxnRequest {
	return func(in *pb.TxnRequest) *pb.TxnRequest {
		in = proto.Clone(in).(*pb.TxnRequest)
		fault.Transactions(in, func(one *pb.TxnRequest) {
			one.Success = slices.DeleteFunc(one.Success, func(op *pb.RequestOp) bool {
				key := string(op.GetRequestPut().GetKey()) + string(op.GetRequestDeleteRange().GetKey())
				return strings.Contains(key, part)
			})
		})
		return in
	}
}

type change = func(string, *pb.TxnRequest) *pb.TxnRequest

// of is a scope of one item with a deliberate fault, entering one in which both workers enqueue it.
func of(fault change, budget ...items.Kind) items.Scope {
	return items.Scope{Items: 1, Max: 2, Budget: items.Once(budget...), Change: fault}
}

func entering(fault change, budget ...items.Kind) items.Scope {
	return items.Scope{Items: 1, Max: 1, Enqueue: true, Budget: items.Once(budget...), Change: fault}
}

// hurried is a state from which no calm run is tried.
type hurried struct{ items.State }

func (h hurried) Events() (all []search.Event[hurried]) {
	for _, ev := range h.State.Events() {
		all = append(all, search.Event[hurried]{Tell: ev.Tell, Do: func() (hurried, error) {
			next, err := ev.Do()
			return hurried{next}, err
		}})
	}
	return all
}

func (h hurried) Calm() (none search.Event[hurried], more bool) { return none, false }
func (h hurried) Settled() error                                { return nil }

// Each check can fail: a deliberate fault in a step shows in a story.
func TestFaultsAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		scope items.Scope
		want  string // what is found
	}{
		"claim of an item that has moved": {
			of(on("claim", dropping("/ready/"))), "a is at several places",
		},
		"claim that forgets the item": {
			of(on("claim", omitting("/taken/"))), "a is lost",
		},
		"claim that leaves the item": {
			of(on("claim", omitting("/ready/"))), "a is at several places: ready, taken",
		},
		"claim that does not count": {
			of(on("claim", changing("/taken/", `"attempts":1`, `"attempts":0`))), "attempts",
		},
		"release that counts": {
			of(on("release", changing("/ready/", `"attempts":0`, `"attempts":1`)), items.Release),
			"a has 1 attempts, and 0 of them count",
		},
		"completion that leaves the content": {
			of(on("complete", omitting("/content/"))), "its content exists",
		},
		"completion without what goes with it": {
			of(on("complete", omitting("effect/"))), "what goes with that happened 0 times",
		},
		"failure that removes the content": {
			items.Scope{Items: 1, Max: 2, Budget: items.Once(items.Fail), Change: on("fail", func(in *pb.TxnRequest) *pb.TxnRequest {
				in = proto.Clone(in).(*pb.TxnRequest)
				for _, op := range in.Success {
					if put := op.GetRequestPut(); put != nil && strings.Contains(string(put.Key), "/place/") {
						op.Request = &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{
							Key: []byte(strings.Replace(string(put.Key), "/place/", "/content/", 1)),
						}}
					}
				}
				return in
			})}, "fail has removed item a",
		},
		"late verb": {
			of(on("complete", dropping("/taken/")), items.GiveUp, items.Late, items.Expiry),
			"carried out, although its hold was over",
		},
		"verb of a session that is over": {
			items.Scope{Items: 1, Max: 2, Budget: items.Once(items.Expiry), Change: on("guard of complete", func(in *pb.TxnRequest) *pb.TxnRequest {
				return &pb.TxnRequest{Success: in.Success}
			})}, "for a session that is over",
		},
		"recovery from a session that lives": {
			of(on("recovery", dropping("/own/")), items.Alarm), "a was taken from a session that lives",
		},
		"recovery that does not count": {
			of(on("recovery", changing("/ready/", `"attempts":1`, `"attempts":0`)), items.Expiry),
			"a has 0 attempts, and 1 of them count",
		},
		"nobody recovers": {
			items.Scope{Items: 1, Max: 2, Budget: items.Once(items.Crash), Idle: true}, "a is not done",
		},
		"nobody promotes": {
			of(on("promotion", omitting("/")), items.Fail), "does not come to rest",
		},
		"claim while the queue is paused": {
			of(on("claim", dropping("/paused")), items.Pause), "a was claimed from a queue that is paused",
		},
		"late move of a request that was made void": {
			of(on("heartbeat", dropping("/worker/")), items.Adopt, items.Move, items.GiveUp), "a is not done",
		},
		"late claim of a request that was made void": {
			of(on("claim", dropping("/worker/")), items.Late), "a is not done",
		},
		"refusal that is not looked up": {
			items.Scope{Items: 1, Max: 2, Hasty: true, Budget: items.Once(items.LostReply)}, "for carried out: false, but that is true",
		},
		"item given back that its worker has": {
			items.Scope{Items: 2, Batch: 2, Max: 2, Hasty: true, Budget: items.Once(items.GiveUp)}, "given back under worker",
		},
		"completion that leaves the item": {
			of(on("complete", omitting("/taken/"))), "a has no content, but is taken",
		},
		"attempts with fences that fall": {
			items.Scope{Items: 1, Max: 3, Budget: items.Budget{items.Fail: 2}, Change: on("fail", changing("/later/", `"fence":"`, `"fence":"99`))},
			"attempt 1 of a is the number 1, with fence 99",
		},
		"claim that is not what it seems": {
			of(on("claim", changing("/taken/", `"nonce":"`, `"nonce":"x`))), "for claimed at revision",
		},
		"guard of another claim": {
			items.Scope{Items: 1, Max: 2, Change: on("guard of claim", func(in *pb.TxnRequest) *pb.TxnRequest {
				in = proto.Clone(in).(*pb.TxnRequest)
				in.Compare[0].TargetUnion = &pb.Compare_ModRevision{ModRevision: 1}
				return in
			})}, "refused by the guard of a session that it has",
		},
		"session settled that lives": {
			of(on("settling", dropping("/own/")), items.Alarm), "the entry of the session of worker",
		},
		"move that does not find itself": {
			of(on("heartbeat", changing("/taken/", `"nonce":"m`, `"nonce":"x`)), items.Adopt, items.Move, items.LostReply),
			"does not know that it has moved a",
		},
		"verb of an adopted lease without its name": {
			of(on("release", changing("/place/", `"by":"by"`, `"x":"y"`)), items.Adopt, items.LostReply, items.Release),
			"takes its release of a for carried out",
		},
		"verb whose item is not where its place says": {
			of(on("fail", changing("/place/", `"key":"index`, `"key":"xndex`)), items.Fail), "no key",
		},
		"enqueue of another": {
			entering(on("enqueue", changing("/content/", `"seq":"a0"`, `"seq":"a1"`))), "for enqueued by it: true, but that is false",
		},
		"void without a mark": {
			entering(on("void", omitting("\x00")), items.Late), "does not find its mark",
		},
		"remembered item that is forgotten": {
			items.Scope{Items: 1, Max: 1, Enqueue: true, Remember: true, Change: on("complete", func(in *pb.TxnRequest) *pb.TxnRequest {
				in = proto.Clone(in).(*pb.TxnRequest)
				for _, op := range in.Success {
					if put := op.GetRequestPut(); put != nil && strings.Contains(string(put.Key), "/content/") {
						op.Request = &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: put.Key}}
					}
				}
				return in
			})}, "although it is remembered",
		},
		// No condition can hold an enqueue off that the network delivers again once its item is completed and
		// forgotten.
		"enqueue that is carried out twice": {
			items.Scope{Items: 1, Max: 1, Enqueue: true, Budget: items.Once(items.Twice)}, "a was enqueued twice by one request",
		},
		"enqueue of an id that is there": {
			items.Scope{Items: 1, Max: 1, Enqueue: true, Remember: true, Change: on("enqueue", dropping("/content/"))}, "a is at several places",
		},
		"late enqueue of a request that was made void": {
			entering(on("enqueue", dropping("/worker/")), items.Late), "for not carried out, but it was",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scope := test.scope
			scope.Batch = max(scope.Batch, 1)
			o := search.Options{Most: 200_000}
			var r search.Result
			if test.want == "a is not done" || test.want == "does not come to rest" { // in a calm run alone
				r = search.Run([]items.State{items.Start(&scope)}, o)
			} else {
				r = search.Run([]hurried{{items.Start(&scope)}}, o)
			}
			switch {
			case r.Bad == nil:
				t.Errorf("not found in %d states, complete: %v", r.States, r.Complete)
			case !strings.Contains(r.Bad.Err.Error(), test.want):
				t.Errorf("found something else than %q: %v", test.want, r.Bad)
			case len(r.Bad.Story) == 0:
				t.Error("there is no story")
			}
		})
	}
}
