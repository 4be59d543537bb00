package webui

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/doctor"
)

// keyPage explains one key.
type keyPage struct {
	Now         time.Time
	Key         string
	Of          string // the key that has this one as a slot, or that is shared by its holder; or ""
	Info        etcdclaims.Info
	Began       time.Time // when the page saw the term begin; zero if it did not
	Renewal     *renewal
	Holders     []holderRow // of its slots, or who share it
	MoreHolders bool
	Note        string
	Line        []place
	Next        *place // the first in line that is alive; nil if it is not known
	More        int    // in line, beside those
	Record      *work.Record
	Risky       bool   // to begin the work again
	Error       string // of the work
	Result      string
	RecNote     string
	Terms       []admin.Term // newest first
	Older       int          // terms, beside those
	From        int64        // the first revision that etcd still has
	Timeline    timeline
	Refused     []refusalRow
	Fresh       freshness

	CanRelease, CanRetry, CanForget bool
}

const (
	mostWaiters = 100
	mostTerms   = 50
	// mostAsked is how many leases of callers in line are asked for to find the first
	// that is alive.
	mostAsked = 20
)

// keyTopic is the snapshot of a key.
func keyTopic(key string) string { return "key " + key }

// explained is all that was read of a key.
type explained struct {
	info    etcdclaims.Info
	renewal *renewal
	holders holders
	line    []place
	more    int
	record  *work.Record
	history admin.KeyHistory
}

// renewal is when the holder renewed its lease for the last time, known to a second.
type renewal struct {
	At      time.Time
	Every   time.Duration // how often the holder renews
	Overdue bool          // the holder has missed a renewal
}

// place is a place in line.
type place struct {
	admin.Waiter
	Ghost bool // its lease is gone: no caller waits there
	Next  bool // the first that is alive
}

func (h *Handler) explain(ctx context.Context, key string) (x explained, err error) {
	claims := h.claims
	if x.info, err = claims.Lookup(ctx, key); err != nil {
		return x, err
	}
	if x.renewal, err = h.readRenewal(ctx, x.info); err != nil {
		return x, err
	}
	if x.holders, err = h.readHolders(ctx, x.info); err != nil {
		return x, err
	}
	if x.info.Waiting > 0 || !x.info.Held || isRecord(x.info.Kind) {
		line, err := admin.Line(ctx, claims, key)
		if err != nil {
			return x, err
		}
		x.more = max(len(line)-mostWaiters, 0)
		if x.line, err = h.places(ctx, line[:len(line)-x.more]); err != nil {
			return x, err
		}
	}
	record, ok, err := h.works.Record(ctx, key)
	switch {
	case err == nil && ok:
		x.record = &record
	case err != nil && ctx.Err() == nil && claims.Unreachable() == nil:
		x.record = &work.Record{Key: key, State: work.StateUnreadable, Error: err.Error()}
	case err != nil:
		return x, err
	}
	x.history, err = admin.History(ctx, claims, key, admin.Newest(mostTerms))
	return x, err
}

// readRenewal reads the last renewal of the holder's lease.
func (h *Handler) readRenewal(ctx context.Context, i etcdclaims.Info) (*renewal, error) {
	r, err := doctor.LastRenewal(ctx, h.claims, i)
	if err != nil || r == nil {
		return nil, err
	}
	return &renewal{At: r.At, Every: (r.TTL / 3).Round(time.Second), Overdue: r.Overdue}, nil
}

// places finds the first in line that is alive, and the ghosts before it.
func (h *Handler) places(ctx context.Context, line []admin.Waiter) ([]place, error) {
	places := make([]place, len(line))
	gone := map[int64]bool{0: true} // by lease
	found := false
	for i, waiter := range line {
		places[i].Waiter = waiter
		if found {
			continue
		}
		isGone, known := gone[int64(waiter.Lease)]
		if !known && len(gone) <= mostAsked {
			lease, err := doctor.LiveLease(ctx, h.claims.Etcd(), waiter.Lease)
			if err != nil {
				return nil, err
			}
			isGone, known = lease == nil, true
			gone[int64(waiter.Lease)] = isGone
		}
		places[i].Ghost, places[i].Next = isGone, known && !isGone
		found = places[i].Next || !known // the next is not known if too many are ghosts
	}
	return places, nil
}

func nextOf(line []place) *place {
	if i := slices.IndexFunc(line, func(p place) bool { return p.Next }); i >= 0 {
		return &line[i]
	}
	return nil
}

func (q *request) key() (any, error) {
	key := q.param("key")
	if key == "" || len(key) > etcdclaims.MaxKeyBytes {
		return nil, errInput{"the key is missing, or too long"}
	}
	b := q.useClaims(key)
	x, fresh := snapshotOf(q, keyTopic(key), 2*time.Second, func(ctx context.Context, h *Handler) (explained, error) {
		x, err := h.explain(ctx, key)
		x.info.Expires = x.info.Expires.Truncate(time.Second)
		return x, err
	})
	if errors.Is(fresh.Err, etcdclaims.ErrInvalidKey) {
		return nil, errInput{fresh.Err.Error()}
	}
	p := keyPage{
		Now: time.Now(), Key: key, Of: ofKey(key), Info: x.info, Began: b.begun(key, x.info.Fence), Renewal: x.renewal, MoreHolders: x.holders.more,
		Note: q.value(FieldNote, string(x.info.Note)), Line: x.line, Next: nextOf(x.line), More: x.more, Fresh: fresh, From: x.history.From,
	}
	p.Holders = q.holderRows(x)
	terms := x.history.Terms
	p.Refused = q.refusedOf(key)
	p.Timeline = newTimeline(terms, x.history.Revision)
	p.Older = x.history.Older
	for _, t := range slices.Backward(terms) {
		p.Terms = append(p.Terms, t)
	}
	if x.info.Held && x.info.Kind != kindSlots { // each slot is released by itself
		p.CanRelease = q.can(Operation{Action: actionRelease, Key: key, Fence: x.info.Fence})
	}
	p.addRecord(q, x.record)
	return p, nil
}

// addRecord adds the record of the key's work, if there is one.
func (p *keyPage) addRecord(q *request, r *work.Record) {
	if r == nil {
		return
	}
	p.Record, p.Risky = r, isRisky(*r)
	p.Error, p.Result, p.RecNote = q.value(FieldError, r.Error), q.value(FieldResult, r.Result), q.value(FieldNote, r.Note)
	if r.Stack != "" {
		p.Error += "\n" + q.value(FieldError, r.Stack)
	}
	switch r.State {
	case work.StateFailed, work.StateDead, work.StateOrphaned:
		p.CanRetry = q.can(Operation{Action: actionRetryWork, Key: p.Key})
	}
	if r.State != work.StateClaimed {
		p.CanForget = q.can(Operation{Action: actionForgetWork, Key: p.Key})
	}
}
