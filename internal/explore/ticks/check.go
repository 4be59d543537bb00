package ticks

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// carriedOut checks what a request has done.
func (w State) carriedOut(before State, r request, resp *pb.TxnResponse) (State, error) {
	if !resp.Succeeded {
		return w, nil
	}
	switch r.of {
	case admission, prompt, settle, register:
		if own := before.get(ownerKey); own == nil || own.Modified != r.guard {
			return w, fmt.Errorf("%v was carried out, although another is the owner, or nobody", r)
		}
	}
	if run := w.began(before); run > 0 && w.Overlap == tick.BufferAll {
		for n, p := range w.places() {
			if n < run && p.ready > 0 {
				return w, fmt.Errorf("tick %d has begun before tick %d, which waits", run, n)
			}
		}
	}
	was, is := before.mark(), w.mark()
	if is == was {
		return w, nil
	}
	if before.get(pausedKey) != nil && r.of != register {
		return w, fmt.Errorf("%v was carried out while the job was paused", r)
	}
	for n := 1; n <= w.Ticks; n++ {
		switch {
		case n > is && w.told.decided[n]:
			return w, fmt.Errorf("the mark went back before tick %d", n)
		case n <= is && n > was && w.told.decided[n] && r.of != register:
			return w, fmt.Errorf("tick %d was decided twice", n)
		case n <= is && !w.told.decided[n]:
			w.told.decided[n], w.told.exempt[n] = true, r.of == register
		}
	}
	return w, nil
}

// began returns the tick that runs and did not before, 0 for none.
func (w State) began(before State) int {
	for _, k := range w.under(runDir) {
		if before.get(k.Name) == nil {
			return number(decoded[tick.Run](w, k).ID)
		}
	}
	return 0
}

// mark returns the last tick that is decided, by the mark in etcd; -1 if it is gone.
func (w State) mark() int {
	kv := w.get(highKey)
	if kv == nil {
		return -1
	}
	to, err := tick.Instant([]byte(kv.Value))
	if err != nil {
		panic(err)
	}
	return int(to.Sub(begin) / time.Minute)
}

// place is where a tick is.
type place struct {
	ready, run, past int
	failed           int // attempts with another after them
	attempt          int
	outcome          tick.Outcome
}

func (w State) places() (all [4]place) {
	for _, kv := range w.under(readyDir) {
		r := decoded[tick.Ready](w, kv)
		p := &all[number(r.ID)]
		p.ready++
		p.attempt = r.Attempt
	}
	for _, kv := range w.under(runDir) {
		r := decoded[tick.Run](w, kv)
		p := &all[number(r.ID)]
		p.run++
		p.attempt = r.Attempt
	}
	for _, kv := range w.under(pastDir) {
		r := decoded[tick.Past](w, kv)
		p := &all[number(r.ID)]
		if r.Again {
			p.failed++ // the tick is elsewhere
			continue
		}
		p.past++
		p.attempt, p.outcome = r.Attempt, r.Outcome
	}
	return all
}

// Check returns what is wrong in the state itself.
func (w State) Check() error {
	all := w.places()
	runs := 0
	for n := 1; n <= w.Ticks; n++ {
		p, called := all[n], w.told.called[n]
		runs += p.run
		switch there := p.ready + p.run + p.past; {
		case w.told.exempt[n]:
			continue
		case there > 1:
			return fmt.Errorf("tick %d is in several places: %d times waiting, %d times running, %d times recorded", n, p.ready, p.run, p.past)
		case w.told.decided[n] && there == 0:
			return fmt.Errorf("tick %d is decided, and nowhere", n)
		case !w.told.decided[n] && there > 0:
			return fmt.Errorf("tick %d is there, and the mark is before it", n)
		case p.outcome == tick.Skipped && called > 0 && p.attempt == 0 && w.Overlap != tick.CancelRunning:
			return fmt.Errorf("tick %d has run, and was left out", n)
		case p.ready > 0 && called>>p.attempt > 0:
			return fmt.Errorf("attempt %d of tick %d waits, and has called its handler", p.attempt, n)
		case p.outcome == tick.OK && called == 0:
			return fmt.Errorf("tick %d has ended well, and did not run", n)
		case p.outcome == tick.Lost && w.Again && p.attempt < starts && w.Overlap != tick.CancelRunning:
			return fmt.Errorf("tick %d was given up in attempt %d of %d", n, p.attempt, starts)
		case p.outcome == tick.Failed && w.Overlap != tick.CancelRunning:
			return fmt.Errorf("tick %d has failed, and is not tried again", n)
		case p.attempt > 1+p.failed && !w.Again:
			return fmt.Errorf("tick %d has another attempt", n)
		}
	}
	if w.Limit > 0 && runs > w.Limit {
		return fmt.Errorf("%d runs are recorded, and the limit is %d", runs, w.Limit)
	}
	if runs > 1 && w.Overlap != tick.Allow {
		return errors.New("two runs are recorded that exclude each other")
	}
	return nil
}

// Settled returns what is wrong at the end of a calm run.
func (w State) Settled() error {
	all := w.places()
	for n := 1; n <= w.Ticks; n++ {
		switch p := all[n]; {
		case !w.told.decided[n]:
			return fmt.Errorf("nobody has decided about tick %d", n)
		case p.ready+p.run > 0:
			return fmt.Errorf("tick %d has not come to an end", n)
		}
	}
	for _, kv := range w.under(prefix) {
		switch key := kv.Name; {
		case key == highKey, key == specKey, key == keys.Newer(name), strings.HasPrefix(key, pastDir):
		default:
			return fmt.Errorf("%s is left", key)
		}
	}
	return nil
}
