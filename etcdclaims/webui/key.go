package webui

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/explain"
)

// keyPage explains one key.
type keyPage struct {
	Now         time.Time
	Key         string
	Of          string // the key that has this one as a slot, or that is shared by its holder; or ""
	Info        etcdclaims.Info
	Began       time.Time // when the page saw the term begin; zero if it did not
	Renewal     *explain.Renewal
	Holders     []holderRow // of its slots, or who share it
	MoreHolders bool
	Note        string
	Line        []explain.Place
	Next        *explain.Place // the first in line that is alive; nil if it is not known
	More        int            // in line, beside those
	Record      *work.Record
	Risky       bool   // to begin the work again
	Error       string // of the work
	Result      string
	RecNote     string
	Terms       []termRow // newest first
	Observed    time.Time // since when this page sees all terms begin and end
	HasTimes    bool      // it saw one of Terms do so
	Older       int       // terms, beside those
	From        int64     // the first revision that etcd still has
	Timeline    timeline
	Refused     []refusalRow
	Unread      error // see explain.Key
	Fresh       freshness

	CanRelease, CanRetry, CanForget bool
}

const (
	mostWaiters = 100
	mostTerms   = 50
)

// explain reads a key.
func (h *Handler) explain(ctx context.Context, key string) (explain.Key, error) {
	r := explain.Reader{
		Claims:  h.claims,
		Works:   h.works,
		Sharers: etcdclaims.MaxSlots,
		Line:    mostWaiters,
		Terms:   mostTerms,
	}
	x, err := r.Key(ctx, key)
	x.Info.Expires = x.Info.Expires.Truncate(time.Second)
	for n := range x.Holders {
		x.Holders[n].Expires = time.Time{} // the latest possible one, which differs at each reading
	}
	return x, err
}

func (q *request) key() (any, error) {
	key := q.param("key")
	if key == "" || len(key) > etcdclaims.MaxKeyBytes {
		return nil, errInput{"the key is missing, or too long"}
	}
	b := q.useClaims(key)
	x, fresh := snapshotOf(q, keyTopic(key), 2*time.Second, func(ctx context.Context, h *Handler) (explain.Key, error) {
		return h.explain(ctx, key)
	})
	if errors.Is(fresh.Err, etcdclaims.ErrInvalidKey) {
		return nil, errInput{fresh.Err.Error()}
	}
	p := keyPage{
		Now: time.Now(), Key: key, Of: ofKey(key), Info: x.Info, Began: b.begun(key, x.Info.Fence), Renewal: x.Renewal, MoreHolders: x.Partial,
		Note: q.value(FieldNote, string(x.Info.Note)), Line: x.Line, Next: x.Next(), More: x.More, Fresh: fresh, From: x.History.From,
	}
	p.Holders, p.Unread = q.holderRows(x), x.Unread
	seen, since := b.lifetimes(key, x.History.Terms)
	terms := termRows(x.History.Terms, seen, since, p.Now)
	p.Observed = since
	p.Refused = q.refusedOf(key)
	p.Timeline = newTimeline(terms, p.Now)
	p.Older = x.History.Older
	for _, t := range slices.Backward(terms) {
		p.Terms = append(p.Terms, t)
		p.HasTimes = p.HasTimes || t.Seen != lifetime{}
	}
	if i := x.Info; i.Held && !i.Newer && i.Kind != explain.KindSlots { // each slot is released by itself
		p.CanRelease = q.can(Operation{Action: actionRelease, Key: key, Fence: x.Info.Fence})
	}
	p.addRecord(q, x.Record)
	return p, nil
}

// addRecord adds the record of the key's work, if there is one.
func (p *keyPage) addRecord(q *request, r *work.Record) {
	if r == nil {
		return
	}
	p.Record, p.Risky = r, explain.IsRisky(*r)
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

// holderRow is the holder of one slot, or one of the callers that share a key.
type holderRow struct {
	etcdclaims.Info
	Slot       int   // -1 for a shared claim
	Surplus    bool  // the key has fewer slots by now
	Carries    int64 // the fence that its writes carry
	Note       string
	CanRelease bool
}

// HasKind reports whether one of the holders has something to show in the column Kind.
func (p keyPage) HasKind() bool {
	return slices.ContainsFunc(p.Holders, func(r holderRow) bool { return kindOf(r.Info) != "" || r.Attempt > 0 })
}

func (q *request) holderRows(x explain.Key) (rows []holderRow) {
	for _, claim := range x.Holders {
		row := holderRow{
			Info: claim, Slot: explain.SlotOf(x.Info.Key, claim.Key), Carries: claim.Fence,
			Note: q.value(FieldNote, string(claim.Note)),
		}
		row.Surplus = row.Slot >= x.Info.Slots
		if x.Info.Kind == explain.KindShared {
			row.Slot, row.Carries = -1, x.Info.Fence
		}
		row.CanRelease = q.can(Operation{Action: actionRelease, Key: claim.Key, Fence: claim.Fence})
		rows = append(rows, row)
	}
	return rows
}
