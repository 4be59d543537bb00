package queue

import (
	"math/rand/v2"
	"time"
)

// hash is FNV-1a.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// turn returns when this process may act on something that all waiting processes see.
func (a *arrivals) turn(what string, now time.Time) time.Time {
	h := hash(what)
	mine, before := mix(a.self^h), 0
	for _, other := range a.others {
		if other != a.self && mix(other^h) > mine {
			before++
		}
	}
	if before > mostSteps {
		before = mostSteps + rand.N(mostSteps)
	}
	return now.Add(time.Duration(before) * min(max(2*a.trip, minStep), maxStep))
}

// took notes how long a claiming request took.
func (a *arrivals) took(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.trip += (d - a.trip) / 8; a.trip == 0 {
		a.trip = d
	}
}
