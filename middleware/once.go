package middleware

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// IdempotencyKey is the request header by which a client names a request, so that
// it can be repeated: a String of RFC 9651, in quotes, as
// draft-ietf-httpapi-idempotency-key-header has it.
const IdempotencyKey = "Idempotency-Key"

// Replayed is the response header, with the value true, of what is the response to
// an earlier request.
const Replayed = "Idempotent-Replayed"

// OnceConfig says how a handler is wrapped.
type OnceConfig struct {
	// Optional lets requests without the header pass, as if the handler were not
	// wrapped. Otherwise they are refused (400).
	Optional bool
	// Wait is how long a repeated request may wait for the end of the one before.
	// 0: not at all. Negative: as long as its client does.
	Wait time.Duration
	// MaxBody is how many bytes a request's body may have: it is read to its end
	// before anything else is done. Default: 1 MiB.
	MaxBody int64
	// MaxResponse is how many bytes of a response's body are kept, and held back
	// until the request is recorded as done. Default, and at most: 60 KiB.
	MaxResponse int
	// Refuse answers what is refused, to log it, to change it, or to answer in
	// another form. Default: Problem.ServeHTTP.
	Refuse func(w http.ResponseWriter, r *http.Request, p *Problem)
}

const (
	defaultMaxBody = 1 << 20
	maxKept        = 60 << 10
	// maxResult is how long a result of Works may be, with what stands beside the
	// body.
	maxResult = 64 << 10
	// maxIdempotencyKey is enough for several UUIDs.
	maxIdempotencyKey = 255
)

var (
	idempotencyKeyMissing   = fencing.Refusal{Reason: "IDEMPOTENCY_KEY_MISSING", Status: http.StatusBadRequest, Code: 3, Title: "The request needs an Idempotency-Key."}
	idempotencyKeyMalformed = fencing.Refusal{Reason: "IDEMPOTENCY_KEY_MALFORMED", Status: http.StatusBadRequest, Code: 3, Title: "The Idempotency-Key is malformed."}
	idempotencyKeyReused    = fencing.Refusal{Reason: "IDEMPOTENCY_KEY_REUSED", Status: http.StatusUnprocessableEntity, Code: 3, Title: "The Idempotency-Key is that of another request."}
	bodyTooLarge            = fencing.Refusal{Reason: "BODY_TOO_LARGE", Status: http.StatusRequestEntityTooLarge, Code: 8, Title: "The request's body is too long."}
	bodyUnread              = fencing.Refusal{Reason: "BODY_UNREADABLE", Status: http.StatusBadRequest, Code: 3, Title: "The request's body could not be read."}
	responseNotKept         = fencing.Refusal{Reason: "RESPONSE_NOT_KEPT", Status: http.StatusConflict, Code: 6, Title: "The request was carried out before, and its response was not kept."}
)

// Once carries out a request that names itself by an Idempotency-Key, and answers
// each that repeats it with the response that it got: status, header and body. The
// first runs as work; its response is stored in the very transaction that records
// the work as done, and only then sent, so that a client that has a response gets
// the same again, for as long as done work is remembered (etcdclaims.Config's
// Retention).
//
// The scope says whose keys these are: the authenticated user, or tenant, and the
// service, "payments/tenant-7" say. Two users who choose one key must not get each
// other's responses. Claims are on the scope, a slash, and a digest of the key.
//
// Refused, with a Problem, and without calling the handler, is what has no key
// (400, unless Optional) or more than one, or one that is no String of RFC 9651 of
// 1 to 255 bytes (400); repeats a key with another method, path, query or body
// (422); repeats a request that is still carried out (409 HELD, with Retry-After),
// or whose response was not kept (409 RESPONSE_NOT_KEPT), or that failed for good
// (409 DEAD); has a body over MaxBody (413); cannot be recorded now (503, with
// Retry-After).
//
// A response with a status of 500 or more, 408, 425 or 429, or with a Retry-After,
// is sent and not kept: the request failed, and a repeat is carried out anew, at
// once. All others are kept, 4xx too: authenticate outside. So is what is too
// long, without its response: then the response is sent as it comes, and so it is
// when the handler flushes. Trailers are not kept, connections cannot be hijacked.
//
// A request whose handler was called is carried out, whether or not its client
// goes on waiting: the handler's context has the request's values, but neither its
// end nor its deadline, and ends with the claim. A handler that returns without an
// answer after its context has ended has failed.
//
// The scope may read the body, as FormValue does. Handlers outside of Once must not
// have.
//
// If the claim is lost, or the outcome cannot be recorded, the response is a
// Problem (409 CLAIM_LOST, 504 OUTCOME_UNKNOWN), or is cut off if it was begun.
//
// What is not guaranteed: that the handler runs once. If its process dies between
// an effect and the record, or its claim is lost, a repeat is carried out anew
// after the claim's lease has lapsed, unless the options have
// etcdclaims.AtMostOnce. An effect that must not be doubled needs its fence, or the
// key.
//
// Once panics if scope is nil or MaxResponse too large, and what it returns if the
// handler is nil. With works that are nil or a passthrough a handler is returned as
// it is.
func Once[O any](works Works[O], scope func(*http.Request) string, cfg OnceConfig, opts ...O) func(http.Handler) http.Handler {
	switch {
	case scope == nil:
		panic("middleware: Once needs a scope function")
	case cfg.MaxResponse > maxKept:
		panic(fmt.Sprintf("middleware: Once keeps responses of up to %d bytes, not %d", maxKept, cfg.MaxResponse))
	}
	if cfg.MaxResponse <= 0 {
		cfg.MaxResponse = maxKept
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = defaultMaxBody
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("middleware: Once needs a handler")
		}
		if passes(works) {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if cfg.Optional && len(r.Header.Values(IdempotencyKey)) == 0 {
				next.ServeHTTP(w, r)
				return
			}
			o, p := newOrder(w, r, scope, cfg.MaxBody)
			if p != nil {
				refuse(w, r, p, cfg.Refuse)
				return
			}
			var sent *recorder
			var result []byte
			made := func() ([]byte, error) { return sent.result(o.print) }
			ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
			defer end(nil)
			stay := context.AfterFunc(r.Context(), func() { end(context.Cause(r.Context())) })
			defer stay()
			err := under(ctx, o.claim, cfg.Wait,
				remembering(works.TryRunOnce, o.claim, opts, &result, made),
				remembering(works.RunOnce, o.claim, opts, &result, made),
				func(ctx context.Context) error {
					stay() // from here on it is carried out, whether or not its client waits
					sent = newRecorder(ctx, w, cfg.MaxResponse)
					next.ServeHTTP(sent.writer(), o.request(ctx))
					if ctx.Err() != nil && sent.status == 0 {
						return context.Cause(ctx) // it stopped when told to, and has no answer: that is no 200
					}
					return nil
				})
			o.answer(w, sent, result, err, cfg)
		})
	}
}

// order is a request that names itself.
type order struct {
	r     *http.Request
	key   string // the Idempotency-Key
	claim string
	body  []byte
	print string // fingerprint: what a repeat must have in common
}

// newOrder reads the request to its end, or says why not.
func newOrder(w http.ResponseWriter, r *http.Request, scope func(*http.Request) string, maxBody int64) (*order, *Problem) {
	refused := func(why fencing.Refusal, err error, detail string) (*order, *Problem) {
		p := newProblem(why, "", err)
		p.Detail = detail
		return nil, p
	}
	lines := r.Header.Values(IdempotencyKey)
	if len(lines) == 0 {
		return refused(idempotencyKeyMissing, nil, `Send one, in quotes: Idempotency-Key: "…".`)
	}
	key, err := quoted(lines)
	if err != nil {
		return refused(idempotencyKeyMalformed, err, err.Error())
	}
	o := &order{r: r, key: key}
	o.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return refused(bodyTooLarge, err, fmt.Sprintf("The limit is %d bytes.", maxBody))
	case err != nil:
		return refused(bodyUnread, err, "")
	}
	// With a body of its own, which it may read, as a form is.
	s := scope(o.request(r.Context()))
	if s == "" {
		return refused(keyInvalid, ErrInvalidKey, "The scope is empty.")
	}
	digest := sha256.Sum256([]byte(key))
	o.claim = s + "/" + hex.EncodeToString(digest[:])
	if err := checkKey(o.claim); err != nil {
		return refused(keyInvalid, err, err.Error())
	}
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s %q %q\n", r.Method, r.URL.EscapedPath(), r.URL.RawQuery)
	_, _ = sum.Write(o.body)
	o.print = hex.EncodeToString(sum.Sum(nil))
	return o, nil
}

// request returns the request for the handler.
func (o *order) request(ctx context.Context) *http.Request {
	r := o.r.WithContext(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(o.body)), int64(len(o.body)), nil
	return r
}

// answer sends what became of the request: sent is the response of the handler if
// it was called, result what is recorded, and err why it is not.
func (o *order) answer(w http.ResponseWriter, sent *recorder, result []byte, err error, cfg OnceConfig) {
	if sent != nil && err == nil {
		err = sent.guard.refused // a part of it was not sent
	}
	var failed *failedError
	switch {
	case sent == nil && err == nil:
		o.replay(w, result, cfg)
	case sent != nil && (err == nil || errors.As(err, &failed) && !errors.Is(err, fencing.ErrLost)):
		sent.deliver()
	case sent != nil && !sent.guard.reset():
		abort(w, o.r)
	default:
		p := claimProblem(o.key, err)
		if sent != nil {
			p.Fence = sent.guard.fence()
		}
		refuse(w, o.r, p, cfg.Refuse)
	}
}

// replay answers with the response that is recorded.
func (o *order) replay(w http.ResponseWriter, result []byte, cfg OnceConfig) {
	kept, err := decodeKept(result)
	switch {
	case err != nil:
		refuse(w, o.r, newProblem(responseNotKept, o.key, err), cfg.Refuse)
	case kept.Print != o.print:
		p := newProblem(idempotencyKeyReused, o.key, nil)
		p.Detail = "It was sent before with another method, path, query or body."
		refuse(w, o.r, p, cfg.Refuse)
	case !kept.Whole:
		p := newProblem(responseNotKept, o.key, nil)
		p.Detail = fmt.Sprintf("Its status was %d; its response was too long.", kept.Status)
		refuse(w, o.r, p, cfg.Refuse)
	default:
		kept.send(w)
	}
}

// quoted reads the header: one line with a String of RFC 9651 and nothing else.
func quoted(lines []string) (string, error) {
	if len(lines) > 1 {
		return "", fmt.Errorf("there are %d header lines, send one", len(lines))
	}
	rest := bytes.Trim([]byte(lines[0]), " ")
	if len(rest) < 2 || rest[0] != '"' || rest[len(rest)-1] != '"' {
		return "", errors.New("it must be in quotes, with nothing behind them")
	}
	var key []byte
	for i := 1; i < len(rest)-1; i++ {
		c := rest[i]
		if c == '\\' {
			if i++; i == len(rest)-1 || rest[i] != '"' && rest[i] != '\\' {
				return "", errors.New(`a \ must stand before a quote or another \`)
			}
			c = rest[i]
		} else if c < ' ' || c > '~' || c == '"' {
			return "", errors.New("between its quotes it must be printable ASCII")
		}
		key = append(key, c)
	}
	if len(key) == 0 || len(key) > maxIdempotencyKey {
		return "", fmt.Errorf("it has %d bytes, and must have 1 to %d", len(key), maxIdempotencyKey)
	}
	return string(key), nil
}
