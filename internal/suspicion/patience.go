package suspicion

import (
	"slices"
	"time"
)

const (
	// askAfter is how long a caller is first in line before it asks: most waits are shorter.
	askAfter = 200 * time.Millisecond
	// suspectInterval is how long one request may take and how late it may be, if the round
	// trip is not longer. After that the time without an answer is counted anew.
	suspectInterval = 150 * time.Millisecond
	// suspectAfter is how long a question must be unanswered before its client is suspected,
	// if all answers are quick. It is never longer than longestPatience.
	suspectAfter    = 3 * suspectInterval
	longestPatience = suspectAfter << mostPatience
	// askEvery is the time between two looks at one client that answers, and longestPace
	// that between two looks at many.
	askEvery    = suspectInterval / 3
	longestPace = longestPatience / 3
	// longestLook is how long one request may take at most.
	longestLook = 3 * time.Second
	// firstPatience takes the place of suspectAfter until the client has answered once: it may
	// be far. So does afterOutage after an outage: it may have to connect again. An outage is a
	// request that fails before its time is over, or etcd's silence for longer than stallsFor.
	firstPatience = 1500 * time.Millisecond
	afterOutage   = 3 * time.Second
	stallsFor     = 1500 * time.Millisecond
	// mostPatience is how often suspectAfter is doubled, and patienceLasts how long until
	// one wrong suspicion is forgotten.
	mostPatience  = 3
	patienceLasts = time.Minute
	// followEvery is the time between two looks at a client whose claims were taken.
	followEvery = time.Second
)

// patience returns how long a client that was suspected wrongly so often may leave a question
// unanswered. The longest of the times counts thrice: between two looks, of a request, and of
// the client's answers.
func patience(wrongly int, times ...time.Duration) time.Duration {
	return min(max(suspectAfter, 3*slices.Max(times))<<wrongly, longestPatience)
}

// pace is how long a client waits between two requests about so many others. It bounds the
// cost where every client waits for every other.
func pace(others int) time.Duration { return min(askEvery/2*time.Duration(1+others), longestPace) }

// latency is how long something took of late at most: what is shorter lowers it slowly.
type latency time.Duration

func (t *latency) took(d time.Duration) { *t = max(latency(d), *t*7/8) }

// limit returns how long a request may take, after so many that took too long: not longer
// than is usual, so that the next one goes to another member of etcd soon.
func (t latency) limit(failures int) time.Duration {
	return min(max(suspectInterval, 3*time.Duration(t))<<min(failures, 5), longestLook)
}

// wrongs is how often a client was suspected wrongly of late.
type wrongs struct {
	level int
	at    time.Time // of the last
}

// left returns the level that is left at a time.
func (w wrongs) left(now time.Time) int { return max(0, w.level-int(now.Sub(w.at)/patienceLasts)) }

// another returns what becomes of it with another wrong suspicion.
func (w wrongs) another(now time.Time) wrongs { return wrongs{min(w.left(now)+1, mostPatience), now} }
