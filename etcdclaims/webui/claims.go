package webui

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/explain"
)

// claimsPage lists claims.
type claimsPage struct {
	selection
	Kinds         []string
	Claims        []etcdclaims.Info
	Total, Before int
	Prev, Next    string
	Reading       bool
	Err           error
}

func (q *request) claims() (any, error) {
	p := claimsPage{
		selection: selection{Prefix: q.param("prefix"), Kind: q.param("kind"), Text: q.param("text")},
		Kinds:     []string{"zombie", "resting", "lock", explain.KindSlots, explain.KindShared, unleased},
	}
	b := q.useClaims(p.Prefix)
	p.Claims, p.Total, p.Before, p.Prev, p.Next = b.page(p.selection, q.param("from"), pageSize)
	s := b.summary()
	p.Reading, p.Err = s.Reading, s.Err
	return p, nil
}

// linesPage lists the keys that callers wait for.
type linesPage struct {
	Lines []lineRow
	Pager pager
	More  bool
	Fresh freshness
}

type lineRow struct {
	admin.LineInfo
	Holder etcdclaims.Info
}

// mostRows is how many entries are read of lists that are not kept in memory.
const mostRows = 1000

func (q *request) lines() (any, error) {
	b := q.useClaims("")
	all, fresh := q.allLines()
	p := linesPage{Fresh: fresh, More: len(all) == mostRows}
	all, p.Pager = paged(q, all)
	for _, l := range all {
		holder, _ := b.holder(l.Key)
		p.Lines = append(p.Lines, lineRow{l, holder})
	}
	q.shows.claims = false // what changes most does not change the lines
	return p, nil
}

// allLines returns the lines of all held keys.
func (q *request) allLines() ([]admin.LineInfo, freshness) {
	return snapshotOf(q, "lines", 2*time.Second, func(ctx context.Context, h *Handler) ([]admin.LineInfo, error) {
		return first(mostRows, admin.Lines(ctx, h.claims, h.board.allKeys()))
	})
}
