package middleware

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"
)

// recorder is a http.ResponseWriter that holds the response back, to be kept,
// until it is delivered; one that is too long, or is flushed, is sent as it comes.
type recorder struct {
	guard *response // what is sent as it comes goes through this
	most  int

	status int         // 0 before the handler said
	header http.Header // as it was then
	body   bytes.Buffer
	whole  bool // all of the body is there
	passed bool // what comes is sent
}

func newRecorder(ctx context.Context, w http.ResponseWriter, most int) *recorder {
	return &recorder{guard: newResponse(ctx, w), most: most, whole: true}
}

func (rec *recorder) Header() http.Header { return rec.guard.Header() }

func (rec *recorder) WriteHeader(status int) {
	switch {
	case status == http.StatusSwitchingProtocols:
		panic("middleware: a response that is to be kept cannot switch protocols")
	case status >= 100 && status <= 199: // comes before the response
		rec.guard.WriteHeader(status)
	case rec.passed:
		rec.guard.WriteHeader(status) // to be told that it is superfluous
	case rec.status == 0:
		if status < 100 || status > 999 {
			panic(fmt.Sprintf("middleware: invalid WriteHeader code %v", status)) // as net/http does, while the handler can be blamed
		}
		rec.status, rec.header = status, rec.Header().Clone()
	}
}

func (rec *recorder) Write(b []byte) (int, error) {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
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

// FlushError gives up holding the response back.
func (rec *recorder) FlushError() error {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	if err := rec.pass(); err != nil {
		return err
	}
	return rec.guard.FlushError()
}

// Hijack is not possible: what is then sent cannot be kept.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, fmt.Errorf("middleware: the response is to be kept: %w", http.ErrNotSupported)
}

// Unwrap is for http.ResponseController: deadlines, full duplex.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.guard.inner }

// flushing is a recorder of a response that can be flushed.
type flushing struct{ *recorder }

func (f flushing) Flush() { _ = f.FlushError() }

// writer returns the response writer for the handler.
func (rec *recorder) writer() http.ResponseWriter {
	if _, ok := find[http.Flusher](rec.guard.inner); ok {
		return flushing{rec}
	}
	return rec
}

// pass sends what was held back, and from here on what comes.
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
		return nil // net/http sends a header by itself
	}
	h := w.Header()
	later := maps.Clone(h) // trailers
	clear(h)
	maps.Copy(h, rec.header)
	w.WriteHeader(rec.status)
	clear(h)
	maps.Copy(h, later)
	if rec.body.Len() == 0 {
		return nil
	}
	_, err := w.Write(rec.body.Bytes())
	return err
}

// deliver sends the response, now that it is settled.
func (rec *recorder) deliver() {
	if !rec.passed {
		_ = rec.send(rec.guard.inner) // nobody is left to tell of an error
	}
}

// failedError is a response that is not kept: the request may be repeated.
type failedError struct{ status int }

func (e *failedError) Error() string {
	return fmt.Sprintf("middleware: the handler answered with status %d", e.status)
}

// GiveBack says that the attempt does not count: it is the client that repeats it.
func (e *failedError) GiveBack() bool { return true }

// result returns what is to be kept of the response.
func (rec *recorder) result(print string) ([]byte, error) {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	switch status := rec.status; {
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, rec.header.Get("Retry-After") != "":
		return nil, &failedError{status}
	}
	k := kept{Version: keptVersion, Print: print, Status: rec.status, Whole: rec.whole, Header: rec.own(), body: rec.body.Bytes()}
	if len(k.body) == 0 {
		k.Length = rec.header.Get("Content-Length") // of what HEAD does not send
	}
	for _, values := range k.Header {
		k.Whole = k.Whole && !slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) // which JSON would change
	}
	b, err := k.encode()
	if err == nil && len(b) > maxResult {
		k.Whole, k.Header, k.body = false, nil, nil
		return k.encode()
	}
	return b, err
}

// own returns the header that the handler made, without what concerns one message
// or one connection only.
func (rec *recorder) own() http.Header {
	own := make(http.Header)
	for name, values := range rec.header {
		switch name {
		case "Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
			continue
		}
		if !slices.Equal(values, rec.guard.before[name]) {
			own[name] = values
		}
	}
	return own
}

// kept is a response as it is stored: a line of JSON, and the body.
type kept struct {
	Version int         `json:"v"`
	Print   string      `json:"print"`
	Status  int         `json:"status"`
	Whole   bool        `json:"whole"`
	Header  http.Header `json:"header,omitempty"`
	Length  string      `json:"length,omitempty"` // Content-Length, where there is no body
	body    []byte
}

const keptVersion = 1

func (k kept) encode() ([]byte, error) {
	if !k.Whole {
		k.Header, k.body = nil, nil
	}
	b, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	return append(append(b, '\n'), k.body...), nil
}

func decodeKept(b []byte) (kept, error) {
	line, body, _ := bytes.Cut(b, []byte("\n"))
	k := kept{body: body}
	if err := json.Unmarshal(line, &k); err != nil {
		return k, fmt.Errorf("middleware: a response that was kept cannot be read: %w", err)
	}
	if k.Version > keptVersion {
		return k, fmt.Errorf("middleware: a response was kept by a newer version, %d", k.Version)
	}
	return k, nil
}

// send answers with the response.
func (k kept) send(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, k.Header)
	h.Set(Replayed, "true")
	switch {
	case k.Status == http.StatusNoContent, k.Status == http.StatusNotModified:
	case k.Length != "":
		h.Set("Content-Length", k.Length)
	default:
		h.Set("Content-Length", strconv.Itoa(len(k.body)))
	}
	w.WriteHeader(k.Status)
	_, _ = w.Write(k.body) // nobody is left to tell of an error
}
