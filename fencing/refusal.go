package fencing

import "errors"

// Refusal is how an error is told to whoever sent a request: what a server in
// any language answers, so that clients in any language can tell the cases
// apart.
type Refusal struct {
	// Reason is the word to tell the cases apart by: the last part of the "type"
	// of an RFC 9457 problem, the "reason" of a google.rpc.ErrorInfo whose
	// "domain" is ErrorDomain.
	Reason string
	// Status is the HTTP status code.
	Status int
	// Code is the number of the gRPC status code.
	Code uint32
	// Title says it in words.
	Title string
}

const (
	// ErrorDomain is the domain of a google.rpc.ErrorInfo.
	ErrorDomain = "etcdclaims"
	// problemTypes is what the types of problems begin with.
	problemTypes = "https://github.com/etcdclaims/claims#"
)

// Type returns the "type" of the RFC 9457 problem.
func (r Refusal) Type() string { return problemTypes + r.Reason }

// RFC 9110 and 6585 give the HTTP codes, google/rpc/code.proto those of gRPC.
// FailedPrecondition says "do not repeat before the state is another", Aborted
// "repeat at a higher level".
var refusals = []struct {
	err error
	Refusal
}{
	// First, since of what is unknown nothing else is the last word.
	{ErrUnknown, Refusal{"OUTCOME_UNKNOWN", 504, 2, "The request may have been carried out."}},
	{ErrStale, Refusal{"STALE_FENCE", 412, 9, "A newer owner of the key was here."}},
	{ErrNoToken, Refusal{"MISSING_FENCE", 428, 3, "The request needs a fencing token."}},
	{ErrMalformed, Refusal{"MALFORMED_FENCE", 400, 3, "The fencing token is malformed."}},
	{ErrHeld, Refusal{"HELD", 409, 10, "Another is working on the key."}},
	{ErrLost, Refusal{"CLAIM_LOST", 409, 10, "The claim on the key was lost meanwhile."}},
}

// RefusalOf returns how the error is told; ok is false for one that is none of a
// gate's or claim's refusals: what that is only the server knows.
func RefusalOf(err error) (r Refusal, ok bool) {
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return known.Refusal, true
		}
	}
	return Refusal{}, false
}

// Err returns the error that the reason stands for, for clients; nil if it is no
// reason of RefusalOf.
func (r Refusal) Err() error {
	for _, known := range refusals {
		if known.Reason == r.Reason {
			return known.err
		}
	}
	return nil
}
