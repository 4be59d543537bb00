package grpcmw

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// RefusedError is how a call is refused: by the interceptors of a server, where it
// becomes a status with details, or by those of a client, which make it from such a
// status, or refuse to send.
//
// On the side of the client what it matches tells the cases apart:
//
//	fencing.ErrStale      a newer owner was there; errors.As has a *fencing.StaleError, with Newest: stop
//	fencing.ErrNoToken    the resource wants a token of its key
//	fencing.ErrMalformed  the token was not understood
//	fencing.ErrHeld       another works on the key: Owner, RetryAfter
//	fencing.ErrLost       the claim that the call ran under was lost; or its caller's, and it was not sent
//	fencing.ErrUnknown    the call may have been carried out; or it was not sent, with code Unavailable
//
// One with another reason matches none of them. Whoever may answer in the name of
// the resource is believed, and so is a server that passes on what another told it.
type RefusedError struct {
	// Reason is the word to tell the cases apart by, and Code the status code.
	Reason string
	Code   codes.Code
	// Message says it in words.
	Message string
	// Key is the key that the call was about, "" if it has none that is valid.
	Key string
	// Fence is that of the call's own claim or token.
	Fence int64
	// Newest is the greatest fence that is known for the key: of the holder, if
	// it is held by another.
	Newest int64
	// Owner is the label of who holds the key, and Since when it began. The
	// label is the host's name and process id unless etcdclaims.Config.Owner
	// says otherwise: not for everybody's eyes, perhaps.
	Owner string
	Since time.Time
	// RetryAfter is when the call may be tried again. 0: it is not said.
	RetryAfter time.Duration
	// Err is why, in full. It is not sent.
	Err error

	got error // what a client got, with its status
}

// Names in the metadata of a google.rpc.ErrorInfo.
const (
	metaKey    = "key"
	metaFence  = "fence"
	metaNewest = "newest"
	metaOwner  = "owner"
	metaSince  = "since"
)

// Error says what it says.
func (e *RefusedError) Error() string {
	s := fmt.Sprintf("grpcmw: %v %s: %s", e.Code, e.Reason, e.Message)
	if e.Key != "" {
		s += fmt.Sprintf(" (key %q)", e.Key)
	}
	return s
}

// Unwrap returns Err, and on the side of the client what gRPC returned.
func (e *RefusedError) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Err, e.got} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// GRPCStatus returns the status: on the side of the client the one that came. It is
// for package status.
func (e *RefusedError) GRPCStatus() *status.Status {
	if e.got != nil {
		return status.Convert(e.got)
	}
	st := status.New(e.Code, e.Message)
	if detailed, err := st.WithDetails(e.details()...); err == nil {
		return detailed
	}
	return st // something is not UTF-8: a refusal without details is one, too
}

func (e *RefusedError) details() []protoadapt.MessageV1 {
	info := &errdetails.ErrorInfo{Reason: e.Reason, Domain: fencing.ErrorDomain, Metadata: make(map[string]string)}
	set := func(name, value string, known bool) {
		if known {
			info.Metadata[name] = value
		}
	}
	set(metaKey, e.Key, e.Key != "")
	set(metaFence, strconv.FormatInt(e.Fence, 10), e.Fence != 0)
	set(metaNewest, strconv.FormatInt(e.Newest, 10), e.Newest != 0)
	set(metaOwner, strings.ToValidUTF8(e.Owner, "\uFFFD"), e.Owner != "")
	set(metaSince, e.Since.UTC().Format(time.RFC3339Nano), !e.Since.IsZero())
	if e.RetryAfter <= 0 {
		return []protoadapt.MessageV1{info}
	}
	return []protoadapt.MessageV1{info, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}}
}

// refusedBy returns the refusal that an error of a call is, nil if it is none of
// ours.
func refusedBy(err error, st *status.Status) *RefusedError {
	e := &RefusedError{Code: st.Code(), Message: st.Message(), got: err}
	ours := false
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if ours || d.GetDomain() != fencing.ErrorDomain {
				continue
			}
			ours = true
			e.read(d)
		case *errdetails.RetryInfo:
			e.RetryAfter = max(d.GetRetryDelay().AsDuration(), 0)
		}
	}
	if !ours {
		return nil
	}
	return e
}

// read takes over what an ErrorInfo says. What is not understood is left out.
func (e *RefusedError) read(info *errdetails.ErrorInfo) {
	meta := info.GetMetadata()
	e.Reason = info.GetReason()
	e.Key, e.Owner = meta[metaKey], meta[metaOwner]
	e.Fence, _ = strconv.ParseInt(meta[metaFence], 10, 64)
	e.Newest, _ = strconv.ParseInt(meta[metaNewest], 10, 64)
	e.Since, _ = time.Parse(time.RFC3339Nano, meta[metaSince])
	e.Err = fencing.Refusal{Reason: e.Reason}.Err()
	if e.Err == fencing.ErrStale { //nolint:errorlint // it is the very one
		e.Err = &fencing.StaleError{Token: fencing.Token{Key: e.Key, Fence: e.Fence}, Newest: e.Newest}
	}
}

// refuse returns what a call ends with, in the way that was asked for.
func refuse(ctx context.Context, method string, r *RefusedError, answer func(context.Context, string, *RefusedError) error) error {
	if answer != nil {
		if err := answer(ctx, method, r); err != nil {
			return err
		}
	}
	return r
}

// refused is the refusal that a stream ended with, nil until then.
type refused struct {
	mu sync.Mutex
	r  *RefusedError
}

func (s *refused) get() *RefusedError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r
}

// set returns the first that was set.
func (s *refused) set(r *RefusedError) *RefusedError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.r == nil {
		s.r = r
	}
	return s.r
}
