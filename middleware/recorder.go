package middleware

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
)

// recorder is an http.ResponseWriter that holds the response back, so that it can
// be stored, until deliver is called. A response that is too large, or is
// flushed, is sent as it is written.
type recorder struct {
	guard *response // for what is sent as it is written
	most  int       // maximum size of the body to store

	status int         // 0 until the handler sets it
	bare   bool        // the handler set it by Write, not by WriteHeader
	header http.Header // the header at that time
	body   bytes.Buffer
	whole  bool // body has the entire body
	passed bool // writes are sent as they come
}

func newRecorder(ctx context.Context, w http.ResponseWriter, most int) *recorder {
	return &recorder{guard: newResponse(ctx, w), most: most, whole: true}
}

func (rec *recorder) Header() http.Header { return rec.guard.Header() }

func (rec *recorder) WriteHeader(status int) {
	switch {
	case status == http.StatusSwitchingProtocols:
		panic("middleware: a handler wrapped with Once cannot switch protocols")
	case status >= 100 && status <= 199: // informational, before the response
		rec.guard.WriteHeader(status)
	case rec.passed:
		rec.guard.WriteHeader(status) // net/http logs that it is superfluous
	case rec.status == 0:
		if status < 100 || status > 999 {
			panic(fmt.Sprintf("middleware: invalid WriteHeader code %v", status)) // as net/http does, with the handler on the stack
		}
		rec.status, rec.header = status, rec.Header().Clone()
	}
}

func (rec *recorder) Write(b []byte) (int, error) {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
		rec.bare = true
	}
	if rec.status == http.StatusNoContent || rec.status == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
	if rec.whole && rec.body.Len()+len(b) > rec.most {
		err := rec.pass()
		rec.whole, rec.body = false, bytes.Buffer{}
		if err != nil {
			return 0, err
		}
	}
	if rec.whole {
		_, _ = rec.body.Write(b)
	}
	if !rec.passed {
		return len(b), nil
	}
	n, err := rec.guard.Write(b)
	rec.whole = rec.whole && err == nil
	return n, err
}

// FlushError sends the response as it is written from here on. A handler that gets an error
// may stop, so the response is not known to be whole then.
func (rec *recorder) FlushError() error {
	err := rec.flush()
	rec.whole = rec.whole && (err == nil || errors.Is(err, http.ErrNotSupported))
	return err
}

func (rec *recorder) flush() error {
	if !flushable(rec.guard.inner) {
		return http.ErrNotSupported // what is held back stays so
	}
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	if err := rec.pass(); err != nil {
		return err
	}
	return rec.guard.FlushError()
}

// Hijack returns an error: a hijacked connection's response cannot be stored.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, fmt.Errorf("middleware: a handler wrapped with Once cannot hijack the connection: %w", http.ErrNotSupported)
}

// Unwrap is for http.ResponseController: deadlines and full duplex.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.guard.inner }

// flushing is a recorder whose response can be flushed.
type flushing struct{ *recorder }

func (f flushing) Flush() { _ = f.flush() } // the handler does not learn of an error

func (rec *recorder) flushes() bool { return canFlush(rec.guard.inner) }

// writer returns the response writer for the handler.
func (rec *recorder) writer() http.ResponseWriter {
	if canFlush(rec.guard.inner) {
		return flushing{rec}
	}
	return rec
}

// pass sends what was held back, and lets later writes through.
func (rec *recorder) pass() error {
	if rec.passed {
		return nil
	}
	rec.passed = true
	return rec.send(rec.guard)
}

// send sends what was held back.
func (rec *recorder) send(w http.ResponseWriter) error {
	if rec.status == 0 {
		return nil // net/http sends the header
	}
	h := w.Header()
	later := maps.Clone(h) // trailers
	clear(h)
	maps.Copy(h, rec.header)
	if !rec.bare || rec.body.Len() == 0 {
		w.WriteHeader(rec.status)
	}
	var err error
	if rec.body.Len() > 0 {
		// If the handler did not call WriteHeader, an outer handler may decide on the
		// header at the first Write, as one that compresses does.
		_, err = w.Write(rec.body.Bytes())
	}
	clear(h)
	maps.Copy(h, later)
	return err
}

// deliver sends the response, now that its record is settled.
func (rec *recorder) deliver() {
	if !rec.passed {
		_ = rec.send(rec.guard.inner) // the client is gone if this fails
	}
}

// failedError is the outcome of a request whose response is not stored: it may be
// repeated.
type failedError struct{ status int }

func (e *failedError) Error() string {
	return fmt.Sprintf("middleware: the handler answered with status %d", e.status)
}

// GiveBack reports that the attempt does not count: the client repeats the
// request.
func (e *failedError) GiveBack() bool { return true }

// result returns what is stored of the response.
func (rec *recorder) result(print string) ([]byte, error) {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	switch status := rec.status; {
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests,
		status >= 400 && rec.header.Get("Retry-After") != "": // a success or redirect with Retry-After is not a failure
		return nil, &failedError{status}
	}
	k := kept{
		Version: keptVersion,
		Print:   print,
		Status:  rec.status,
		Whole:   rec.whole,
		own:     ownHeader(rec.guard.before, rec.header),
		body:    rec.body.Bytes(),
	}
	if length := rec.header["Content-Length"]; !slices.Equal(length, rec.guard.before["Content-Length"]) {
		k.Length = rec.header.Get("Content-Length")
	}
	k.Whole = k.Whole && k.own.valid()
	b, err := k.encode()
	if err == nil && len(b) > maxResult {
		k.Whole = false
		return k.encode()
	}
	return b, err
}
