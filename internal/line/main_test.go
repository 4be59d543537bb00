package line

import (
	"errors"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/claimerr"
	"go.uber.org/goleak"
)

// loss is the error of a claim, or an attempt, that was lost.
type loss struct {
	claimerr.Loss
	fence int64
}

func (e *loss) Error() string        { return "lost: " + e.Reason.String() }
func (e *loss) Unwrap() error        { return e.Err }
func (e *loss) Is(target error) bool { return errors.Is(claimerr.ErrLost, target) } //nolint:staticcheck // it matches what ErrLost does

func TestMain(m *testing.M) {
	claimerr.Provide(claimerr.Provider{
		Of: func(token fencing.Token, l claimerr.Loss) error { return &loss{l, token.Fence} },
		Fence: func(err error) (int64, bool) {
			var e *loss
			if !errors.As(err, &e) {
				return 0, false
			}
			return e.fence, true
		},
	})
	goleak.VerifyTestMain(m)
}
