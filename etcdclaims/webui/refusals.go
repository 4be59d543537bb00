package webui

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

// mostRefusals is how many refusals are kept.
const mostRefusals = 200

// Refusals remembers the last 200 tokens that gates of this process have refused. The
// zero value is ready to use. It is safe for concurrent use.
type Refusals struct {
	mu    sync.Mutex
	last  []refusal // oldest first
	total int
}

// refusal is a token that a gate has refused.
type refusal struct {
	At     time.Time
	Gate   string
	Token  fencing.Token
	Newest int64  // greatest fence that the gate has admitted; 0 if it is not known
	Reason string // see fencing.Refusal
	Error  string
}

// Gate returns a gate that admits what g admits, and notes what g refuses under a name
// for people. Errors that are no refusals, such as an unreachable database, are not
// noted.
func (r *Refusals) Gate(name string, g fencing.Gate) fencing.Gate {
	return fencing.GateFunc(func(ctx context.Context, t fencing.Token) error {
		err := g.Admit(ctx, t)
		if err != nil {
			r.note(name, t, err)
		}
		return err
	})
}

func (r *Refusals) note(gate string, t fencing.Token, err error) {
	why, ok := fencing.RefusalOf(err)
	if !ok {
		return
	}
	n := refusal{At: time.Now(), Gate: gate, Token: t, Reason: why.Reason, Error: cut(err.Error(), 1<<10)}
	n.Token.Key = cut(n.Token.Key, etcdclaims.MaxKeyBytes) // a malformed token can be of any length
	var stale *fencing.StaleError
	if errors.As(err, &stale) {
		n.Newest = stale.Newest
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	r.last = append(r.last, n)
	if over := len(r.last) - mostRefusals; over > 0 {
		r.last = slices.Delete(r.last, 0, over)
	}
}

// newest returns the refusals, newest first, and how many there ever were.
func (r *Refusals) newest() ([]refusal, int) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.last)
	slices.Reverse(all)
	return all, r.total
}
