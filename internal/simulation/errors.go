package simulation

import (
	"context"
	"errors"
	"slices"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// class is a kind of error: those that are one of some, or have one of some codes, and are none of others.
type class struct {
	name  string
	are   []error
	codes []codes.Code
	not   []string // of these classes
	cause bool     // it says nothing of what became of the claim, and counts where nothing else does
}

// classes of errors. What is unknown names its cause, too, which is of the
// class of the cause where it stands alone.
var classes = []class{
	{name: "unknown", are: []error{etcdclaims.ErrUnknown}},
	{name: "lost", are: []error{etcdclaims.ErrLost, etcdclaims.ErrReleased}, not: []string{"unknown"}},
	{name: "refused", are: []error{etcdclaims.ErrHeld, etcdclaims.ErrRefused, work.ErrDone, work.ErrDead, work.ErrBackoff}},
	{name: "queue", cause: true, are: []error{queue.ErrFull, queue.ErrNotFound, queue.ErrTaken, queue.ErrUnchanged, queue.ErrDead}},
	{name: "rewound", cause: true, are: []error{etcdclaims.ErrRewound}},
	{
		name: "config", cause: true,
		are: []error{etcdclaims.ErrInvalidKey, etcdclaims.ErrSlots, etcdclaims.ErrTooLarge, etcdclaims.ErrPassthrough},
	},
	{name: "no space", cause: true, are: []error{rpctypes.ErrNoSpace}},
	{
		name: "auth", cause: true, codes: []codes.Code{codes.PermissionDenied, codes.Unauthenticated},
		are: []error{rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken, rpctypes.ErrUserEmpty},
	},
	{
		name: "passing", cause: true, not: []string{"rewound", "no space", "auth"},
		codes: []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Aborted, codes.Unknown},
		are: []error{
			context.Canceled, context.DeadlineExceeded, etcdclaims.ErrClosed,
			rpctypes.ErrLeaseNotFound,   // of a session that was revoked as it was opened
			rpctypes.ErrAuthOldRevision, // of a token that was issued before authentication was changed
		},
	},
}

// class checks that an error is of one class.
func (p *process) class(what string, err error) {
	if err == nil || p.dead.Load() {
		return
	}
	var found []string
	answered := false
	for _, c := range classes {
		if c.cause && answered || slices.ContainsFunc(c.not, func(o string) bool { return slices.Contains(found, o) }) {
			continue
		}
		if isAny(err, c.are...) || slices.Contains(c.codes, code(err)) {
			found = append(found, c.name)
			answered = answered || !c.cause
		}
	}
	p.w.count("error: " + what)
	p.w.faultIf(len(found) != 1, "%s: the error of %s is of the classes %q, not of one: %v", p.name, what, found, err)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}

func code(err error) codes.Code {
	var ee rpctypes.EtcdError
	if errors.As(err, &ee) {
		return ee.Code()
	}
	if st, ok := status.FromError(err); ok {
		return st.Code()
	}
	return codes.OK
}
