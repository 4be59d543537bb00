package line

import (
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
)

// exclusions makes the errors of excluded calls.
type exclusions struct{}

func claimOf(h acquire.Holder) string {
	if h.Own == nil {
		return ""
	}
	value, _ := protocol.DecodeHolder(h.Own.Value)
	return value.Claim
}

func (exclusions) Held(h acquire.Holder) error {
	return fmt.Errorf("%w: %s", claimerr.ErrHeld, claimOf(h))
}

func (exclusions) HeldBy(t *term.Term) error       { return fmt.Errorf("%w: %s", claimerr.ErrHeld, t.ID) }
func (exclusions) ClaimOf(error) string            { return "" }
func (exclusions) Copy(err error) error            { return err }
func (exclusions) Explain(_ string, e error) error { return e }

func (exclusions) Waited(h acquire.Holder, cause error) error {
	return fmt.Errorf("waited for %s: %w", claimOf(h), cause)
}

func (exclusions) WaitedBehind(_ string, t *term.Term, cause error) error {
	return fmt.Errorf("waited behind %v: %w", t != nil, cause)
}

// outcome names how a call has ended.
func outcome(err error) string {
	switch {
	case err == nil:
		return "won"
	case errors.Is(err, txn.ErrUnknown):
		return "unknown"
	case errors.Is(err, claimerr.ErrLost):
		return "lost"
	case errors.Is(err, claimerr.ErrRefused):
		return "unmet"
	}
	return err.Error()
}
