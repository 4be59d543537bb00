package sched

import "fmt"

// madeJob is the job of a definition.
type madeJob struct {
	id  string
	of  *defined
	job Job
}

// parse starts to make the job of one definition whose iCalendar texts must be parsed. That
// can take long, and the other definitions do not wait for it. A job that has been defined
// anew stays as it was until then.
func (c *catalog) parse() {
	for id := range c.unparsed {
		if c.parsing {
			return
		}
		delete(c.unparsed, id)
		d := c.known[id]
		if d == nil {
			continue
		}
		c.parsing = true
		go func() { c.made <- madeJob{id: id, of: d, job: c.s.jobOf(d)} }()
	}
}

// take publishes a job, unless its definition has changed or its kinds have.
func (c *catalog) take(m madeJob) {
	c.parsing = false
	if c.known[m.id] == m.of && !c.dirty[m.id] && !c.unparsed[m.id] {
		c.s.setDefined(m.of.Job, &m.job)
	}
}

// drain waits for the goroutine of parse.
func (c *catalog) drain() {
	if c.parsing {
		<-c.made
	}
}

// hasICal reports whether the definition has an iCalendar text.
func (d Definition) hasICal() bool {
	return d.Except != nil && d.Except.ICal != "" || d.Only != nil && d.Only.ICal != ""
}

// jobOf returns the job of a definition that was read. It changes nothing.
func (s *Scheduler) jobOf(d *defined) Job {
	kind := d.definition.Kind
	s.mu.Lock()
	handler := s.kinds[kind]
	s.mu.Unlock()
	job, err := Job{}, d.err
	switch {
	case err != nil:
	case handler == nil:
		err = fmt.Errorf("the owner of the group has no handler of kind %q", kind)
	default:
		job, err = d.definition.job(handler, s.parser())
	}
	if err == nil {
		return job
	}
	job = Job{Name: d.Job, Schedule: after(""), kind: kind, defined: d.rev, problem: limitText(err.Error())}
	if schedule, err := d.definition.schedule(s.parser()); d.err == nil && err == nil {
		job.Schedule, job.Overdue = schedule, d.definition.Overdue // for the alarm: the job does not run
	}
	return job
}
