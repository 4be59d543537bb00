package etcdclaims

import (
	"bytes"
	"errors"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/term"
)

// exclusions makes the errors of calls that others exclude, for package acquire.
type exclusions struct{ c *Client }

// info describes what excludes a call.
func (e exclusions) info(h acquire.Holder) Info {
	i := e.c.info(h.Key, h.Own, nil, h.Waiting)
	if h.Slots > 0 {
		i.Slots = h.Slots
	}
	i.Shared = h.Shared
	return i
}

// held returns the error for a key that has the holder, or the line, of i.
func (c *Client) held(i Info) *HeldError { return &HeldError{Info: i, own: c.isOwn(i)} }

// isOwn reports whether the holder is this client.
func (c *Client) isOwn(i Info) bool { return i.Instance != "" && i.Instance == c.Instance() }

// Held returns a *HeldError.
func (e exclusions) Held(h acquire.Holder) error { return e.c.held(e.info(h)) }

// HeldBy returns a *HeldError with a claim of the client.
func (e exclusions) HeldBy(t *term.Term) error { return e.c.held(e.c.infoOf(t)) }

// ClaimOf returns the id of the holder.
func (e exclusions) ClaimOf(refusal error) string {
	var held *HeldError
	if !errors.As(refusal, &held) {
		return ""
	}
	return held.Info.Claim
}

// Copy returns the same error with a note of its own.
func (e exclusions) Copy(refusal error) error {
	var held *HeldError
	if !errors.As(refusal, &held) {
		return refusal
	}
	own := *held
	own.Info.Note = bytes.Clone(held.Info.Note)
	return &own
}

// Waited returns a *WaitError.
func (e exclusions) Waited(h acquire.Holder, cause error) error {
	var i Info
	if h.Own != nil {
		i = e.info(h)
	}
	return &WaitError{Key: h.Key, Info: i, Err: cause, own: e.c.isOwn(i)}
}

// WaitedBehind returns a *WaitError with a claim of the client, or none.
func (e exclusions) WaitedBehind(key string, t *term.Term, cause error) error {
	var i Info
	if t != nil {
		i = e.c.infoOf(t)
	}
	return &WaitError{Key: key, Info: i, Err: cause, own: e.c.isOwn(i)}
}

// Explain names the call and the key of an error.
func (e exclusions) Explain(key string, err error) error { return e.c.acquireError(key, err) }
