package webui

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// sampleEvery is how often a sample is taken while the page is in use, and mostSamples how many are
	// kept: those of an hour.
	sampleEvery = time.Minute
	mostSamples = 60

	sparkWidth, sparkHeight = 120, 24
)

// The numbers of a sample.
const (
	sampledClaims = iota
	sampledWaiting
	sampledDead
	sampledLate
	sampledNumbers
)

// unsampled stands for a number that was not known: no tab has shown it.
const unsampled = -1

// sample is what the first page has shown at a time.
type sample struct {
	at      time.Time
	numbers [sampledNumbers]int
}

// sampled maps a number of a sample to the snapshot that it is counted in.
var sampled = map[int]string{sampledWaiting: linesTopic, sampledDead: queuesTopic, sampledLate: sessionsTopic}

// tallied is what has a number that is sampled.
type tallied interface{ tally() int }

// sample notes what the first page shows, if a sample is due. It reads nothing: what no tab shows
// is not known.
func (h *Handler) sample(now time.Time) {
	if !h.samples.due(now) {
		return
	}
	claims := h.board.summary()
	if claims.Reading || claims.Err != nil {
		return
	}
	s := sample{at: now, numbers: [sampledNumbers]int{sampledClaims: claims.Held}}
	for number, topic := range sampled {
		s.numbers[number] = unsampled
		if list, ok := h.snapshots.peek(topic, now.Add(-sampleEvery/2)).(tallied); ok {
			s.numbers[number] = list.tally()
		}
	}
	h.samples.add(s)
	h.tabs.topicChanged(samplesTopic)
}

// samples are those of the last hour, oldest first.
type samples struct {
	mu  sync.Mutex
	all []sample
}

// due reports whether another sample is to be taken.
func (s *samples) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) == 0 || now.Sub(s.all[len(s.all)-1].at) >= sampleEvery
}

func (s *samples) add(n sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, n)
	s.all = s.all[max(0, len(s.all)-mostSamples):]
}

// spark is a line over the last hour. It is empty if there are fewer than two samples.
type spark struct {
	Width, Height int
	Path          string // digits and letters
	Text          string // for screen readers
}

// spark draws one of the numbers. Where none was known the line has a gap.
func (s *samples) spark(number int, now time.Time) spark {
	s.mu.Lock()
	defer s.mu.Unlock()
	var known []sample
	least, most := 0, 0
	for _, n := range s.all {
		v := n.numbers[number]
		if v == unsampled || now.Sub(n.at) > mostSamples*sampleEvery {
			continue
		}
		if len(known) == 0 {
			least = v
		}
		least, most = min(least, v), max(most, v)
		known = append(known, n)
	}
	if len(known) < 2 {
		return spark{}
	}
	var path strings.Builder
	for i, n := range known {
		pen := "L"
		if i == 0 || n.at.Sub(known[i-1].at) > 2*sampleEvery {
			pen = "M"
		}
		x := sparkWidth - sparkWidth*int(now.Sub(n.at)/time.Second)/(mostSamples*60)
		fmt.Fprintf(&path, "%s%d %d", pen, x, sparkHeight-1-(sparkHeight-2)*n.numbers[number]/max(most, 1))
	}
	return spark{sparkWidth, sparkHeight, path.String(), fmt.Sprintf("in the last hour between %d and %d", least, most)}
}
