package txn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// etcd stands in for a server that takes a millisecond for each round trip. Unless a
// test refuses one, or names keys that exist, all conditions hold.
type etcd struct {
	mu     sync.Mutex
	trips  []trip
	refuse func(n int, in *pb.TxnRequest) (*clientv3.TxnResponse, error) // n-th round trip, from 0; both nil to carry it out
	exist  []string                                                      // keys that conditions find
}

type trip struct {
	in    *pb.TxnRequest
	token string
}

const (
	took    = time.Millisecond
	timeout = time.Second // of a round trip, which the stand-in does not keep
)

func (e *etcd) send(ctx context.Context, in *pb.TxnRequest, timeout time.Duration) (*clientv3.TxnResponse, error) {
	md, _ := metadata.FromOutgoingContext(ctx)
	e.mu.Lock()
	n := len(e.trips)
	e.trips = append(e.trips, trip{in, fmt.Sprint(md.Get("token"))})
	e.mu.Unlock()
	select {
	case <-time.After(min(took, timeout)):
	case <-ctx.Done():
		return nil, txn.Outcome(ctx, ctx.Err())
	}
	if e.refuse != nil {
		if resp, err := e.refuse(n, in); resp != nil || err != nil {
			return resp, err
		}
	}
	return (*clientv3.TxnResponse)(e.carryOut(in)), nil
}

func (e *etcd) carryOut(in *pb.TxnRequest) *pb.TxnResponse {
	resp := &pb.TxnResponse{Succeeded: true, Header: &pb.ResponseHeader{Revision: 5}}
	ops := in.Success
	if slices.ContainsFunc(in.Compare, func(c *pb.Compare) bool { return slices.Contains(e.exist, string(c.Key)) }) {
		resp.Succeeded, ops = false, in.Failure
	}
	for _, op := range ops {
		r := &pb.ResponseOp{}
		switch {
		case op.GetRequestTxn() != nil:
			r.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: e.carryOut(op.GetRequestTxn())}
		case op.GetRequestRange() != nil:
			r.Response = &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: op.GetRequestRange().Key}}}}
		default:
			r.Response = &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}
		}
		resp.Responses = append(resp.Responses, r)
	}
	return resp
}

// sent returns, of each round trip, the keys that it read.
func (e *etcd) sent() (trips [][]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.trips {
		trips = append(trips, keysOf(t.in))
	}
	return trips
}

func keysOf(in *pb.TxnRequest) (keys []string) {
	for _, op := range in.Success {
		if get := op.GetRequestRange(); get != nil {
			keys = append(keys, string(get.Key))
		}
		if inner := op.GetRequestTxn(); inner != nil {
			keys = append(keys, keysOf(inner)...)
		}
	}
	return keys
}

// batching runs f with a batcher in virtual time.
func batching(t *testing.T, f func(t *testing.T, e *etcd, b *txn.Batcher, end context.CancelFunc)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		io, end := context.WithCancel(t.Context())
		defer end()
		e := &etcd{}
		b := txn.NewBatcher(txn.Config{
			IO: io, Send: e.send, Timeout: timeout,
			EpochKey: []byte("epoch"), VoidKey: func(ticket string) string { return "void/" + ticket },
			Ops: 128, Bytes: 1 << 20,
		})
		f(t, e, b, end)
		end()
		b.Wait()
	})
}

// get is a request that reads its key.
func get(key string) txn.Request {
	return txn.Request{Key: key, In: txn.Then(clientv3.OpGet(key))}
}

// occupy has two round trips under way.
func occupy(t *testing.T, b *txn.Batcher, wg *sync.WaitGroup) {
	t.Helper()
	for i := range 2 {
		wg.Go(func() { _, _ = b.Do(t.Context(), get(fmt.Sprint("before", i))) })
		synctest.Wait()
	}
}

// together makes requests at the same time, in their order, while two others are
// under way, and returns their errors.
func together(t *testing.T, b *txn.Batcher, requests ...txn.Request) []error {
	t.Helper()
	var wg sync.WaitGroup
	occupy(t, b, &wg)
	errs := make([]error, len(requests))
	for i, r := range requests {
		wg.Go(func() {
			resp, err := b.Do(t.Context(), r)
			if errs[i] = err; err == nil && resp.Header.Revision != 5 {
				errs[i] = fmt.Errorf("reply %v", resp)
			}
			if err == nil && r.In.Success[0].GetRequestRange() != nil {
				if got := string(resp.Responses[0].GetResponseRange().Kvs[0].Key); got != r.Key {
					errs[i] = fmt.Errorf("%s got the reply of %s", r.Key, got)
				}
			}
		})
		synctest.Wait()
	}
	wg.Wait()
	return errs
}

func numbered(n int) (requests []txn.Request) {
	for i := range n {
		requests = append(requests, get(fmt.Sprint("k", i)))
	}
	return requests
}

func noErrors(t *testing.T, errs []error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Requests that arrive while round trips are under way share the next one.
func TestWaitingRequestsShareARoundTrip(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		noErrors(t, together(t, b, numbered(10)...))
		if got := e.sent(); len(got) != 3 || len(got[2]) != 10 {
			t.Errorf("round trips %v: the third of ten", got)
		}
	})
}

// More requests than etcd's limit of operations are nested in two levels.
func TestTwoLevels(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		noErrors(t, together(t, b, numbered(400)...))
		most := 0
		for _, keys := range e.sent() {
			most = max(most, len(keys))
		}
		if most < 200 || most > txn.FullBatch {
			t.Errorf("%d in one round trip", most)
		}
	})
}

// A key occurs once in a round trip, unless its requests are all of kinds that allow it.
func TestAKeyOccursOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kinds []txn.Beside
		want  int // of them together
	}{
		{[]txn.Beside{txn.BesideNone, txn.BesideNone}, 1},
		{[]txn.Beside{txn.TakesBack, txn.TakesBack}, 2},
		{[]txn.Beside{txn.Joins, txn.Joins}, 2},
		{[]txn.Beside{txn.Leaves, txn.Leaves}, 2},
		{[]txn.Beside{txn.Clears, txn.Clears}, 2},
		{[]txn.Beside{txn.Joins, txn.Leaves}, 2},
		{[]txn.Beside{txn.Leaves, txn.Joins}, 2},
		{[]txn.Beside{txn.Clears, txn.Leaves}, 2},
		{[]txn.Beside{txn.Joins, txn.Clears}, 1},
		{[]txn.Beside{txn.Clears, txn.Joins}, 1},
		{[]txn.Beside{txn.Leaves, txn.Joins, txn.Clears}, 2},
		{[]txn.Beside{txn.Clears, txn.Leaves, txn.Joins}, 2},
		{[]txn.Beside{txn.TakesBack, txn.Joins}, 1},
		{[]txn.Beside{txn.Leaves, txn.TakesBack}, 1},
		{[]txn.Beside{txn.Joins, txn.BesideNone}, 1},
		{[]txn.Beside{txn.BesideNone, txn.Joins}, 1},
	} {
		batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
			var requests []txn.Request
			for _, kind := range test.kinds {
				r := get("k")
				r.Beside = kind
				requests = append(requests, r)
			}
			also := get("other")
			also.Also = []string{"k"}
			noErrors(t, together(t, b, append(requests, also)...))
			most := 0
			for _, keys := range e.sent()[2:] {
				most = max(most, len(keys))
			}
			if most != test.want {
				t.Errorf("%v: %v, want at most %d together", test.kinds, e.sent(), test.want)
			}
		})
	}
}

// Requests that give up keys are sent before requests that ask for keys.
func TestUrgentRequestsGoFirst(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		urgent := get("k") // the key of another, so that one of them must wait
		urgent.Urgent = true
		noErrors(t, together(t, b, get("k"), get("a"), urgent))
		if got := e.sent()[2]; !slices.Equal(got, []string{"k", "a"}) {
			t.Errorf("first %v", got)
		}
		if got := e.sent()[3]; !slices.Equal(got, []string{"k"}) {
			t.Errorf("then %v", got)
		}
	})
}

// Only requests with equal metadata share a round trip, which carries it.
func TestMetadataIsNotMixed(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		var wg sync.WaitGroup
		for i := range 30 {
			token := fmt.Sprint("t", i%3)
			wg.Go(func() {
				ctx := metadata.AppendToOutgoingContext(t.Context(), "token", token)
				if _, err := b.Do(ctx, get(fmt.Sprint(token, "/", i))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, trip := range e.trips {
			for _, key := range keysOf(trip.in) {
				if "["+key[:2]+"]" != trip.token {
					t.Errorf("%s was sent with the metadata %s", key, trip.token)
				}
			}
		}
	})
}

// Requests that share a round trip share a ticket and an epoch. If the ticket was
// voided they are sent again, and if the epoch is another each is sent by itself.
func TestSharedConditions(t *testing.T) {
	t.Parallel()
	for name, found := range map[string]int64{"voided": 7, "another epoch": 8} {
		batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
			e.refuse = func(n int, _ *pb.TxnRequest) (*clientv3.TxnResponse, error) {
				if n != 2 {
					return nil, nil
				}
				kvs := []*mvccpb.KeyValue{{ModRevision: found}}
				return &clientv3.TxnResponse{
					Header:    &pb.ResponseHeader{Revision: 5},
					Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: kvs}}}},
				}, nil
			}
			requests := numbered(5)
			tickets := make([]string, len(requests))
			for i := range requests {
				tickets[i] = fmt.Sprint("own", i)
				requests[i].Ticket, requests[i].Epoch = &tickets[i], &txn.Epoch{Rev: 7}
			}
			noErrors(t, together(t, b, requests...))
			cmps := e.trips[2].in.Compare
			if len(cmps) != 2 || string(cmps[0].Key) != "epoch" {
				t.Errorf("%s: conditions %v", name, cmps)
			}
			switch trips := len(e.trips); found {
			case 7:
				if trips != 4 || tickets[0] != tickets[4] || tickets[0] == "own0" || string(cmps[1].Key) == "void/"+tickets[0] {
					t.Errorf("%s: %d round trips, tickets %v", name, trips, tickets)
				}
			case 8:
				if trips != 8 || tickets[3] != "own3" {
					t.Errorf("%s: %d round trips, tickets %v", name, trips, tickets)
				}
			}
		})
	}
}

// Requests share a round trip only if their epochs are the same, since its condition is
// that of one epoch.
func TestEpochsAreNotMixed(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		epochs := []txn.Epoch{{Value: 1, Rev: 7}, {Value: 2, Rev: 8}, {Value: 1, Rev: 9}}
		requests := numbered(9)
		for i := range requests {
			requests[i].Epoch = &epochs[i%len(epochs)]
		}
		noErrors(t, together(t, b, requests...))
		for _, trip := range e.trips[2:] {
			if len(trip.in.Compare) != 1 || string(trip.in.Compare[0].Key) != "epoch" {
				t.Fatalf("conditions %v, want one of an epoch", trip.in.Compare)
			}
			rev := trip.in.Compare[0].GetModRevision()
			for _, key := range keysOf(trip.in) {
				if want := epochs[int(key[1]-'0')%len(epochs)].Rev; rev != want {
					t.Errorf("%s was sent with the epoch of revision %d, want %d", key, rev, want)
				}
			}
		}
	})
}

// A refusal that may concern only one request is not given to the others.
func TestRefusalsAreSorted(t *testing.T) {
	t.Parallel()
	onLease := func(key string, id clientv3.LeaseID) txn.Request {
		return txn.Request{Key: key, In: txn.Then(clientv3.OpPut(key, "", clientv3.WithLease(id)))}
	}
	for _, tt := range []struct {
		name string
		err  error
		bad  int // which of three requests fails
	}{
		{"lease", rpctypes.ErrLeaseNotFound, 1},
		{"permission", rpctypes.ErrPermissionDenied, 1},
	} {
		batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
			e.refuse = func(_ int, in *pb.TxnRequest) (*clientv3.TxnResponse, error) {
				if puts(in, "k1") {
					return nil, txn.Outcome(t.Context(), tt.err)
				}
				return nil, nil
			}
			errs := together(t, b, onLease("k0", 10), onLease("k1", 11), onLease("k2", 10))
			for i, err := range errs {
				if i == tt.bad != (err != nil) || err != nil && !errors.Is(err, tt.err) {
					t.Errorf("%s: request %d: %v", tt.name, i, err)
				}
			}
		})
	}
}

func puts(in *pb.TxnRequest, key string) bool {
	return slices.ContainsFunc(in.Success, func(op *pb.RequestOp) bool {
		return string(op.GetRequestPut().GetKey()) == key || op.GetRequestTxn() != nil && puts(op.GetRequestTxn(), key)
	})
}

// An unknown outcome is that of all requests of the round trip. A refusal that
// passes is too, so that a busy server is not asked more.
func TestOutcomesOfAll(t *testing.T) {
	t.Parallel()
	for _, want := range []error{txn.ErrUnknown, rpctypes.ErrTooManyRequests} {
		batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
			e.refuse = func(n int, _ *pb.TxnRequest) (*clientv3.TxnResponse, error) {
				if n == 2 {
					return nil, fmt.Errorf("refused: %w", want)
				}
				return nil, nil
			}
			for i, err := range together(t, b, numbered(4)...) {
				if !errors.Is(err, want) {
					t.Errorf("request %d: %v, want %v", i, err, want)
				}
			}
			if len(e.trips) != 3 {
				t.Errorf("%d round trips", len(e.trips))
			}
		})
	}
}

// operations counts what etcd limits.
func operations(in *pb.TxnRequest) int {
	below := 0
	for _, op := range in.Success {
		if inner := op.GetRequestTxn(); inner != nil {
			below = max(below, operations(inner))
		}
	}
	return max(len(in.Compare), len(in.Success), len(in.Failure)) + below
}

// A server's lower limits are learnt, and the requests are sent again.
func TestLimitsAreLearnt(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		e.refuse = func(_ int, in *pb.TxnRequest) (*clientv3.TxnResponse, error) {
			if operations(in) > 20 {
				return nil, txn.Outcome(t.Context(), rpctypes.ErrTooManyOps)
			}
			return nil, nil
		}
		noErrors(t, together(t, b, numbered(15)...))
		noErrors(t, together(t, b, numbered(90)...))
		if b.MaxOps() > 64 {
			t.Errorf("assumes %d operations", b.MaxOps())
		}
	})
}

// A caller that gives up knows whether its request was sent.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]bool{took / 2: false, took * 3 / 2: true} {
		batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
			late := get("late")
			late.Until = time.Now().Add(after)
			errs := together(t, b, get("a"), late, get("b"))
			if errs[1] == nil || errors.Is(errs[1], txn.ErrUnknown) != want || errors.Is(errs[1], fencing.ErrUnknown) != want {
				t.Errorf("after %v: %v, unknown should be %v", after, errs[1], want)
			}
			noErrors(t, []error{errs[0], errs[2]})
			if sent := slices.Contains(e.sent()[2], "late"); sent != want {
				t.Errorf("after %v: sent %v", after, e.sent())
			}
		})
	}
}

// When the batcher ends, requests that wait fail, and nothing is sent any more.
func TestEnd(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, end context.CancelFunc) {
		time.AfterFunc(took/2, end)
		for i, err := range together(t, b, numbered(3)...) {
			if !errors.Is(err, context.Canceled) || errors.Is(err, txn.ErrUnknown) {
				t.Errorf("request %d: %v", i, err)
			}
		}
		if len(e.trips) != 2 {
			t.Errorf("%d round trips", len(e.trips))
		}
	})
}

// When etcd has run out of space, requests whose conditions still hold were not
// carried out, and are sent again by themselves.
func TestOutOfSpace(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		e.refuse = func(n int, _ *pb.TxnRequest) (*clientv3.TxnResponse, error) {
			if n == 2 {
				return nil, txn.Outcome(t.Context(), rpctypes.ErrNoSpace)
			}
			return nil, nil
		}
		guarded, open := get("k0"), get("k1")
		guarded.In.Compare = append(guarded.In.Compare, txn.CreatedAt([]byte("k0"), 0))
		open.In.Compare, open.Open = guarded.In.Compare, true
		errs := together(t, b, guarded, open)
		if errs[0] != nil || !errors.Is(errs[1], txn.ErrUnknown) {
			t.Errorf("%v", errs)
		}
	})
}

// Each makes requests in order, as many as next gives, and reports on each.
func TestEach(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		reported := 0
		made := b.Each(t.Context(), 5000, func(i int) (txn.Request, bool) {
			return get(fmt.Sprint("k", i)), i < 3000
		}, func(i int, resp *clientv3.TxnResponse, err error) {
			if i != reported || err != nil || string(resp.Responses[0].GetResponseRange().Kvs[0].Key) != fmt.Sprint("k", i) {
				t.Errorf("request %d after %d: %v, %v", i, reported, resp, err)
			}
			reported++
		})
		if made != 3000 || reported != 3000 || len(e.trips) > 40 {
			t.Errorf("%d made, %d reported, %d round trips", made, reported, len(e.trips))
		}
	})
}

// hang starts two round trips, and returns when they are under way. They take a minute.
func (e *etcd) hang(t *testing.T, b *txn.Batcher) *sync.WaitGroup {
	t.Helper()
	e.refuse = func(n int, _ *pb.TxnRequest) (*clientv3.TxnResponse, error) {
		if n < 2 {
			time.Sleep(time.Minute)
		}
		return nil, nil
	}
	var wg sync.WaitGroup
	occupy(t, b, &wg)
	return &wg
}

// A round trip that hangs keeps others from starting for a short time only.
func TestHangingRoundTrip(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		wg := e.hang(t, b)
		begun := time.Now()
		for i, urgent := range []bool{false, true} {
			r := get(fmt.Sprint("k", i))
			r.Urgent = urgent
			wg.Go(func() {
				if _, err := b.Do(t.Context(), r); err != nil {
					t.Error(err)
				}
				if d := time.Since(begun); d > txn.Hanging*6/5 || urgent && d > txn.Hanging/5 {
					t.Errorf("urgent %v: took %v", urgent, d)
				}
			})
		}
		wg.Wait()
	})
}

// The timeout of a request begins when it is sent, not while it waits for its round trip.
func TestRequestsThatWaitDoNotTimeOut(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		e.refuse = func(int, *pb.TxnRequest) (*clientv3.TxnResponse, error) {
			time.Sleep(timeout / 2)
			return nil, nil
		}
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range 200 {
			r := get("k") // each needs a round trip of its own
			r.Urgent = i%2 == 0
			wg.Go(func() {
				if _, err := b.Do(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(begun); d < 10*timeout {
			t.Errorf("took %v: none has waited for longer than the timeout", d)
		}
	})
}
