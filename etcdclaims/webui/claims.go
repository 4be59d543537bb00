package webui

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// claimsPage lists claims.
type claimsPage struct {
	Prefix, Kind  string
	Kinds         []string
	Claims        []etcdclaims.Info
	Total, Before int
	Prev, Next    string
	Reading       bool
	Err           error
}

func (q *request) claims() (any, error) {
	p := claimsPage{Prefix: q.param("prefix"), Kind: q.param("kind"), Kinds: []string{"zombie", "resting", "lock", unleased}}
	b := q.useClaims(p.Prefix)
	p.Claims, p.Total, p.Before, p.Prev, p.Next = b.page(p.Prefix, p.Kind, q.param("from"), pageSize)
	s := b.summary()
	p.Reading, p.Err = s.Reading, s.Err
	return p, nil
}

// linesPage lists the keys that callers wait for.
type linesPage struct {
	Lines []lineRow
	More  bool
	Fresh Fresh
}

type lineRow struct {
	etcdclaims.LineInfo
	Holder etcdclaims.Info
}

// mostRows is how many entries are read of lists that are not kept in memory.
const mostRows = 1000

func (q *request) lines() (any, error) {
	b := q.useClaims("")
	all, fresh := q.allLines()
	p := linesPage{Fresh: fresh, More: len(all) == mostRows}
	for _, l := range all {
		holder, _ := b.holder(l.Key)
		p.Lines = append(p.Lines, lineRow{l, holder})
	}
	q.shows.claims = false // what changes most does not change the lines
	return p, nil
}

// allLines returns the lines of all held keys.
func (q *request) allLines() ([]etcdclaims.LineInfo, Fresh) {
	return snapshotOf(q, "lines", 2*time.Second, func(ctx context.Context, h *Handler) ([]etcdclaims.LineInfo, error) {
		return first(mostRows, h.claims.Lines(ctx, h.board.allKeys()))
	})
}

// keyPage explains one key.
type keyPage struct {
	Key      string
	Info     etcdclaims.Info
	Note     string
	Line     []etcdclaims.Waiter
	More     int // in line, beside those
	Record   *etcdclaims.Record
	Error    string // of the work
	Result   string
	RecNote  string
	Terms    []etcdclaims.Term // newest first
	Older    int               // terms, beside those
	From     int64             // the first revision that etcd still has
	Timeline timeline
	Refused  []refusalRow
	Fresh    Fresh

	CanRelease, CanRetry, CanForget bool
}

const (
	mostWaiters = 100
	mostTerms   = 50
)

// keyTopic is the snapshot of a key.
func keyTopic(key string) string { return "key " + key }

// explained is all that was read of a key.
type explained struct {
	info    etcdclaims.Info
	line    []etcdclaims.Waiter
	more    int
	record  *etcdclaims.Record
	history etcdclaims.History
}

func (h *Handler) explain(ctx context.Context, key string) (x explained, err error) {
	claims := h.claims
	if x.info, err = claims.Lookup(ctx, key); err != nil {
		return x, err
	}
	if x.info.Waiting > 0 || !x.info.Held {
		if x.line, err = claims.Line(ctx, key); err != nil {
			return x, err
		}
		if x.more = len(x.line) - mostWaiters; x.more > 0 {
			x.line = x.line[:mostWaiters]
		}
	}
	record, ok, err := claims.Record(ctx, key)
	switch {
	case err == nil && ok:
		x.record = &record
	case err != nil && ctx.Err() == nil && claims.Unreachable() == nil:
		x.record = &etcdclaims.Record{Key: key, State: etcdclaims.StateUnreadable, Error: err.Error()}
	case err != nil:
		return x, err
	}
	x.history, err = claims.History(ctx, key)
	return x, err
}

func (q *request) key() (any, error) {
	key := q.param("key")
	if key == "" || len(key) > etcdclaims.MaxKeyBytes {
		return nil, errInput{"the key is missing, or too long"}
	}
	q.useClaims(key)
	x, fresh := snapshotOf(q, keyTopic(key), 2*time.Second, func(ctx context.Context, h *Handler) (explained, error) {
		x, err := h.explain(ctx, key)
		x.info.Expires = x.info.Expires.Truncate(time.Second)
		return x, err
	})
	if errors.Is(fresh.Err, etcdclaims.ErrInvalidKey) {
		return nil, errInput{fresh.Err.Error()}
	}
	p := keyPage{Key: key, Info: x.info, Note: q.value(FieldNote, string(x.info.Note)), Line: x.line, More: max(x.more, 0), Fresh: fresh, From: x.history.From}
	terms := x.history.Terms
	p.Refused = q.refusedOf(key)
	p.Timeline = newTimeline(terms, x.history.Revision)
	p.Older = max(0, len(terms)-mostTerms)
	for i := len(terms) - 1; i >= p.Older; i-- {
		p.Terms = append(p.Terms, terms[i])
	}
	if x.info.Held {
		p.CanRelease = q.can(Operation{Action: ActionRelease, Key: key, Fence: x.info.Fence})
	}
	if r := x.record; r != nil {
		p.Record = r
		p.Error, p.Result, p.RecNote = q.value(FieldError, r.Error), q.value(FieldResult, r.Result), q.value(FieldNote, r.Note)
		if r.Stack != "" {
			p.Error += "\n" + q.value(FieldError, r.Stack)
		}
		switch r.State {
		case etcdclaims.StateFailed, etcdclaims.StateDead, etcdclaims.StateOrphaned:
			p.CanRetry = q.can(Operation{Action: ActionRetryWork, Key: key})
		}
		if r.State != etcdclaims.StateClaimed {
			p.CanForget = q.can(Operation{Action: ActionForgetWork, Key: key})
		}
	}
	return p, nil
}
