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

// RefusedError is the refusal of a call. On a server, the interceptors return it,
// and it becomes a status with details. In a client, the interceptors make it
// from such a status, or return it when they refuse to send.
//
// In a client it matches one of these errors:
//
//	fencing.ErrStale      a newer owner has been seen: stop. errors.As finds a *fencing.StaleError with Newest
//	fencing.ErrNoToken    the resource requires a token of its key
//	fencing.ErrMalformed  the resource could not parse the token
//	fencing.ErrHeld       another owner holds the key: see Owner and RetryAfter
//	fencing.ErrLost       the claim that the call ran under was lost; or the caller's own, and nothing was sent
//	fencing.ErrUnknown    the call may have been carried out; or nothing was sent, with code Unavailable
//
// A refusal with another reason matches none of these errors. The client does
// not authenticate the server: it accepts any status with the right details, even one
// that the server received from another server and passed on.
type RefusedError struct {
	// Reason identifies the case, such as HELD.
	Reason string
	// Code is the gRPC status code.
	Code codes.Code
	// Message is a sentence for people.
	Message string
	// Key is the key of the claim that the call was about. It is empty if the
	// call has no valid key, or had not named it yet.
	Key string
	// Fence is the fence of the call's own claim, or of its token if that is a
	// token of Key.
	Fence int64
	// Newest is the greatest fence known for the key. If another owner holds the
	// key, it is that owner's fence.
	Newest int64
	// Owner is the label of the holder. The default label is the host name and
	// process id, which you may not want to disclose; etcdclaims.Config.Owner
	// sets another one.
	Owner string
	// Since is when the holder acquired the key.
	Since time.Time
	// RetryAfter is when the client may retry. Zero means that it is not known.
	RetryAfter time.Duration
	// Err is the complete cause. It is not sent.
	Err error

	got error // the error that a client received, with its status
}

// The metadata keys of a google.rpc.ErrorInfo.
const (
	metaKey    = "key"
	metaFence  = "fence"
	metaNewest = "newest"
	metaOwner  = "owner"
	metaSince  = "since"
)

// Error returns the code, reason, message and key.
func (e *RefusedError) Error() string {
	s := fmt.Sprintf("grpcmw: %v %s: %s", e.Code, e.Reason, e.Message)
	if e.Key != "" {
		s += fmt.Sprintf(" (key %q)", e.Key)
	}
	return s
}

// Unwrap returns Err and, in a client, the error that gRPC returned.
func (e *RefusedError) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Err, e.got} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// GRPCStatus returns the status; in a client, the status that was received.
// Package status uses it.
func (e *RefusedError) GRPCStatus() *status.Status {
	if e.got != nil {
		return status.Convert(e.got)
	}
	st := status.New(e.Code, e.Message)
	if detailed, err := st.WithDetails(e.details()...); err == nil {
		return detailed
	}
	return st // something is not UTF-8: refuse without details
}

// errorDomain is the domain of each google.rpc.ErrorInfo.
var errorDomain = fencing.Refusal{}.Domain()

func (e *RefusedError) details() []protoadapt.MessageV1 {
	info := &errdetails.ErrorInfo{Reason: e.Reason, Domain: errorDomain, Metadata: make(map[string]string)}
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

// refusedBy returns the refusal in the error of a call, or nil if the status is
// not one of this package.
func refusedBy(err error, st *status.Status) *RefusedError {
	e := &RefusedError{Code: st.Code(), Message: st.Message(), got: err}
	ours := false
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if ours || d.GetDomain() != errorDomain {
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

// read takes over the content of an ErrorInfo. It ignores what it cannot parse.
func (e *RefusedError) read(info *errdetails.ErrorInfo) {
	meta := info.GetMetadata()
	e.Reason = info.GetReason()
	e.Key, e.Owner = meta[metaKey], meta[metaOwner]
	e.Fence, _ = strconv.ParseInt(meta[metaFence], 10, 64)
	e.Newest, _ = strconv.ParseInt(meta[metaNewest], 10, 64)
	e.Since, _ = time.Parse(time.RFC3339Nano, meta[metaSince])
	e.Err = fencing.Refusal{Reason: e.Reason}.Err()
	if e.Err == fencing.ErrStale { //nolint:errorlint // Err returns this very value
		e.Err = &fencing.StaleError{Token: fencing.Token{Key: e.Key, Fence: e.Fence}, Newest: e.Newest}
	}
}

// refuse returns the error that a call ends with, through the configured function
// if there is one.
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

// set stores the first refusal, and returns it.
func (s *refused) set(r *RefusedError) *RefusedError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.r == nil {
		s.r = r
	}
	return s.r
}
