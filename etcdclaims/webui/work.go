package webui

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/work"
)

// mostScanned is how many records of work are read to find those of one state.
const mostScanned = 5000

// workPage lists records of work.
type workPage struct {
	Prefix  string
	State   work.State
	States  []work.State
	Records []workRow
	Pager   pager
	Partial bool // there are more than were read
	Fresh   freshness
}

type workRow struct {
	work.Record
	Error string
}

// workStates are those to choose from.
var workStates = []work.State{
	work.StateClaimed, work.StateOrphaned, work.StateFailed, work.StateDead,
	work.StateFree, work.StateDone, work.StateUnreadable,
}

// scanned is the result of a read of the records of work.
type scanned struct {
	records []work.Record
	partial bool
}

func (q *request) work() (any, error) {
	p := workPage{Prefix: q.param("prefix"), State: work.State(q.param("state")), States: workStates}
	if p.State != "" && !slices.Contains(workStates, p.State) {
		return nil, errInput{fmt.Sprintf("there is no state %q", p.State)}
	}
	all, fresh := q.records(p.Prefix, p.State)
	p.Fresh, p.Partial = fresh, all.partial
	var rows []work.Record
	rows, p.Pager = paged(q.param("page"), all.records)
	for _, r := range rows {
		p.Records = append(p.Records, workRow{r, q.value(FieldError, r.Error)})
	}
	return p, nil
}

// records returns the first records of work with a prefix, in a state or in any.
func (q *request) records(prefix string, state work.State) (scanned, freshness) {
	return snapshotOf(q, "work "+string(state)+" "+prefix, 5*time.Second, func(ctx context.Context, h *Handler) (scanned, error) {
		var s scanned
		n := 0
		for r, err := range h.works.Records(ctx, prefix) {
			if err != nil {
				return s, err
			}
			if n++; n > mostScanned || len(s.records) == mostRows {
				s.partial = true
				break
			}
			if state == "" || r.State == state {
				r.Result, r.Note = cut(r.Result, longest), cut(r.Note, longest)
				s.records = append(s.records, r)
			}
		}
		return s, nil
	})
}
