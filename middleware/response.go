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

// response is an http.ResponseWriter that sends nothing once the claim behind ctx
// has ended.
type response struct {
	inner  http.ResponseWriter
	ctx    context.Context
	before http.Header // the header before the handler was called, nil if it was empty

	written  bool  // the final header was passed on
	hijacked bool  // the handler has taken the connection
	refused  error // the first reason why something was not sent
}

func newResponse(ctx context.Context, w http.ResponseWriter) *response {
	r := &response{inner: w, ctx: ctx}
	if h := w.Header(); len(h) > 0 {
		r.before = h.Clone()
	}
	return r
}

// may returns nil if more of the response may be sent. It checks the clock only:
// what is sent can still arrive after another owner has taken over.
func (w *response) may() error {
	if w.refused == nil {
		w.refused = fencing.Check(w.ctx)
	}
	return w.refused
}

// reset restores the header from before the handler. It reports whether another
// response can be sent, which is so if nothing was sent.
func (w *response) reset() bool {
	if w.written || w.hijacked {
		return false
	}
	h := w.inner.Header()
	clear(h)
	maps.Copy(h, w.before)
	return true
}

// fence returns the fence of the claim.
func (w *response) fence() int64 {
	t, _ := fencing.FromContext(w.ctx)
	return t.Fence
}

func (w *response) Header() http.Header { return w.inner.Header() }

func (w *response) WriteHeader(status int) {
	if w.may() != nil {
		return
	}
	if status < 100 || status > 199 || status == http.StatusSwitchingProtocols { // not informational
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

// WriteString implements io.StringWriter.
func (w *response) WriteString(s string) (int, error) {
	if err := w.may(); err != nil {
		return 0, err
	}
	w.written = true
	return io.WriteString(w.inner, s)
}

// ReadFrom lets the kernel copy files, as net/http does. It copies everything
// else with Write, which checks the claim each time.
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
	file, ok := src.(*os.File)
	if !ok {
		return false
	}
	is, err := file.Stat()
	return err == nil && is.Mode().IsRegular() // a pipe or a socket can take any time
}

// FlushError is what http.ResponseController looks for first, so that it does not
// bypass the claim by Unwrap.
func (w *response) FlushError() error {
	if err := w.may(); err != nil {
		return err
	}
	err := http.NewResponseController(w.inner).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		w.written = true // Flush sends the header if it was not sent
	}
	return err
}

// Unwrap is for http.ResponseController: deadlines, full duplex, and outer
// response writers.
func (w *response) Unwrap() http.ResponseWriter { return beyond{w.inner, w} }

// beyond is the wrapped response writer, for callers that look for methods that
// response does not have. It notices if they hijack the connection.
type beyond struct {
	http.ResponseWriter
	outer *response
}

func (b beyond) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b beyond) Hijack() (net.Conn, *bufio.ReadWriter, error) { return hijacker{b.outer}.Hijack() }

// Callers find the optional methods of a response writer by type assertion, so the wrapper must have
// exactly those that the wrapped writer has. Writers further inside do not count: one that compresses,
// for example, and cannot be flushed, must not be flushed.
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
	return p.inner.(http.Pusher).Push(target, opts) //nolint:forcetypeassert // writer returns a pusher only if inner is one
}

// canFlush reports whether a response writer itself has Flush.
func canFlush(w http.ResponseWriter) bool {
	switch w := w.(type) {
	case interface{ flushes() bool }:
		return w.flushes()
	case http.Flusher, interface{ FlushError() error }:
		return true
	}
	return false
}

// flushable reports whether http.ResponseController can flush a response writer.
func flushable(w http.ResponseWriter) bool {
	for !canFlush(w) {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = outer.Unwrap()
	}
	return true
}

func (w *response) flushes() bool { return canFlush(w.inner) }

// writer returns the response writer for the handler.
func (w *response) writer() http.ResponseWriter {
	flushes := canFlush(w.inner)
	_, hijacks := w.inner.(http.Hijacker)
	_, pushes := w.inner.(http.Pusher)
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
