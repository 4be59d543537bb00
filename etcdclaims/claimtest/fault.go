package claimtest

import (
	"cmp"
	"context"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/steps"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Fault describes what happens to some requests of a host. Fields can be
// combined: a request can be delayed, carried out, and its reply lost.
type Fault struct {
	// On is the kind of requests. The zero value, [Every], matches all.
	On Kind
	// Key limits the fault to transactions on the claim of this key. Empty means no limit.
	Key string
	// Skip is how many matching requests pass first.
	Skip int
	// Times is how many requests the fault then happens to. Zero means one, a
	// negative number means all until Remove.
	Times int

	// DelayRequest delays the request, or the opening of a stream. DelayReply delays the reply, or each
	// message that arrives on a stream, one after the other.
	DelayRequest, DelayReply time.Duration
	// LoseRequest loses the request: etcd never receives it. The client receives
	// Code or Err if one is set, and no answer otherwise.
	LoseRequest bool
	// LoseReply loses the reply: etcd carries the request out. The client receives
	// Code or Err if one is set, and no answer otherwise.
	LoseReply bool
	// Code is the status that the client receives in place of etcd's reply. The
	// request is carried out only if LoseReply is set.
	Code codes.Code
	// Err is returned like Code, with its own text, by which etcd's client
	// distinguishes errors: rpctypes.ErrGRPCNoLeader, for example.
	Err error
	// Hold delays the request until the channel is closed. It then arrives even if its caller has given up.
	// A stream (KeepAlive, Watch) is held while it is opened, and is abandoned if its caller gives up.
	Hold <-chan struct{}

	// Saw is called with the request before anything happens to it, and with each
	// message that is sent on an open stream.
	Saw func(req any)
	// Edit may change the reply, or each message that arrives on a stream.
	Edit func(reply any)
	// Ended is called with the result of a held request whose caller had given up.
	Ended func(reply any, err error)
}

// An Injection is a fault that was injected.
type Injection struct {
	host *Host
	f    Fault
	left int // guarded by the host
	skip int
	hits atomic.Int64

	once    sync.Once
	removed chan struct{} // closed by Remove
}

// Inject makes a fault happen to the requests of the host. If several faults match
// a request, only the one that was injected first happens.
func (h *Host) Inject(f Fault) *Injection {
	i := &Injection{host: h, f: f, left: f.Times, skip: f.Skip, removed: make(chan struct{})}
	i.left = cmp.Or(i.left, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults, h.injected = append(h.faults, i), append(h.injected, i)
	return i
}

// Hits returns how many requests the fault has happened to.
func (i *Injection) Hits() int { return int(i.hits.Load()) }

// Remove ends the fault, also on open streams: their delays end, and later messages
// are not affected. Watches and renewals whose messages the fault has lost receive
// an error, as if their connection had broken.
func (i *Injection) Remove() {
	i.host.mu.Lock()
	defer i.host.mu.Unlock()
	i.host.faults = slices.DeleteFunc(i.host.faults, func(o *Injection) bool { return o == i })
	i.end()
}

func (i *Injection) end() { i.once.Do(func() { close(i.removed) }) }

// RemoveFaults removes all faults that were injected. It does not undo Cut, Hang or Kill; see Heal.
func (h *Host) RemoveFaults() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.injected {
		i.end()
	}
	h.faults, h.injected = nil, nil
}

// traffic counts the requests of one kind.
type traffic struct {
	times        []time.Time
	flying, most int
}

// Sent returns the times of all requests of this kind, including those that a
// fault kept from etcd. [Every] stands for all requests, each of them once.
func (h *Host) Sent(k Kind) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.of(k).times)
}

// MostInFlight returns the greatest number of requests of this kind that were
// under way at the same time. [Every] stands for all requests, open streams included.
func (h *Host) MostInFlight(k Kind) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of(k).most
}

// of returns the counts of a kind. The caller holds the mutex.
func (h *Host) of(k Kind) *traffic {
	t := h.traffic[k]
	if t == nil {
		t = &traffic{}
		h.traffic[k] = t
	}
	return t
}

// begin counts a request and returns the injection that happens to it.
func (h *Host) begin(kinds []Kind, req any) *Injection {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range counted(kinds) {
		t := h.of(k)
		t.times = append(t.times, time.Now())
		t.flying++
		t.most = max(t.most, t.flying)
	}
	for n, i := range h.faults {
		if i.f.On != Every && !slices.Contains(kinds, i.f.On) || i.f.Key != "" && !steps.Touches(req, i.f.Key) {
			continue
		}
		if i.skip > 0 {
			i.skip--
			continue
		}
		i.hits.Add(1)
		if i.left--; i.left == 0 {
			h.faults = slices.Delete(h.faults, n, n+1)
		}
		return i
	}
	return &Injection{}
}

func (h *Host) end(kinds []Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range counted(kinds) {
		h.of(k).flying--
	}
}

// counted returns the kinds under which a request is counted.
func counted(kinds []Kind) []Kind { return append(slices.Clip(kinds), Every) }

// over reports whether the fault was removed.
func (i *Injection) over() bool {
	select {
	case <-i.removed:
		return true
	default:
		return false
	}
}

func sleep(ctx context.Context, d time.Duration) error { return sleepUntil(ctx, d, nil) }

// sleepUntil sleeps until the fault is removed, if that is sooner.
func sleepUntil(ctx context.Context, d time.Duration, removed <-chan struct{}) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-removed:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// lost returns the error for a request or reply that was lost, or waits for the end of ctx. On a stream,
// removed is the channel that closes with the fault: a connection that delivers nothing breaks in the end.
func (f *Fault) lost(ctx context.Context, removed <-chan struct{}) error {
	switch {
	case f.Err != nil:
		return f.Err
	case f.Code != codes.OK:
		return status.Error(f.Code, "injected by a test")
	}
	select {
	case <-removed:
		return status.Error(codes.Unavailable, "the connection broke: injected by a test")
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// kept reports whether the request never reaches etcd.
func (f *Fault) kept() bool {
	return f.LoseRequest || (f.Code != codes.OK || f.Err != nil) && !f.LoseReply
}

// unary is the interceptor of requests with one reply.
func (h *Host) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	kinds := steps.Of(method, req)
	f := &h.begin(kinds, req).f
	defer h.end(kinds)
	if reflect.ValueOf(*f).IsZero() {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	// Whatever becomes of it, it leaves the process: gRPC would tell the peer.
	for _, o := range opts {
		if o, ok := o.(grpc.PeerCallOption); ok {
			o.PeerAddr.Addr = &net.TCPAddr{}
		}
	}
	if f.Saw != nil {
		f.Saw(req)
	}
	if err := sleep(ctx, f.DelayRequest); err != nil {
		return err
	}
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-ctx.Done():
			h.arriveLate(ctx, f, method, req, reply, cc, invoke, opts)
			return status.FromContextError(ctx.Err()).Err()
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
	if f.kept() {
		return finish(f.lost(ctx, nil))
	}
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}
	if err := sleep(ctx, f.DelayReply); err != nil {
		return err
	}
	if f.LoseReply {
		return finish(f.lost(ctx, nil))
	}
	if f.Edit != nil {
		f.Edit(reply)
	}
	return nil
}

// arriveLate sends a held request whose caller has given up.
func (h *Host) arriveLate(ctx context.Context, f *Fault, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts []grpc.CallOption,
) {
	late := reflect.New(reflect.TypeOf(reply).Elem()).Interface()
	opts = slices.DeleteFunc(slices.Clone(opts), tellsCaller)
	h.late.Go(func() {
		select {
		case <-f.Hold:
		case <-h.closed:
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		err := invoke(ctx, method, req, late, cc, opts...)
		if f.Ended != nil {
			f.Ended(late, err)
		}
	})
}

// tellsCaller reports whether gRPC would use the option to write to variables of
// the caller, which must not happen once the call has returned.
func tellsCaller(o grpc.CallOption) bool {
	switch o.(type) {
	case grpc.PeerCallOption, grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.OnFinishCallOption:
		return true
	}
	return false
}

// stream is the interceptor of renewals and watches.
func (h *Host) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	kinds := steps.Of(method, nil)
	i := h.begin(kinds, nil)
	var once sync.Once
	end := func() { once.Do(func() { h.end(kinds) }) }
	s, err := i.open(ctx, func() (grpc.ClientStream, error) { return open(ctx, desc, cc, method, opts...) })
	if err != nil {
		end()
		return nil, err
	}
	context.AfterFunc(s.Context(), end)
	return &faultyStream{ClientStream: s, i: i, end: end}, nil
}

// breath is the time between the failure of a stream and its report. Some clients
// retry without a pause, and virtual time would not pass.
const breath = time.Millisecond

func (i *Injection) open(ctx context.Context, open func() (grpc.ClientStream, error)) (grpc.ClientStream, error) {
	f := &i.f
	if err := sleepUntil(ctx, f.DelayRequest, i.removed); err != nil {
		return nil, err
	}
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if f.kept() {
		if err := sleep(ctx, breath); err != nil {
			return nil, err
		}
		return nil, f.lost(ctx, i.removed)
	}
	s, err := open()
	if err != nil {
		_ = sleep(ctx, breath)
		return nil, err
	}
	return s, nil
}

// faultyStream applies a fault to the messages of a stream.
type faultyStream struct {
	grpc.ClientStream
	i   *Injection
	end func()
}

func (s *faultyStream) SendMsg(m any) error {
	if saw := s.i.f.Saw; saw != nil {
		saw(m)
	}
	return s.ClientStream.SendMsg(m)
}

func (s *faultyStream) RecvMsg(m any) error {
	f := &s.i.f
	if err := s.ClientStream.RecvMsg(m); err != nil {
		s.end()
		_ = sleep(s.Context(), breath)
		return err
	}
	if s.i.over() {
		return nil
	}
	if err := sleepUntil(s.Context(), f.DelayReply, s.i.removed); err != nil {
		return err
	}
	if f.LoseReply {
		_ = sleep(s.Context(), breath)
		return f.lost(s.Context(), s.i.removed)
	}
	if f.Edit != nil {
		f.Edit(m)
	}
	return nil
}
