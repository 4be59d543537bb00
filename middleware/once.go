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
	"github.com/etcdclaims/claims/internal/passthrough"
)

// keyHeader is the request header with which a client identifies a request, so that it can
// repeat it.
const keyHeader = "Idempotency-Key"

// replayedHeader is a response header. Its value is "true" if the response is the
// stored response to an earlier request.
const replayedHeader = "Idempotent-Replayed"

// OnceConfig configures Once. The zero value requires a quoted Idempotency-Key,
// and refuses a repeated request while the first is being carried out.
type OnceConfig struct {
	// Optional passes requests without the header to the handler, as if it were
	// not wrapped. Otherwise they are refused (400).
	Optional bool
	// Unquoted also accepts keys without quotes: printable ASCII without spaces,
	// quotes, commas and semicolons, such as a UUID. A key means the same with
	// and without quotes. Otherwise unquoted keys are refused (400).
	Unquoted bool
	// Wait is how long a repeated request waits for the first one to end. Then the
	// record is read once more, which takes at most one second, before the request
	// is refused. Zero means that it does not wait. A negative value means that it
	// waits as long as its client does.
	Wait time.Duration
	// MaxBody is the maximum size of a request's body, in bytes. The whole body
	// is read before anything else happens. A request whose Content-Length is
	// larger is refused before its body is read. Default: 1 MiB.
	MaxBody int64
	// MaxResponse is the maximum size of a response's body that is stored, in
	// bytes. Up to this size the response is held back until the request is
	// recorded as done. Default and maximum: 60 KiB.
	MaxResponse int
	// Refuse answers a request that is refused. Use it to log or change the
	// problem, or to answer in another format. Default: Problem.ServeHTTP.
	Refuse func(w http.ResponseWriter, r *http.Request, p *Problem)
}

const (
	defaultMaxBody = 1 << 20
	maxKept        = 60 << 10
	// maxResult is the maximum size of a result of Works: the body and what is
	// stored with it.
	maxResult = 64 << 10
)

var (
	idempotencyKeyMissing = fencing.Refusal{
		Reason: "IDEMPOTENCY_KEY_MISSING",
		Status: http.StatusBadRequest,
		Code:   3,
		Title:  "The request needs an Idempotency-Key.",
	}
	idempotencyKeyMalformed = fencing.Refusal{
		Reason: "IDEMPOTENCY_KEY_MALFORMED",
		Status: http.StatusBadRequest,
		Code:   3,
		Title:  "The Idempotency-Key is malformed.",
	}
	idempotencyKeyReused = fencing.Refusal{
		Reason: "IDEMPOTENCY_KEY_REUSED",
		Status: http.StatusUnprocessableEntity,
		Code:   3,
		Title:  "The Idempotency-Key was used for another request.",
	}
	bodyTooLarge = fencing.Refusal{
		Reason: "BODY_TOO_LARGE",
		Status: http.StatusRequestEntityTooLarge,
		Code:   8,
		Title:  "The request's body is too large.",
	}
	bodyUnread = fencing.Refusal{
		Reason: "BODY_UNREADABLE",
		Status: http.StatusBadRequest,
		Code:   3,
		Title:  "The request's body could not be read.",
	}
	responseNotKept = fencing.Refusal{
		Reason: "RESPONSE_NOT_KEPT",
		Status: http.StatusConflict,
		Code:   6,
		Title:  "The request was carried out before, and its response was not stored.",
	}
)

// Once carries out a request with an Idempotency-Key once, and answers repeats of
// it with the stored response: status, header and body. The response is stored in
// the transaction that records the request as done, and is sent only then. So a
// client that has received a response receives the same one again, for as long as
// done work is remembered (work.Config.Retention). The repeated response has the header
// Idempotent-Replayed: true.
//
// The value of the header Idempotency-Key is a String of RFC 9651, in quotes, as
// draft-ietf-httpapi-idempotency-key-header specifies. OnceConfig.Unquoted also accepts keys
// without quotes, as many clients send them.
//
// scope returns the owner of the keys: the authenticated user or tenant and the
// service, such as "payments/tenant-7". Otherwise two users with the same key
// would get each other's responses. The key of the claim is the scope, a slash,
// and a digest of the Idempotency-Key. scope may read the body, as FormValue
// does. Handlers outside of Once must not have read it.
//
// # Refusals
//
// Once refuses a request with a Problem, without calling the handler,
//
//   - with 400 if it has no Idempotency-Key (unless Optional), more than one, or one that is not
//     a String of RFC 9651 of 1 to 255 bytes (see Unquoted; parameters are ignored),
//   - with 413 if its body is larger than MaxBody,
//   - with 422 if the key was used with another method, path, query or body,
//   - with 409 HELD and RetryAfter if the first request is still being carried out,
//   - with 409 RESPONSE_NOT_KEPT if the first request was carried out, but its response
//     was too large, or was flushed by the handler and could not be sent,
//   - with 409 DEAD if the first request failed for good,
//   - with 503 and RetryAfter if the request cannot be recorded now, or if an earlier
//     attempt panicked or ended without an answer, and its back-off is not over
//     (work.Config.Backoff).
//
// # What is stored
//
// A response with status 500 or above, 408, 425 or 429, or another 4xx with a
// Retry-After, is sent and not stored: the request failed, and a repeat is
// carried out at once. All other responses are stored, including other 4xx
// responses. So authenticate outside of Once.
//
// A response that is too large, or that the handler flushes, is sent as it is
// written. The content of a response that is too large, or that could not be
// sent, is not stored. Trailers are not stored. Connections cannot be hijacked.
//
// Only header fields that the handler set, added or deleted are stored. A replay applies
// these changes to the header that handlers outside of Once have set for the repeated
// request, such as their cookies.
//
// # The handler's context
//
// After the handler has been called, the request is carried out even if its client
// disconnects. The handler's context has the values of the request's context, but
// not its cancellation or deadline. It ends with the claim. A handler that
// returns without an answer after its context has ended has failed.
//
// If the claim is lost, or the outcome cannot be recorded, the response is a
// Problem (409 CLAIM_LOST, 504 OUTCOME_UNKNOWN). A response that was already
// begun is cut off.
//
// # What is not guaranteed
//
// The handler may run more than once. If its process dies between an effect and the
// record, or its claim is lost, a repeat is carried out again. The option
// work.AtMostOnce prevents that, until work.Config.DeadRetention is over.
// It does not prevent that a request is carried out again whose handler panicked or whose
// response was not stored. An effect that must not happen twice needs the fence, or the Idempotency-Key.
//
// After such a death a repeat waits for OnceConfig.Wait, and is refused with 409 HELD, until
// the claim's lease has expired. If no client repeats the request, it is not carried out
// again. After a panic a repeat is refused with 503 until the back-off is over. Deaths and
// panics count as attempts. After work.Config.MaxAttempts of them, 5 by default,
// repeats are refused with 409 DEAD.
//
// Once panics if scope is nil or MaxResponse is too large. The function that it
// returns panics if the handler is nil. If works is a passthrough (see
// etcdclaims.NewPassthrough), the handler is returned unchanged. If works is nil, or a nil
// *work.Runner, every request with a key is refused with 503.
func Once(works Works, scope func(*http.Request) string, cfg OnceConfig, opts ...WorkOption) func(http.Handler) http.Handler {
	switch {
	case scope == nil:
		panic("middleware: Once needs a scope function")
	case cfg.MaxResponse > maxKept:
		panic(fmt.Sprintf("middleware: Once stores responses of up to %d bytes; MaxResponse is %d", maxKept, cfg.MaxResponse))
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
		if passthrough.Of(works) {
			return next
		}
		none := passthrough.Check(works)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if cfg.Optional && len(r.Header.Values(keyHeader)) == 0 {
				next.ServeHTTP(w, r)
				return
			}
			o, p := newOrder(w, r, scope, cfg)
			if p != nil {
				refuse(w, r, p, cfg.Refuse)
				return
			}
			if none != nil {
				refuse(w, r, claimProblem(o.claim, &NotRunError{Key: o.claim, Err: none}), cfg.Refuse)
				return
			}
			var sent *recorder
			var result []byte
			made := func() ([]byte, error) { return sent.result(o.print) }
			ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
			defer end(nil)
			stay := context.AfterFunc(r.Context(), func() { end(context.Cause(r.Context())) })
			defer stay()
			_, err := underWork(ctx, o.claim, cfg.Wait,
				remembering(works.TryOnce, o.claim, opts, &result, made),
				remembering(works.Once, o.claim, opts, &result, made),
				func(ctx context.Context) error {
					// From here on the request is carried out even if its client disconnects.
					if !stay() {
						return notBegun{&NotRunError{Key: o.claim, Err: context.Cause(r.Context())}}
					}
					sent = newRecorder(ctx, w, cfg.MaxResponse)
					serve(next, sent.writer(), o.request(ctx), r)
					if ctx.Err() != nil && sent.status == 0 {
						return context.Cause(ctx) // the handler stopped without an answer: not a 200
					}
					return nil
				})
			o.answer(w, sent, result, err, cfg)
		})
	}
}

// notBegun is the error of a request whose client disconnected as the key was
// acquired.
type notBegun struct{ *NotRunError }

// GiveBack reports that the attempt does not count.
func (notBegun) GiveBack() bool { return true }

func (e notBegun) Unwrap() error { return e.NotRunError }

// order is a request with an Idempotency-Key.
type order struct {
	r     *http.Request
	key   string // the Idempotency-Key
	claim string
	body  []byte
	print string // fingerprint: a repeat must have the same
}

// newOrder reads the request to its end, or returns the problem to refuse it
// with.
func newOrder(w http.ResponseWriter, r *http.Request, scope func(*http.Request) string, cfg OnceConfig) (*order, *Problem) {
	refused := func(why fencing.Refusal, err error, detail string) (*order, *Problem) {
		p := newProblem(why, "", err)
		p.Detail = detail
		return nil, p
	}
	lines := r.Header.Values(keyHeader)
	if len(lines) == 0 {
		return refused(idempotencyKeyMissing, nil, `Send one, in quotes: Idempotency-Key: "…".`)
	}
	key, err := idempotencyKey(lines, cfg.Unquoted)
	if err != nil {
		return refused(idempotencyKeyMalformed, err, err.Error())
	}
	o := &order{r: r, key: key}
	if r.ContentLength > cfg.MaxBody {
		// Unread, so that the server does not ask for it either (Expect: 100-continue).
		return refused(bodyTooLarge, nil, fmt.Sprintf("The limit is %d bytes.", cfg.MaxBody))
	}
	if r.Body != nil { // a request made in a program may have none
		o.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, cfg.MaxBody))
	}
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return refused(bodyTooLarge, err, fmt.Sprintf("The limit is %d bytes.", cfg.MaxBody))
	case err != nil:
		return refused(bodyUnread, err, "")
	}
	// The scope may read the body, for example as a form, so it gets a copy.
	own := o.request(r.Context())
	defer removeFiles(own, r)
	s := scope(own)
	if s == "" {
		return refused(keyInvalid, ErrInvalidKey, "The scope is empty.")
	}
	digest := sha256.Sum256([]byte(key))
	o.claim = s + "/" + hex.EncodeToString(digest[:])
	if err := checkClaimed(o.claim); err != nil {
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

// answer sends the outcome of the request. sent is the handler's response, nil if
// the handler was not called. result is the stored response. err is why the
// outcome is not recorded.
func (o *order) answer(w http.ResponseWriter, sent *recorder, result []byte, err error, cfg OnceConfig) {
	if sent != nil && err == nil {
		err = sent.guard.refused // a part of the response was not sent
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
		p := claimProblem(o.claim, err)
		p.IdempotencyKey = o.key
		if sent != nil {
			p.Fence = sent.guard.fence()
		}
		refuse(w, o.r, p, cfg.Refuse)
	}
}

// problem returns a problem of the request.
func (o *order) problem(why fencing.Refusal, err error) *Problem {
	p := newProblem(why, o.claim, err)
	p.IdempotencyKey = o.key
	return p
}

// replay answers with the stored response.
func (o *order) replay(w http.ResponseWriter, result []byte, cfg OnceConfig) {
	kept, err := decodeKept(result)
	switch {
	case err != nil:
		refuse(w, o.r, o.problem(responseNotKept, err), cfg.Refuse)
	case kept.Print != o.print:
		p := o.problem(idempotencyKeyReused, nil)
		p.Detail = "It was sent before with another method, path, query or body."
		refuse(w, o.r, p, cfg.Refuse)
	case !kept.Whole:
		p := o.problem(responseNotKept, nil)
		p.Detail = fmt.Sprintf("Its status was %d; its response was too large.", kept.Status)
		refuse(w, o.r, p, cfg.Refuse)
	default:
		kept.send(w)
	}
}
