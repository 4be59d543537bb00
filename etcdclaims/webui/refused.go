package webui

import (
	"context"
	"time"
)

// explain returns a refusal with the take-over before it.
func (b *board) explain(r refusal) refusalRow {
	row := refusalRow{refusal: r}
	if began := b.begun(r.Token.Key, r.Newest); !began.IsZero() && r.At.After(began) {
		i, _ := b.holder(r.Token.Key)
		row.After, row.Owner = r.At.Sub(began), i.Owner
	}
	return row
}

// refusalsPage lists refusals.
type refusalsPage struct {
	Refusals []refusalRow
	Total    int
	On       bool // Config.Refusals is set
}

type refusalRow struct {
	refusal
	// After is how long after the take-over was seen the stale token was refused, if the
	// holder that took over still holds the key. Zero: the take-over was not seen, because
	// no tab was open then, or was seen only after the refusal.
	After time.Duration
	Owner string // of the holder that took over
}

// mostOfKey is how many refusals the page of a key shows.
const mostOfKey = 5

// refusedOf returns the last refusals of a key, newest first.
func (q *request) refusedOf(key string) (rows []refusalRow) {
	if q.refused() == 0 {
		return nil
	}
	all, _ := q.h.cfg.Refusals.newest()
	for _, r := range all {
		if r.Token.Key == key && len(rows) < mostOfKey {
			rows = append(rows, q.h.board.explain(r))
		}
	}
	return rows
}

func (q *request) refusals() (any, error) {
	b := q.useClaims("")
	all, total := q.h.cfg.Refusals.newest()
	p := refusalsPage{Total: total, On: q.h.cfg.Refusals != nil}
	for _, r := range all {
		p.Refusals = append(p.Refusals, b.explain(r))
	}
	q.shows.claims = false
	q.refused()
	return p, nil
}

// refused returns how many tokens were refused.
func (q *request) refused() int {
	n, _ := snapshotOf(q, "refusals", time.Second, func(_ context.Context, h *Handler) (int, error) {
		_, total := h.cfg.Refusals.newest()
		return total, nil
	})
	return n
}
