package acquire

import (
	"context"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
)

// predecessor returns the term of this client that the attempt can take the key over from, since it was released and
// its key is still there, or nil. The request of an attempt that wants more than the key is sent after its deletion.
func (a *Attempt) predecessor() (t *term.Term, over func(how protocol.Answer)) {
	if o := a.Call; a.Over != nil || o.HasOps() || o.Beside != nil || a.Mode.Keys().Record {
		return nil, nil
	}
	return a.ac.Parted(a.claimKey(), a.Epoch)
}

// succeed takes the key over from the term.
func (ac *Acquirer) succeed(ctx context.Context, a *Attempt, t *term.Term, over func(how protocol.Answer)) Result {
	how := protocol.AnswerUnsettled
	defer func() { over(how) }()
	a.supersedes = t
	a.Succeed(&t.Held)
	act := a.Drive(ctx, a, a.Step(protocol.Event{Kind: protocol.BeginTake}), nil)
	switch how = act.End; how {
	case protocol.AnswerHeld, protocol.AnswerBehind:
		return Result{Next: Retry} // when the key of the term is deleted
	}
	return ac.Conclude(ctx, a, &act)
}
