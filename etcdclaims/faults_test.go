package etcdclaims_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// faults is a fault injector between one etcd client and the server. Requests
// are told apart by what they are for: see kindsOf.
type faults struct {
	mu     sync.Mutex
	rules  []*rule
	down   chan struct{} // closed by heal; nil while connected
	calls  map[string]int
	times  map[string][]time.Time
	flying map[string]int
	most   map[string]int // in flight at once
	late   sync.WaitGroup
}

// rule says what happens to the next n requests of a kind (n < 0: all).
type rule struct {
	kind string
	n    int
	skip int // so many requests pass first

	before, after time.Duration   // delays
	dropped       bool            // the request does not reach the server
	lost          bool            // the reply does not come back
	code          codes.Code      // answered instead; with OK, nothing is until ctx ends
	hold          chan struct{}   // the request waits for this, whatever its context does
	edit          func(reply any) // changes the reply
	seen          func(req any)   // is told of the request
	hit           atomic.Int64    // how many it was applied to
	arrived       chan struct{}   // closed when a held request reached the server
	result        func(reply any, err error)
}

func newFaults() *faults {
	return &faults{calls: map[string]int{}, times: map[string][]time.Time{}, flying: map[string]int{}, most: map[string]int{}}
}

func (f *faults) add(r *rule) *rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.n == 0 {
		r.n = 1
	}
	f.rules = append(f.rules, r)
	return r
}

// clear removes all rules.
func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// cut lets nothing pass in either direction until heal.
func (f *faults) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down == nil {
		f.down = make(chan struct{})
	}
}

func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		close(f.down)
		f.down = nil
	}
}

func (f *faults) count(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[kind]
}

func (f *faults) sent(kind string) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.times[kind])
}

func (f *faults) inFlightAtMost(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most[kind]
}

// take counts a request and finds the rule for it.
func (f *faults) take(kinds []string) (*rule, chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range kinds {
		f.calls[k]++
		f.times[k] = append(f.times[k], time.Now())
	}
	for _, r := range f.rules {
		if r.n == 0 || !slices.Contains(kinds, r.kind) && r.kind != "*" {
			continue
		}
		if r.skip > 0 {
			r.skip--
			continue
		}
		if r.n > 0 {
			r.n--
		}
		r.hit.Add(1)
		return r, f.down
	}
	return nil, f.down
}

func (f *faults) fly(kinds []string, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range kinds {
		f.flying[k] += by
		f.most[k] = max(f.most[k], f.flying[k])
	}
}

func nap(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

func (r *rule) answer(ctx context.Context) error {
	if r.code != codes.OK {
		return status.Error(r.code, "injected")
	}
	return hang(ctx)
}

func (f *faults) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	kinds := kindsOf(method, req)
	r, down := f.take(kinds)
	f.fly(kinds, 1)
	defer f.fly(kinds, -1)
	// Whatever becomes of it, it leaves the process: gRPC would tell the peer.
	for _, o := range opts {
		if o, ok := o.(grpc.PeerCallOption); ok {
			o.PeerAddr.Addr = &net.TCPAddr{}
		}
	}
	if down != nil {
		return hang(ctx)
	}
	if r == nil {
		r = &rule{}
	}
	if r.seen != nil {
		r.seen(req)
	}
	if err := nap(ctx, r.before); err != nil {
		return err
	}
	if r.hold != nil {
		select {
		case <-r.hold:
		case <-ctx.Done():
			err := status.FromContextError(ctx.Err()).Err()
			late := reflect.New(reflect.TypeOf(reply).Elem()).Interface()
			f.late.Add(1)
			go func() {
				defer f.late.Done()
				<-r.hold
				lerr := invoke(context.WithoutCancel(ctx), method, req, late, cc, opts...)
				if r.result != nil {
					r.result(late, lerr)
				}
				if r.arrived != nil {
					close(r.arrived)
				}
			}()
			return err
		}
	}
	// gRPC itself would tell who asked for it how a call ended.
	finish := func(err error) error {
		for _, o := range opts {
			if o, ok := o.(grpc.OnFinishCallOption); ok && err != nil {
				o.OnFinish(err)
			}
		}
		return err
	}
	if r.dropped || r.code != codes.OK && !r.lost {
		return finish(r.answer(ctx))
	}
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}
	f.mu.Lock()
	down = f.down
	f.mu.Unlock()
	if down != nil {
		return hang(ctx)
	}
	if err := nap(ctx, r.after); err != nil {
		return err
	}
	if r.lost {
		return finish(r.answer(ctx))
	}
	if r.edit != nil {
		r.edit(reply)
	}
	return nil
}

func (f *faults) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	kind := "watch"
	if strings.HasSuffix(method, "LeaseKeepAlive") {
		kind = "keepalive"
	}
	r, down := f.take([]string{kind})
	if kind == "keepalive" {
		f.fly([]string{kind}, 1)
		context.AfterFunc(ctx, func() { f.fly([]string{kind}, -1) })
	}
	if down != nil {
		if kind == "keepalive" {
			return nil, hang(ctx)
		}
		select { // a connection comes back
		case <-down:
		case <-ctx.Done():
			return nil, hang(ctx)
		}
	}
	if r == nil {
		r = &rule{}
	}
	if err := nap(ctx, r.before); err != nil {
		return nil, err
	}
	if r.dropped || r.code != codes.OK && !r.lost {
		// KeepAliveOnce asks again without pause: without this, virtual time
		// would never go on.
		if err := nap(ctx, time.Millisecond); err != nil {
			return nil, err
		}
		return nil, r.answer(ctx)
	}
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		_ = nap(ctx, time.Millisecond)
		return nil, err
	}
	return &faultyStream{ClientStream: s, f: f, r: r, kind: kind}, nil
}

type faultyStream struct {
	grpc.ClientStream
	f    *faults
	r    *rule
	kind string
}

func (s *faultyStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		_ = nap(s.Context(), time.Millisecond)
		return err
	}
	s.f.mu.Lock()
	down := s.f.down
	s.f.mu.Unlock()
	if down != nil {
		if s.kind == "keepalive" {
			return hang(s.Context())
		}
		select {
		case <-down:
		case <-s.Context().Done():
			return hang(s.Context())
		}
	}
	if err := nap(s.Context(), s.r.after); err != nil {
		return err
	}
	if s.r.lost {
		_ = nap(s.Context(), time.Millisecond) // see stream
		return s.r.answer(s.Context())
	}
	if s.r.edit != nil {
		s.r.edit(m)
	}
	return nil
}

// kindsOf says what a request is for: grant, revoke, keepalive, ttl, watch, and
// of transactions sentinel, acquire, enqueue, advance, resolve, undo, verify
// (reads only), note, release, handover, ending (of work), rehome, mail,
// unmail, leave, other.
// One that carries several has several kinds.
func kindsOf(method string, req any) []string {
	switch method[strings.LastIndex(method, "/")+1:] {
	case "LeaseGrant":
		return []string{"grant"}
	case "LeaseRevoke":
		return []string{"revoke"}
	case "LeaseTimeToLive":
		return []string{"ttl"}
	case "Range":
		return []string{"range"}
	case "Txn":
		return txnKinds(req.(*pb.TxnRequest))
	}
	return []string{strings.ToLower(method[strings.LastIndex(method, "/")+1:])}
}

func txnKinds(req *pb.TxnRequest) []string {
	var puts, dels []string
	var values []string
	reads := 0
	var nested []*pb.TxnRequest
	for _, op := range req.Success {
		switch {
		case op.GetRequestPut() != nil:
			puts = append(puts, string(op.GetRequestPut().Key))
			values = append(values, string(op.GetRequestPut().Value))
		case op.GetRequestDeleteRange() != nil:
			dels = append(dels, string(op.GetRequestDeleteRange().Key))
		case op.GetRequestTxn() != nil:
			nested = append(nested, op.GetRequestTxn())
		default:
			reads++
		}
	}
	fails := ""
	for _, op := range req.Failure {
		if p := op.GetRequestPut(); p != nil {
			fails += string(p.Key) + "\n"
		}
	}
	any := func(keys []string, part string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(k, part) })
	}
	switch {
	case len(nested) > 0 && len(nested) == len(req.Success):
		var kinds []string
		for _, n := range nested {
			for _, k := range txnKinds(n) {
				if !slices.Contains(kinds, k) {
					kinds = append(kinds, k)
				}
			}
		}
		return kinds
	case strings.Contains(fails, "/void/") && any(dels, "/own/"):
		return []string{"undo"}
	case strings.Contains(fails, "/void/"):
		return []string{"resolve"}
	case strings.Contains(fails, "/wait/"):
		return []string{"enqueue"}
	case any(puts, "/live/"):
		return []string{"sentinel"}
	case any(puts, "/own/") && any(puts, "/wait/"):
		return []string{"handover"}
	case any(puts, "/own/"):
		var h struct{ Kind string }
		for i, k := range puts {
			if strings.Contains(k, "/own/") {
				_ = json.Unmarshal([]byte(values[i]), &h)
			}
		}
		if h.Kind == "zombie" || h.Kind == "resting" {
			return []string{"rehome"}
		}
		for _, c := range req.Compare { // that its own place stands
			if strings.Contains(string(c.Key), "/wait/") && len(c.RangeEnd) == 0 {
				return []string{"advance"}
			}
		}
		return []string{"acquire"}
	case any(puts, "/evict/"):
		return []string{"mail"}
	case any(dels, "/own/") && any(puts, "p/work/"), any(dels, "/own/") && any(dels, "p/work/"):
		return []string{"ending"}
	case any(dels, "/own/"):
		return []string{"release"}
	case any(puts, "/note/"):
		return []string{"note"}
	case any(dels, "/wait/"):
		return []string{"leave"}
	case any(dels, "/evict/"):
		return []string{"unmail"}
	case len(puts)+len(dels) == 0 && len(req.Compare) == 0:
		return []string{"verify"}
	}
	return []string{"other"}
}

// world is one virtual etcd with clocks that obey the bubble, and more.
type world struct {
	*testing.T
	v      *testetcd.Virtual
	raw    *clientv3.Client // nothing happens to its requests
	prefix string
	boot   atomic.Int64 // what machines have slept
	step   atomic.Int64 // of wall clocks
}

// virtually runs f in virtual time.
func virtually(t *testing.T, f func(w *world), opts ...testetcd.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, prefix: "/p/"}
		w.v = testetcd.StartVirtual(t, opts...)
		w.raw = w.v.Client(t)
		f(w)
	})
}

// etcd returns a client with a fault injector. It is healed at the test's end.
func (w *world) etcd() (*clientv3.Client, *faults) {
	f := newFaults()
	c := w.v.ClientVia(w.T, w.v.Dial, grpc.WithChainUnaryInterceptor(f.unary), grpc.WithChainStreamInterceptor(f.stream))
	w.Cleanup(clock.Attach(c, w.clock()))
	return c, f
}

func (w *world) clock() clock.Clock {
	start := time.Now()
	return clock.Clock{
		Boot: func() time.Duration { return time.Since(start) + time.Duration(w.boot.Load()) },
		Wall: func() time.Time { return time.Now().Add(time.Duration(w.step.Load())) },
	}
}

func (w *world) client(cfg etcdclaims.Config) (*etcdclaims.Client, *faults) {
	w.Helper()
	etcd, f := w.etcd()
	if cfg.Prefix == "" {
		cfg.Prefix = w.prefix
	}
	c := newClient(w.T, etcd, cfg)
	w.Cleanup(func() { f.clear(); f.heal() })
	return c, f
}

// all returns every key under the prefix.
func (w *world) all() map[string]string {
	w.Helper()
	resp, err := w.raw.Get(context.Background(), w.prefix, clientv3.WithPrefix())
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range resp.Kvs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out
}

// nothingLeft fails if anything but work records and the epoch is there.
func (w *world) nothingLeft() {
	w.Helper()
	for k, v := range w.all() {
		if !strings.HasPrefix(k, w.prefix+"work/") && k != w.prefix+"epoch" {
			w.Errorf("left over in etcd: %s = %s", k, v)
		}
	}
}

// noLeases fails if leases are left, apart from those of done work.
func (w *world) noLeases() {
	w.Helper()
	resp, err := w.raw.Leases(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	for _, l := range resp.Leases {
		ttl, err := w.raw.TimeToLive(context.Background(), l.ID, clientv3.WithAttachedKeys())
		if err != nil {
			w.Fatal(err)
		}
		kept := ttl.TTL <= 0
		for _, k := range ttl.Keys {
			kept = kept || strings.HasPrefix(string(k), w.prefix+"work/")
		}
		if !kept {
			w.Errorf("left over in etcd: lease %x of %d s with %q", l.ID, ttl.GrantedTTL, ttl.Keys)
		}
	}
}

// close closes the client, and checks that nothing is left.
func (w *world) closeClean(cs ...*etcdclaims.Client) {
	w.Helper()
	for _, c := range cs {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := c.Close(ctx); err != nil {
			w.Errorf("closing: %v", err)
		}
		cancel()
	}
	w.nothingLeft()
}

func (w *world) get(key string) string {
	w.Helper()
	return w.all()[w.prefix+key]
}

func (w *world) leaseOf(key string) clientv3.LeaseID {
	w.Helper()
	resp, err := w.raw.Get(context.Background(), w.prefix+key)
	if err != nil || len(resp.Kvs) == 0 {
		w.Fatalf("reading %s: %v, %v", key, resp, err)
	}
	return clientv3.LeaseID(resp.Kvs[0].Lease)
}

// deletion returns a channel that yields when the server deleted the key.
func (w *world) deletion(key string) <-chan time.Time {
	ch := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(context.Background())
	w.Cleanup(cancel)
	news := w.raw.Watch(ctx, w.prefix+key)
	go func() {
		for resp := range news {
			for _, ev := range resp.Events {
				if ev.Type == clientv3.EventTypeDelete {
					ch <- time.Now()
					cancel()
					return
				}
			}
		}
	}()
	return ch
}

// ending says when contexts and claims ended.
type ending struct{ soft, done chan time.Time }

func follow(cl *etcdclaims.Claim) ending {
	e := ending{make(chan time.Time, 1), make(chan time.Time, 1)}
	go func() { <-cl.Context().Done(); e.soft <- time.Now() }()
	go func() { <-cl.Done(); e.done <- time.Now() }()
	return e
}

func mustTry(tb testing.TB, c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	tb.Helper()
	cl, err := c.TryAcquire(context.Background(), key, opts...)
	if err != nil {
		tb.Fatalf("acquiring %s: %v", key, err)
	}
	return cl
}

func near(got, want, tolerance time.Duration) bool { return max(got-want, want-got) <= tolerance }

// lossOf checks that an error is a loss for the reason.
func lossOf(tb testing.TB, err error, want etcdclaims.Reason) {
	tb.Helper()
	var l *etcdclaims.LostError
	if !errors.As(err, &l) || l.Reason != want || !errors.Is(err, etcdclaims.ErrLost) || !errors.Is(err, context.Canceled) {
		tb.Errorf("got %v, want a loss for %q", err, want)
	}
}

// timing is the deadline rule, written down a second time.
func timing(ttl time.Duration) (soft, hard time.Duration) {
	hard = ttl*99/100 - max(500*time.Millisecond, ttl/10)
	return hard - ttl/5, hard
}

const sec = time.Second

// joined makes the client one that had to wait for the key before, so that it
// joins the line at once when it acquires it again.
func (w *world) joined(c *etcdclaims.Client, key string) {
	w.Helper()
	other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
	held := mustTry(w.T, other, key)
	ctx, cancel := context.WithTimeout(context.Background(), sec)
	defer cancel()
	if _, err := c.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
		w.Fatal(err)
	}
	time.Sleep(sec) // its place is left in the background, and would be handed the key
	if err := held.Release(context.Background()); err != nil {
		w.Fatal(err)
	}
	if err := other.Close(context.Background()); err != nil {
		w.Fatal(err)
	}
}
