package doctor

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Note    Level = "note" // worth a look, and normal in some systems
	Warning Level = "warning"
	Error   Level = "error"
)

// Finding is the result of one check.
type Finding struct {
	Check    string   `json:"check"`
	Level    Level    `json:"level"`
	Detail   string   `json:"detail"`
	Remedy   string   `json:"remedy,omitempty"`   // empty if the level is OK
	Commands []string `json:"commands,omitempty"` // of the remedy, in their order; each is one line
	// After names the check whose finding must be mended first, because it can be the cause
	// of this one. Empty means that the finding stands alone.
	After string `json:"after,omitempty"`

	trouble trouble
}

// trouble is why a check could not be made.
type trouble int

const (
	untroubled trouble = iota
	unanswered         // by etcd, or it has no leader
	anonymous          // etcd requires a user, and the client names none
	denied             // for want of permission
	full               // etcd is out of space
	mistimed           // a clock can be wrong
)

// troubleOf returns what an error shows.
func troubleOf(err error) trouble {
	switch {
	case err == nil:
		return untroubled
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return anonymous
	case explain.IsDenied(err):
		return denied
	case errors.Is(err, rpctypes.ErrNoSpace):
		return full
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, etcdclaims.ErrUnreachable),
		errors.Is(err, etcdclaims.ErrUnknown), txn.MayPass(err):
		return unanswered
	}
	return untroubled
}
