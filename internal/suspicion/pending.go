package suspicion

import (
	"cmp"
	"slices"
	"time"
)

const (
	// mostAnswers is how many questions one request answers, if etcd permits as many
	// operations.
	mostAnswers = 32
	// mostSending is how many such requests are under way at most, besides those that have done
	// what they were for: each of these has ended after longestLook.
	mostSending = 8
	// askedOfLate is for how long a client counts as one of those that ask this one.
	askedOfLate = 2 * longestPace
)

// pending are the questions that a client has to answer.
type pending struct {
	standing map[string]*question // by key in etcd: neither answered, as far as known, nor withdrawn
	asked    map[string]time.Time // when there was last a question, by key in etcd
	sending  int                  // requests under way, with a question that stands
	trip     latency              // of requests
	failures int                  // requests in a row
	next     time.Time            // no request is sent before
	pace     time.Duration        // between two requests
}

// question is one that stands.
type question struct {
	name  string
	rev   int64
	again time.Time // when it is answered, if that was not done or has not come by then
	in    *batch    // the last request that answers it
}

// batch is one request of answers.
type batch struct {
	some  []*question
	limit time.Duration // for it
	stand int           // how many of the questions stand, as far as known; 0 once it has ended
}

// add notes a question.
func (p *pending) add(name string, rev int64, now time.Time) {
	if q := p.standing[name]; q == nil || q.rev != rev {
		p.drop(name)
		p.standing[name] = &question{name: name, rev: rev, again: now}
	}
	p.asked[name] = now
}

// remove notes that a question stands no longer: it was answered, withdrawn, or went with its
// lease.
func (p *pending) remove(name string) {
	p.drop(name)
	p.failures = 0
}

// drop forgets a question. A request none of whose questions stands holds up no other: its
// reply may come late, though its answers came in time.
func (p *pending) drop(name string) {
	if q := p.standing[name]; q != nil && q.in != nil && q.in.stand > 0 {
		if q.in.stand--; q.in.stand == 0 {
			p.sending--
		}
	}
	delete(p.standing, name)
}

// take returns a request that answers the questions of now, nil if there are none, and how long
// to wait for the next. The wait is negative if no question stands.
func (p *pending) take(now time.Time, most int) (b *batch, wait time.Duration) {
	switch {
	case len(p.standing) == 0:
		return nil, -1
	case p.sending >= mostSending:
		return nil, longestLook // the end of one is news
	case p.next.After(now):
		return nil, p.next.Sub(now)
	}
	var some []*question
	wait = longestLook
	for _, q := range p.standing {
		if d := q.again.Sub(now); d > 0 {
			wait = min(wait, d)
		} else {
			some = append(some, q)
		}
	}
	// The oldest first: its client is the next to suspect this one.
	slices.SortFunc(some, func(x, y *question) int { return cmp.Compare(x.rev, y.rev) })
	if len(some) > most {
		some, wait = some[:most], 0
	} else if len(some) > 0 {
		for name, at := range p.asked {
			if now.Sub(at) > askedOfLate {
				delete(p.asked, name)
			}
		}
		// The questions of many clients are answered together. The time for which these
		// stand grows slowly, for the other clients measure it.
		p.pace = min(pace(len(p.asked)-1), max(askEvery, p.pace*3/2))
		p.next = now.Add(p.pace)
	}
	if len(some) == 0 {
		return nil, wait
	}
	b = &batch{some, p.trip.limit(p.failures), len(some)}
	for _, q := range some {
		q.in, q.again = b, now.Add(b.limit)
	}
	p.sending++
	return b, min(wait, b.limit)
}

// reply is what became of a request of answers.
type reply int

const (
	arrived reply = iota
	lost
	denied // the client may not answer
)

// sent notes what became of a request, which has taken so long. pause is the wait after some
// failures.
func (p *pending) sent(b *batch, r reply, now time.Time, took time.Duration, pause func(failures int) time.Duration) {
	if r == arrived {
		p.failures = 0
		p.trip.took(took)
	} else {
		p.failures++
	}
	if b.stand > 0 {
		b.stand = 0
		p.sending--
	}
	for _, q := range b.some {
		switch {
		case p.standing[q.name] != q: // asked anew, or gone
		case r != lost:
			p.drop(q.name)
		default: // a late answer changes nothing, so it is tried until it is known to have come
			q.again = now.Add(pause(min(p.failures-1, 2)))
		}
	}
}
