package suspicion

import (
	"testing"
	"time"
)

// A seen is a sight at the given time, of a look that took 10 ms, and what it should mean.
type seen struct {
	at         time.Duration
	rev        int64
	late, gone bool // gone: with the lease of the question before
	want       finding
	left       time.Duration
}

func TestWhatRepliesMean(t *testing.T) {
	t.Parallel()
	const patience = 450 * ms
	first := seen{at: 10 * ms, rev: 5} // after which the client has 1.5 s
	met := []seen{first, {at: 100 * ms, rev: 6, want: answered}}
	for name, steps := range map[string][]seen{
		"never answered": {
			first,
			{at: 1510 * ms, rev: 5, want: unanswered, left: 0},
			{at: 1520 * ms, rev: 5, want: silent},
			{at: 1600 * ms, rev: 5, want: silent},
		},
		"answered at once each time": append(met,
			seen{at: 200 * ms, rev: 7, want: answered}, seen{at: 700 * ms, rev: 8, want: answered}),
		"answered once": append(met,
			seen{at: 300 * ms, rev: 6, want: unanswered, left: 250 * ms},
			seen{at: 550 * ms, rev: 6, want: unanswered, left: 0},
			seen{at: 560 * ms, rev: 6, want: silent}),
		"a late look counts nothing that passed before": append(met,
			seen{at: 540 * ms, rev: 6, late: true},
			seen{at: 900 * ms, rev: 6, want: unanswered, left: 90 * ms},
			seen{at: 1010 * ms, rev: 6, want: silent}),
		"an answer counts, also if the look is late": append(met,
			seen{at: 2000 * ms, rev: 7, late: true, want: answered}),
		"the question went with its lease": append(met,
			seen{at: 540 * ms, rev: 7, gone: true},
			seen{at: 900 * ms, rev: 7, want: unanswered, left: 90 * ms}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			q := standing{least: firstPatience}
			for _, x := range steps {
				now := start.Add(x.at)
				look := sight{rev: x.rev, began: now.Add(-10 * ms), now: now, late: x.late, kept: !x.gone}
				got, left := q.saw(look, patience)
				if got != x.want || left != x.left {
					t.Errorf("after %v: %d and %v left, want %d and %v", x.at, got, left, x.want, x.left)
				}
			}
		})
	}
}

// What passed before a request whose outcome is not known does not count.
func TestTheTimeCountsAnew(t *testing.T) {
	t.Parallel()
	start := time.Now()
	q := standing{rev: 5, since: start, anew: true}
	saw := func(at time.Duration) (finding, time.Duration) {
		return q.saw(sight{rev: 5, began: start.Add(at), now: start.Add(at), kept: true}, 450*ms)
	}
	if got, _ := saw(time.Second); got != counting {
		t.Errorf("the look means %d, want that the time counts", got)
	}
	if got, left := saw(1200 * ms); got != unanswered || left != 250*ms {
		t.Errorf("the next look means %d and %v left, want 250ms", got, left)
	}
}

// The time of an answer counts for the client's distance, but not after an outage.
func TestTimeOfAnswers(t *testing.T) {
	t.Parallel()
	for least, want := range map[time.Duration]latency{
		0: latency(300 * ms), firstPatience: latency(300 * ms), afterOutage: 0,
	} {
		start := time.Now()
		q := standing{rev: 5, since: start, stood: 300 * ms, least: least}
		q.saw(sight{rev: 6, began: start, now: start, kept: true}, 450*ms)
		if q.answers != want || q.least != 0 {
			t.Errorf("with a patience of %v: answers take %v, and the patience is %v; want %v and 0",
				least, time.Duration(q.answers), q.least, time.Duration(want))
		}
	}
}
