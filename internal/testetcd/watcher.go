package testetcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// NewWatcher returns a watcher which, unlike the one of clientv3, works inside
// a testing/synctest bubble. To its users it behaves like clientv3's; to the
// server it differs in that every watch has a stream of its own.
//
// Like clientv3's, it buffers without limit for slow readers, and reopens a
// broken stream at the revision after the last one received. A watch that was
// asked to start now and has received nothing yet is taken to have started at
// the revision in the server's answer to it, so that reopening can neither
// skip nor repeat an event.
func NewWatcher(remote pb.WatchClient, opts ...grpc.CallOption) clientv3.Watcher {
	return &watcher{
		remote:  remote,
		opts:    append([]grpc.CallOption{grpc.MaxCallRecvMsgSize(math.MaxInt32)}, opts...),
		watches: make(map[*watch]struct{}),
	}
}

type watcher struct {
	remote pb.WatchClient
	opts   []grpc.CallOption

	mu      sync.Mutex
	closed  bool
	watches map[*watch]struct{}
	running sync.WaitGroup
}

// Watch implements [clientv3.Watcher]. It returns when the server has created
// the watch, or ctx is done.
func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpWatch(key, opts...)
	// The context carries metadata and ends the watch. Its deadline is kept from
	// the server, which would report it as an error if its clock was first.
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	wt := &watch{
		watcher: w,
		ctx:     sctx,
		user:    ctx,
		cancel:  cancel,
		req: &pb.WatchCreateRequest{
			Key:            op.KeyBytes(),
			RangeEnd:       op.RangeBytes(),
			StartRevision:  op.Rev(),
			ProgressNotify: op.IsProgressNotify(),
			PrevKv:         op.IsPrevKV(),
			Fragment:       op.IsFragment(),
		},
		notify:  op.IsCreatedNotify(),
		created: make(chan struct{}),
		in:      make(chan clientv3.WatchResponse),
		out:     make(chan clientv3.WatchResponse, 1),
	}
	if op.IsFilterPut() {
		wt.req.Filters = append(wt.req.Filters, pb.WatchCreateRequest_NOPUT)
	}
	if op.IsFilterDelete() {
		wt.req.Filters = append(wt.req.Filters, pb.WatchCreateRequest_NODELETE)
	}

	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		cancel()
		close(wt.out)
		return wt.out
	}
	w.watches[wt] = struct{}{}
	w.running.Go(wt.receive)
	w.running.Go(wt.deliver)
	w.mu.Unlock()

	select {
	case <-wt.created:
	case <-ctx.Done():
	case <-sctx.Done():
	}
	return wt.out
}

// RequestProgress implements [clientv3.Watcher]. It asks for the progress of
// the watches whose contexts carry the same metadata as ctx.
func (w *watcher) RequestProgress(ctx context.Context) error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return errors.New("testetcd: watcher is closed")
	}
	var watches []*watch
	for wt := range w.watches {
		if sameMetadata(ctx, wt.ctx) {
			watches = append(watches, wt)
		}
	}
	w.mu.Unlock()
	for _, wt := range watches {
		wt.requestProgress()
	}
	return ctx.Err()
}

// Close implements [clientv3.Watcher]. It closes the channels of all watches.
func (w *watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	for wt := range w.watches {
		wt.cancel()
	}
	w.mu.Unlock()
	w.running.Wait()
	return nil
}

func sameMetadata(a, b context.Context) bool {
	ma, _ := metadata.FromOutgoingContext(a)
	mb, _ := metadata.FromOutgoingContext(b)
	return fmt.Sprint(map[string][]string(ma)) == fmt.Sprint(map[string][]string(mb))
}

// A watch is one call of Watch. One goroutine receives from its streams, one
// after the other, and a second one delivers to its reader.
type watch struct {
	watcher *watcher
	ctx     context.Context // ends with the watch
	user    context.Context // the caller's
	cancel  context.CancelFunc
	notify  bool
	created chan struct{} // closed when the server has answered for the first time
	in      chan clientv3.WatchResponse
	out     chan clientv3.WatchResponse

	req *pb.WatchCreateRequest // its revision moves on with what is received

	mu       sync.Mutex
	stream   pb.Watch_WatchClient // nil while there is none that is created
	progress bool                 // a request for progress waits for the stream
}

const (
	minBackoff = time.Millisecond
	maxBackoff = 100 * time.Millisecond
)

// errEnded says that a watch has ended and has nothing more to tell.
var errEnded = errors.New("watch ended")

// receive keeps a stream open until the watch ends, and closes wt.in then.
func (wt *watch) receive() {
	defer close(wt.in)
	defer wt.release()
	backoff := minBackoff
	for {
		progressed, err := wt.receiveStream()
		switch {
		case wt.ctx.Err() != nil || wt.user.Err() != nil || errors.Is(err, errEnded):
			return
		case halts(err):
			wt.push(failed(err))
			return
		}
		if progressed {
			backoff = minBackoff
		}
		if pause(wt.ctx, backoff) != nil {
			return
		}
		backoff = min(backoff+backoff/4, maxBackoff)
	}
}

// release lets the call of Watch return.
func (wt *watch) release() {
	select {
	case <-wt.created:
	default:
		close(wt.created)
	}
}

// receiveStream opens a stream and receives from it until it breaks. It reports
// whether the server created the watch on it.
func (wt *watch) receiveStream() (created bool, err error) {
	ctx, cancel := context.WithCancel(wt.ctx)
	defer cancel()
	stream, err := wt.watcher.remote.Watch(ctx, wt.watcher.opts...)
	if err != nil {
		return false, err
	}
	// Why sending failed is told by receiving.
	_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: wt.req}})
	defer wt.setStream(nil)

	var events []*clientv3.Event // of a response that comes in fragments
	for {
		resp, err := stream.Recv()
		if err != nil {
			return created, err
		}
		switch {
		case resp.Created && (resp.Canceled || resp.WatchId == clientv3.InvalidWatchID):
			return created, refused(resp.CancelReason)
		case resp.Created:
			created = true
			wt.start(resp)
			wt.setStream(stream)
		case resp.Canceled && resp.CompactRevision == 0:
			return created, errEnded
		case resp.Fragment:
			events = append(events, resp.Events...)
		default:
			resp.Events = append(events, resp.Events...)
			events = nil
			wr := response(resp)
			wt.advance(resp)
			wt.push(wr)
			if wr.Err() != nil {
				return created, errEnded
			}
		}
	}
}

// start takes note of the server's answer to the request for the watch.
func (wt *watch) start(resp *pb.WatchResponse) {
	if wt.req.StartRevision == 0 {
		wt.setRevision(resp.GetHeader().GetRevision() + 1)
	}
	select {
	case <-wt.created:
		return // it is the answer to a later request
	default:
	}
	if wt.notify {
		wt.push(response(resp))
	}
	wt.release()
}

// advance moves the revision to resume from behind what was received.
func (wt *watch) advance(resp *pb.WatchResponse) {
	if n := len(resp.Events); n > 0 {
		// This may be less than assumed so far: see NewWatcher.
		wt.setRevision(resp.Events[n-1].Kv.ModRevision + 1)
		return
	}
	wt.setRevision(max(wt.req.StartRevision, resp.GetHeader().GetRevision()+1))
}

// setRevision replaces the request rather than to change it, since interceptors
// may hold on to it.
func (wt *watch) setRevision(rev int64) {
	wt.req = &pb.WatchCreateRequest{
		Key:            wt.req.Key,
		RangeEnd:       wt.req.RangeEnd,
		StartRevision:  rev,
		ProgressNotify: wt.req.ProgressNotify,
		Filters:        slices.Clone(wt.req.Filters),
		PrevKv:         wt.req.PrevKv,
		Fragment:       wt.req.Fragment,
	}
}

func (wt *watch) setStream(stream pb.Watch_WatchClient) {
	wt.mu.Lock()
	wt.stream = stream
	pending := wt.progress
	wt.mu.Unlock()
	if stream != nil && pending {
		wt.requestProgress()
	}
}

func (wt *watch) requestProgress() {
	wt.mu.Lock()
	defer wt.mu.Unlock()
	if wt.progress = wt.stream == nil; wt.progress {
		return
	}
	req := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	_ = wt.stream.Send(req)
}

// push hands a response to deliver, which takes it at once or has ended.
func (wt *watch) push(wr clientv3.WatchResponse) {
	select {
	case wt.in <- wr:
	case <-wt.ctx.Done():
	}
}

// deliver passes on what is received at the pace of the reader, until there is
// no more or the reader has gone, and ends the watch then.
func (wt *watch) deliver() {
	defer func() {
		wt.cancel()
		wt.watcher.mu.Lock()
		delete(wt.watcher.watches, wt)
		wt.watcher.mu.Unlock()
		close(wt.out)
	}()
	var buf []clientv3.WatchResponse
	for in := wt.in; in != nil || len(buf) > 0; {
		var out chan<- clientv3.WatchResponse
		var next clientv3.WatchResponse
		if len(buf) > 0 {
			out, next = wt.out, buf[0]
		}
		select {
		case wr, ok := <-in:
			if ok {
				buf = append(buf, wr)
			} else {
				in = nil
			}
		case out <- next:
			buf[0] = clientv3.WatchResponse{}
			buf = buf[1:]
		case <-wt.user.Done():
			return
		case <-wt.ctx.Done():
			return
		}
	}
}

func response(resp *pb.WatchResponse) clientv3.WatchResponse {
	header := resp.Header
	if header == nil {
		header = &pb.ResponseHeader{}
	}
	return clientv3.WatchResponse{
		Header:          header,
		Events:          resp.Events,
		CompactRevision: resp.CompactRevision,
		Canceled:        resp.Canceled,
		Created:         resp.Created,
		CancelReason:    resp.CancelReason,
	}
}

// refused is the error of a watch the server did not create.
func refused(reason string) error {
	return rpctypes.Error(errors.New(reason))
}
