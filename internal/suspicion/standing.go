package suspicion

import "time"

// standing is what the replies to looks have shown of the question to one client.
type standing struct {
	rev     int64         // ModRevision of the present question, 0 before the first
	since   time.Time     // it has stood at least since then
	stood   time.Duration // for so long when it was last seen
	answers latency       // how long the client takes to answer
	anew    bool          // the time without an answer counts from the next look on
	least   time.Duration // the patience with the client, until it answers
}

// sight is what one look at the question has shown.
type sight struct {
	rev        int64     // ModRevision of the question
	began, now time.Time // when the look began, and when its reply came
	late       bool      // too late to count what passed before
	kept       bool      // the lease of the question before lives, so only an answer ends that
}

// finding is what a sight means.
type finding int

const (
	// counting: the time without an answer counts from now on.
	counting finding = iota
	// answered: the client has answered the question before, and the time counts from now on.
	answered
	// unanswered: the question stands, and the client may leave it for longer.
	unanswered
	// silent: the client has not answered for as long as it may.
	silent
)

// saw returns what a sight means if the client may leave a question for the given time, and how
// much is left of that if it is unanswered.
func (q *standing) saw(x sight, patience time.Duration) (means finding, left time.Duration) {
	if x.rev != q.rev || x.late || q.anew {
		if x.rev != q.rev && q.rev > 0 && x.kept {
			if means = answered; q.least < afterOutage {
				q.answers.took(q.stood)
			}
			q.least = 0
		}
		q.rev, q.since, q.stood, q.anew = x.rev, x.now, 0, false
		return means, 0
	}
	patience = max(patience, q.least)
	if q.stood = x.now.Sub(q.since); x.began.Sub(q.since) >= patience {
		return silent, 0
	}
	return unanswered, patience - q.stood
}
