package etcdclaims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// YieldAfter ends the claim's context, with a cause that matches ErrYield, when a caller with
// a greater preference has been in line for d; see [Prefer]. The claim stays held until it is
// released, and the release hands it to that caller. So [Client.Run] stops its handler, as at the
// end of the caller's context, and releases the key when the handler has returned.
// middleware.Singleton then joins the line again.
//
// This process counts d from when it first sees the caller in line while it holds the key.
// So each term lasts d at least. That bounds how often a preferred process that crashes again and
// again takes the key. A caller whose lease was not renewed lately, as etcd reports, does not
// count: its process may be dead. Zero means at once.
//
// If the caller has left before the release, the key goes to the most preferred one in line, or
// is free if no caller waits.
//
// The holder watches the line, and asks for new callers after each renewal, which is every TTL/3.
// It costs one watch, three requests in each TTL, and two for each caller that has waited long
// enough. YieldAfter excludes the same options as Prefer. A passthrough client ignores the
// option.
func YieldAfter(d time.Duration) AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.prefers, o.yieldAfter = true, &d }}
}

// rivals are the callers in line that are preferred to the holder of the key. One goroutine
// uses them, for as long as the term's context lasts.
type rivals struct {
	t      *term
	line   string            // the prefix of their places
	places map[string]*rival // by the key of the place
	rev    int64             // through which the line was read
}

// rival is one of them.
type rival struct {
	place
	preference int
	due        time.Time // when it has waited for long enough
}

// watchPreferred ends the term's context in the background when a more preferred caller has
// waited for long enough.
func (t *term) watchPreferred() {
	c := t.s.c
	if t.yieldAfter == nil {
		return
	}
	r := &rivals{t: t, line: c.store.layout.waiting(t.key), places: make(map[string]*rival)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.spawn(func() { r.run(t.context()) })
	}
}

// run looks for rivals until the context ends, by itself or for the sake of one. Each watch
// begins after a read of the line.
func (r *rivals) run(ctx context.Context) {
	for try := 0; ctx.Err() == nil; try++ {
		if _, err := r.read(ctx, 0); err != nil {
			retry.Pause(ctx, try)
			continue
		}
		try = 0
		news, stop, _ := r.t.s.c.beginWatch(ctx, r.line, clientv3.WithPrefix(), clientv3.WithRev(r.rev+1), clientv3.WithFilterDelete())
		r.follow(ctx, news)
		stop()
	}
}

// follow handles the events of the line until the watch must begin anew: it has ended, or it did
// not deliver a place that the read after a renewal has found.
func (r *rivals) follow(ctx context.Context, news clientv3.WatchChan) {
	renewed := r.t.s.nextRenewal()
	due := time.NewTimer(0)
	defer due.Stop()
	for try := 0; ; {
		select {
		case <-ctx.Done():
			return
		case resp, ok := <-news:
			if !ok || resp.Err() != nil {
				news = nil // until the next renewal: the reason may last
				continue
			}
			for _, ev := range resp.Events {
				r.see(ev.Kv)
			}
		case <-renewed:
			if news == nil {
				return
			}
			renewed = r.t.s.nextRenewal()
			if missed, err := r.read(ctx, r.rev+1); err == nil && missed {
				return
			}
		case <-due.C:
			if r.wait() > 0 {
				break
			}
			// Only callers that are in line now count.
			if _, err := r.read(ctx, 0); err != nil {
				retry.Pause(ctx, try)
				try++
			} else if try = 0; r.yield(ctx) {
				return
			}
		}
		due.Reset(max(r.wait(), 0))
	}
}

// read reads the places that were taken at a revision or later, or all. It reports whether there are
// rivals that were not seen before.
func (r *rivals) read(ctx context.Context, from int64) (found bool, err error) {
	resp, err := r.t.s.c.read(ctx, clientv3.OpGet(r.line, clientv3.WithPrefix(), clientv3.WithMinCreateRev(from)))
	if err != nil {
		return false, err
	}
	there := make(map[string]bool)
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		there[string(kv.Key)] = true
		found = r.see(kv) || found
	}
	if from == 0 {
		maps.DeleteFunc(r.places, func(place string, _ *rival) bool { return !there[place] })
	}
	r.rev = resp.Header.Revision
	return found, nil
}

// see adds the caller of a place to the rivals if it is one. It reports whether it was not seen
// before.
func (r *rivals) see(kv *mvccpb.KeyValue) bool {
	h, err := decodeHolder(kv.Value)
	if err != nil || h.Epoch != r.t.fence>>epochShift {
		return false // of an epoch before: no release can hand it the key
	}
	if r.places[string(kv.Key)] != nil || h.Preference <= r.t.preference {
		return false
	}
	r.places[string(kv.Key)] = &rival{placeOf(kv, r.line), h.Preference, clock.Mono().Add(*r.t.yieldAfter)}
	return true
}

// noRival is how long a holder without rivals sleeps between two looks at its own list.
const noRival = time.Hour

// wait returns how long the first of the rivals still has to wait.
func (r *rivals) wait() time.Duration {
	least := noRival
	for _, one := range r.places {
		least = min(least, time.Until(one.due))
	}
	return least
}

// lookAgain is how long a rival waits for the next look if its lease was not renewed lately, or the
// claim is being given up.
const lookAgain = 2 * time.Second

// yield ends the term's context for the sake of the most preferred rival that has waited for long
// enough and lives.
func (r *rivals) yield(ctx context.Context) bool {
	var due []*rival
	for _, one := range r.places {
		if time.Until(one.due) <= 0 {
			due = append(due, one)
		}
	}
	slices.SortFunc(due, func(a, b *rival) int {
		return cmp.Or(cmp.Compare(b.preference, a.preference), cmp.Compare(a.Rev, b.Rev))
	})
	leaving := false // the claim is being given up, which may come to nothing
	for _, one := range due {
		if !leaving && r.lives(ctx, one) {
			if r.t.yieldContext(one) {
				return true
			}
			leaving = true
		}
		one.due = clock.Mono().Add(lookAgain)
	}
	return false
}

// lives reports whether a rival's lease was renewed lately, as each client does every third of it.
// The place of a dead rival exists until its lease has ended.
func (r *rivals) lives(ctx context.Context, one *rival) bool {
	ttl, err := r.t.s.c.timeToLive(ctx, clientv3.LeaseID(one.Lease))
	if err != nil {
		return !errors.Is(err, rpctypes.ErrLeaseNotFound) // the hand-over shows whether it is there
	}
	return ttl.TTL > 0 && ttl.TTL >= ttl.GrantedTTL*2/3-2 // etcd reports full seconds
}

// yieldContext ends the context of a term that is still held, for a more preferred caller. It
// reports whether the term is.
func (t *term) yieldContext(to *rival) (held bool) {
	t.s.mu.Lock()
	held = t.phase == phaseHeld && t.stopCause == nil
	if held {
		t.successor = &to.place
		t.stopLocked(fmt.Errorf("claim on %q (preference %d): %w (preference %d)", t.key, t.preference, ErrYield, to.preference))
	}
	t.s.mu.Unlock()
	if held {
		t.s.c.log.Info("more preferred caller in line", t.fields(zap.Int("preference", t.preference), zap.Int("theirs", to.preference))...)
	}
	return held
}

// yieldsTo returns the line that begins with the caller for whose sake the term's context has
// ended, if it has.
func (t *term) yieldsTo() (line, bool) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.successor == nil {
		return line{}, false
	}
	return line{known: true, next: []place{*t.successor}, more: true}, true
}

// nextRenewal returns a channel that is closed when the session is next renewed and verified.
func (s *session) nextRenewal() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}
