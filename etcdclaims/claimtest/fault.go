package claimtest

import (
	"context"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Fault is what happens to some requests of a host. Its fields can be
// combined: a request can be delayed, carried out, and its reply lost.
type Fault struct {
	// On is the kind of the requests concerned.
	On Kind
	// Key limits it to transactions that concern the claim on this key. "" does
	// not.
	Key string
	// Skip lets so many of them pass first.
	Skip int
	// Times is how many it happens to then. 0: one. Negative: all, until
	// Remove.
	Times int

	// DelayRequest and DelayReply delay either way: on a stream its opening, and
	// each message that comes on it, one after the other.
	DelayRequest, DelayReply time.Duration
	// LoseRequest loses the request: etcd never sees it, and the client hears
	// nothing, or Code or Err.
	LoseRequest bool
	// LoseReply loses the reply of a request that was carried out: the client
	// hears nothing, or Code or Err.
	LoseReply bool
	// Code is answered instead of etcd's reply, to a request that is carried out
	// only if LoseReply says so.
	Code codes.Code
	// Err is answered like Code, with its text, by which etcd's own errors are
	// told apart: rpctypes.ErrGRPCNoLeader, say.
	Err error
	// Hold keeps the request on its way until the channel is closed. It arrives
	// then, whether or not its caller still waits. A stream, which is what
	// KeepAlive and Watch are, is held as it is opened, and given up with its
	// caller.
	Hold <-chan struct{}

	// Saw is told of the request, before anything happens to it. Of a stream it
	// is told what is sent on it, once it is open.
	Saw func(req any)
	// Edit changes the reply, or each message that comes on a stream.
	Edit func(reply any)
	// Ended is told how a held request ended whose caller was gone.
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

// Inject lets a fault happen to the requests of the host. If several faults
// concern a request, the first happens.
func (h *Host) Inject(f Fault) *Injection {
	i := &Injection{host: h, f: f, left: f.Times, skip: f.Skip, removed: make(chan struct{})}
	if i.left == 0 {
		i.left = 1
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults, h.injected = append(h.faults, i), append(h.injected, i)
	return i
}

// Hits returns how many requests it happened to.
func (i *Injection) Hits() int { return int(i.hits.Load()) }

// Remove ends the fault, on streams that are open, too: what they are delayed by
// ends, and nothing happens to what comes on them later. Watches and renewals
// that have heard nothing because of it now hear that their connection broke.
func (i *Injection) Remove() {
	i.host.mu.Lock()
	defer i.host.mu.Unlock()
	i.host.faults = slices.DeleteFunc(i.host.faults, func(o *Injection) bool { return o == i })
	i.end()
}

func (i *Injection) end() { i.once.Do(func() { close(i.removed) }) }

// RemoveFaults ends all faults that were injected, as Remove does. What was cut
// stays cut; see Heal.
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

// Sent returns when requests of the kind were made, those that a fault kept
// from etcd included.
func (h *Host) Sent(k Kind) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.of(k).times)
}

// MostInFlight returns how many requests of the kind were under way at once.
func (h *Host) MostInFlight(k Kind) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of(k).most
}

// of is called with the mutex held.
func (h *Host) of(k Kind) *traffic {
	t := h.traffic[k]
	if t == nil {
		t = &traffic{}
		h.traffic[k] = t
	}
	return t
}

// begin counts a request and finds what happens to it.
func (h *Host) begin(kinds []Kind, req any) *Injection {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range kinds {
		t := h.of(k)
		t.times = append(t.times, time.Now())
		t.flying++
		t.most = max(t.most, t.flying)
	}
	for n, i := range h.faults {
		if i.f.On != Every && !slices.Contains(kinds, i.f.On) || i.f.Key != "" && !touches(req, i.f.Key) {
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
	for _, k := range kinds {
		h.of(k).flying--
	}
}

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

// lost is the answer instead of etcd's, or silence. On a stream that ends with
// the fault, if removed is its channel: a connection that is of no use any more
// breaks in the end.
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
func (h *Host) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	kinds := kindsOf(method, req)
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

// arriveLate sends a held request whose caller is gone.
func (h *Host) arriveLate(ctx context.Context, f *Fault, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts []grpc.CallOption) {
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

// tellsCaller reports whether an option lets gRPC write to what is the caller's,
// who does not expect that any more once the call has returned.
func tellsCaller(o grpc.CallOption) bool {
	switch o.(type) {
	case grpc.PeerCallOption, grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.OnFinishCallOption:
		return true
	}
	return false
}

// stream is the interceptor of renewals and watches.
func (h *Host) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	kinds := kindsOf(method, nil)
	i := h.begin(kinds, nil)
	var once sync.Once
	end := func() { once.Do(func() { h.end(kinds) }) }
	s, err := h.open(ctx, desc, cc, method, open, i, opts)
	if err != nil {
		end()
		return nil, err
	}
	context.AfterFunc(s.Context(), end)
	return &faultyStream{ClientStream: s, i: i, end: end}, nil
}

// breath is between a stream that failed and word of it: there are clients that
// ask again without a pause, and virtual time would never go on.
const breath = time.Millisecond

func (h *Host) open(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, i *Injection, opts []grpc.CallOption) (grpc.ClientStream, error) {
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
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		_ = sleep(ctx, breath)
		return nil, err
	}
	return s, nil
}

// faultyStream does to what comes on a stream what the fault says.
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
