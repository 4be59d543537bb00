package middleware

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"

	"github.com/etcdclaims/claims/fencing"
)

// response is a http.ResponseWriter that sends nothing once the claim behind ctx
// is over.
type response struct {
	inner  http.ResponseWriter
	ctx    context.Context
	before http.Header // as it was before the handler, nil if it was empty

	written  bool  // the final header was passed on
	hijacked bool  // the connection is the handler's
	refused  error // why something was not sent
}

func newResponse(ctx context.Context, w http.ResponseWriter) *response {
	r := &response{inner: w, ctx: ctx}
	if h := w.Header(); len(h) > 0 {
		r.before = h.Clone()
	}
	return r
}

// may returns nil if more of the response may be sent. To have asked the clock is
// what can be done: what is sent may arrive when the claim is another's.
func (w *response) may() error {
	if w.refused == nil {
		w.refused = fencing.Check(w.ctx)
	}
	return w.refused
}

// reset makes the header what it was before the handler, and reports whether the
// response can be another: if nothing of it was sent.
func (w *response) reset() bool {
	if w.written || w.hijacked {
		return false
	}
	h := w.inner.Header()
	clear(h)
	maps.Copy(h, w.before)
	return true
}

// fence returns that of the claim.
func (w *response) fence() int64 {
	t, _ := fencing.FromContext(w.ctx)
	return t.Fence
}

func (w *response) Header() http.Header { return w.inner.Header() }

func (w *response) WriteHeader(status int) {
	if w.may() != nil {
		return
	}
	if status < 100 || status > 199 || status == http.StatusSwitchingProtocols { // others come before the response
		w.written = true
	}
	w.inner.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if err := w.may(); err != nil {
		return 0, err
	}
	w.written = true
	return w.inner.Write(b)
}

// WriteString is io.StringWriter's.
func (w *response) WriteString(s string) (int, error) {
	if err := w.may(); err != nil {
		return 0, err
	}
	w.written = true
	return io.WriteString(w.inner, s)
}

// ReadFrom lets the system copy files, as net/http does. What else is copied goes
// through Write, which looks whether it may go on.
func (w *response) ReadFrom(src io.Reader) (n int64, err error) {
	to, ok := w.inner.(io.ReaderFrom)
	if !ok || !isFile(src) {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	all, ok := src.(*io.LimitedReader)
	if !ok {
		all = &io.LimitedReader{R: src, N: math.MaxInt64}
	}
	for all.N > 0 {
		if err := w.may(); err != nil {
			return n, err
		}
		w.written = true
		part := &io.LimitedReader{R: all.R, N: min(all.N, 1<<20)}
		k, err := to.ReadFrom(part)
		n, all.N = n+k, all.N-k
		if err != nil || part.N > 0 {
			return n, err
		}
	}
	return n, nil
}

func isFile(src io.Reader) bool {
	if limited, ok := src.(*io.LimitedReader); ok {
		src = limited.R
	}
	_, ok := src.(*os.File)
	return ok
}

// FlushError is what http.ResponseController looks for first, so that it does not
// pass by on the way that Unwrap shows.
func (w *response) FlushError() error {
	if err := w.may(); err != nil {
		return err
	}
	err := http.NewResponseController(w.inner).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		w.written = true // Flush sends a header if nothing did
	}
	return err
}

// Unwrap is for http.ResponseController: deadlines, full duplex.
func (w *response) Unwrap() http.ResponseWriter { return w.inner }

// What a response writer can do beyond its interface is asked for by assertions,
// so that a wrapper must have exactly what it wraps has.
type (
	flusher  struct{ *response }
	hijacker struct{ *response }
	pusher   struct{ *response }
)

func (f flusher) Flush() { _ = f.FlushError() }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if err := h.may(); err != nil {
		return nil, nil, err
	}
	conn, rw, err := http.NewResponseController(h.inner).Hijack()
	h.hijacked = h.hijacked || err == nil
	return conn, rw, err
}

func (p pusher) Push(target string, opts *http.PushOptions) error {
	if err := p.may(); err != nil {
		return err
	}
	to, _ := find[http.Pusher](p.inner)
	return to.Push(target, opts)
}

// find returns the first of a chain of response writers that has T.
func find[T any](w http.ResponseWriter) (t T, ok bool) {
	for w != nil {
		if t, ok = w.(T); ok {
			return t, true
		}
		chain, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = chain.Unwrap()
	}
	return t, false
}

// writer returns the response writer for the handler.
func (w *response) writer() http.ResponseWriter {
	_, flushes := find[http.Flusher](w.inner)
	if !flushes {
		_, flushes = find[interface{ FlushError() error }](w.inner)
	}
	_, hijacks := find[http.Hijacker](w.inner)
	_, pushes := find[http.Pusher](w.inner)
	f, h, p := flusher{w}, hijacker{w}, pusher{w}
	switch {
	case flushes && hijacks && pushes:
		return struct {
			*response
			http.Flusher
			http.Hijacker
			http.Pusher
		}{w, f, h, p}
	case flushes && hijacks: // HTTP/1
		return struct {
			*response
			http.Flusher
			http.Hijacker
		}{w, f, h}
	case flushes && pushes: // HTTP/2
		return struct {
			*response
			http.Flusher
			http.Pusher
		}{w, f, p}
	case hijacks && pushes:
		return struct {
			*response
			http.Hijacker
			http.Pusher
		}{w, h, p}
	case flushes:
		return f
	case hijacks:
		return h
	case pushes:
		return p
	}
	return w
}
