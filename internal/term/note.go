package term

import (
	"context"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// note is what is known of the note of a claim.
type note struct {
	seq  int64
	rev  int64 // ModRevision as far as known, 0 if there is none
	sent bool  // one was sent
}

// SetNote stores a note. It lets no late request overwrite a younger note: each expects the note
// that it follows.
func (t *Term) SetNote(ctx context.Context, b []byte) error {
	ctx, cancel := t.s.Within(ctx)
	defer cancel()
	t.mu.Lock()
	if t.life.phase != phaseHeld {
		t.mu.Unlock()
		if err := t.Err(); err != nil {
			return err
		}
		return claimerr.ErrReleased // it is being given up
	}
	t.note.sent = true
	t.note.seq++
	seq, rev := t.note.seq, t.note.rev
	t.mu.Unlock()
	value := protocol.NewNote(seq, b)
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		step := protocol.WriteNote{Held: &t.Held, Value: value, After: rev}
		resp, err := t.terms.Store.Do(ctx, step.Build())
		switch {
		case err == nil:
			noted := step.Judge((*pb.TxnResponse)(resp))
			if !t.Found(noted.State) {
				return t.loss()
			}
			rev = noted.Rev
			t.mu.Lock()
			t.note.rev = max(t.note.rev, rev)
			overtaken := t.note.seq > seq
			t.mu.Unlock()
			if noted.Done || overtaken {
				return nil // or a younger note is there, or on its way
			}
			continue
		case t.s.Gone(ctx, err, false):
			return t.loss()
		case isUnknown(err) || txn.IsTransient(err):
			sent = sent || isUnknown(err)
			if retry.PauseUnless(ctx, t.done, try) {
				continue
			}
			fallthrough
		default:
			return errtext.Call("note", t.Token().Key, txn.AfterSent(sent, err))
		}
	}
}
