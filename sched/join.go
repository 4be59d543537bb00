package sched

import (
	"slices"

	"github.com/etcdclaims/claims/internal/tick"
)

// join are the requests that one tick needs: one, or the ends for one nominal time of the jobs
// that its job runs after.
type join struct {
	of       []*request // oldest first
	ask      ask        // what the tick is made of
	complete bool       // whether all are there
	runs     bool       // whether the tick is then due
}

// before returns after which jobs the job runs.
func (c *jobState) before() tick.Following {
	before, _ := c.job.Schedule.(after)
	return before.Following
}

// joined returns the join of a request.
func (l *leadership) joined(c *jobState, r *request) join {
	before := c.before()
	if r.After == "" || !before.Joins() || before.Outdated(r.ask) {
		return join{[]*request{r}, r.ask, true, true}
	}
	var j join
	for _, o := range l.requestsOf[c.id] {
		if o.After != "" && o.At.Equal(r.At) && !before.Outdated(o.ask) {
			j.of = append(j.of, o)
		}
	}
	slices.SortFunc(j.of, (*request).byRevision)
	ends := make([]ask, len(j.of))
	for i, o := range j.of {
		ends[i] = o.ask
	}
	var newest []ask
	if newest, j.complete, j.runs = before.Joined(ends); j.complete { // otherwise r may be gone
		j.ask = newest[0]
		j.ask.By = before.Names()
	}
	return j
}

// piles reports whether requests of a job can be there for long: this owner cannot serve them, or they
// wait for each other.
func (l *leadership) piles(id string) bool {
	return l.cannotServe(id) || l.jobs[id].before().Joins()
}

func (j join) keys() (all []string) {
	for _, r := range j.of {
		all = append(all, r.key)
	}
	return all
}

// asked returns the requests for a step.
func (j join) asked() (all []tick.Asked) {
	for _, r := range j.of {
		all = append(all, tick.Asked{Key: r.key, Rev: r.rev})
	}
	return all
}
