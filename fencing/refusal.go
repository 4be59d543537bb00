package fencing

import "errors"

// Refusal describes how a server reports an error to the sender of a request. It is the
// same in every language, so that clients can distinguish the cases.
type Refusal struct {
	// Reason is the code that identifies the case, such as STALE_FENCE. It is the
	// last part of the "type" of an RFC 9457 problem, and the "reason" of a
	// google.rpc.ErrorInfo whose "domain" is that of Domain.
	Reason string
	// Status is the HTTP status code.
	Status int
	// Code is the numeric gRPC status code.
	Code uint32
	// Title is a sentence for people.
	Title string
}

// problemTypes is the prefix of every problem type: a document with an anchor for each
// reason.
const problemTypes = "https://github.com/etcdclaims/claims/blob/main/docs/gates.md#"

// Type returns the "type" of the RFC 9457 problem: the URL of its explanation in
// docs/gates.md, which ends in the reason.
func (r Refusal) Type() string { return problemTypes + r.Reason }

// Domain returns the "domain" of the google.rpc.ErrorInfo. It is the same for every refusal.
func (Refusal) Domain() string { return "etcdclaims" }

// RFC 9110 and RFC 6585 define the HTTP codes, google/rpc/code.proto the gRPC
// codes. FailedPrecondition means "do not retry until the state changes", Aborted
// means "retry at a higher level".
var refusals = []struct {
	err error
	Refusal
}{
	// ErrUnknown comes first: an error that also matches another entry is still unknown.
	{ErrUnknown, Refusal{"OUTCOME_UNKNOWN", 504, 2, "The request may have been carried out."}},
	{ErrStale, Refusal{"STALE_FENCE", 412, 9, "A newer owner of the key was here."}},
	{ErrNoToken, Refusal{"MISSING_FENCE", 428, 3, "The request needs a fencing token."}},
	{ErrMalformed, Refusal{"MALFORMED_FENCE", 400, 3, "The fencing token is malformed."}},
	{ErrHeld, Refusal{"HELD", 409, 10, "Another is working on the key."}},
	{ErrLost, Refusal{"CLAIM_LOST", 409, 10, "The claim on the key was lost meanwhile."}},
}

// RefusalOf returns the refusal for an error of a gate or a claim. ok is false
// for any other error: only the server knows how to report that.
func RefusalOf(err error) (r Refusal, ok bool) {
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return known.Refusal, true
		}
	}
	return Refusal{}, false
}

// Err returns the error of the reason, for use in clients. It
// returns nil if RefusalOf returns no refusal with that reason.
func (r Refusal) Err() error {
	for _, known := range refusals {
		if known.Reason == r.Reason {
			return known.err
		}
	}
	return nil
}
