package acquire

import (
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
)

// held is the error of a call that is excluded.
type held struct {
	Holder
	claim  string
	copied bool
}

func (e *held) Error() string {
	switch {
	case e.Own == nil && e.claim == "":
		return fmt.Sprintf("%s: %d in line", e.Key, e.Waiting)
	case e.Shared > 0:
		return fmt.Sprintf("%s: shared by %d", e.Key, e.Shared)
	}
	return fmt.Sprintf("%s: held by %s", e.Key, e.claim)
}

func (e *held) Unwrap() error { return claimerr.ErrHeld }

// exclusions makes the errors of excluded calls.
type exclusions struct{ w *world }

func (exclusions) Held(h Holder) error {
	e := &held{Holder: h}
	if h.Own != nil {
		value, _ := protocol.DecodeHolder(h.Own.Value)
		e.claim = value.Claim
	}
	return e
}

func (exclusions) HeldBy(t *term.Term) error { return &held{Holder: Holder{Key: t.Key}, claim: t.ID} }

func (exclusions) ClaimOf(err error) string {
	var e *held
	if !errors.As(err, &e) {
		return ""
	}
	return e.claim
}

func (exclusions) Copy(err error) error {
	var e *held
	errors.As(err, &e)
	own := *e
	own.copied = true
	return &own
}

func (exclusions) Waited(_ Holder, cause error) error                     { return cause }
func (exclusions) WaitedBehind(_ string, _ *term.Term, cause error) error { return cause }
func (exclusions) Explain(key string, err error) error {
	return fmt.Errorf("acquire %s: %w", key, err)
}

// outcome names how a call has ended.
func outcome(err error) string {
	var e *held
	switch {
	case err == nil:
		return "won"
	case errors.Is(err, txn.ErrUnknown):
		return "unknown"
	case errors.As(err, &e):
		return e.Error()
	case errors.Is(err, claimerr.ErrClosed):
		return "closed"
	case errors.Is(err, claimerr.ErrRefused):
		return "unmet"
	case errors.Is(err, claimerr.ErrLost):
		return "lost"
	case errors.Is(err, txn.ErrPermissionDenied):
		return "denied"
	}
	return err.Error()
}
