package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A read begins before each key of which the watch has reported, whatever comes between: reads that
// fail, events that come late, watches that begin again, more keys than are kept. Once all is
// reported it begins at the first key.
func TestFloorIsBeforeEachKnownKey(t *testing.T) {
	t.Parallel()
	type event struct {
		key string
		put bool
	}
	begun := time.Now()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		now := begun
		f := floor{prefix: "p/"}
		f.reset(true)
		var live []string    // in etcd
		var reported []event // by etcd
		putAs := map[string]int{}
		told, oldest := 0, 0   // how many of these the watch has passed on, and where it began
		var from, first string // of the read under way
		reading := false
		read := func() {
			first = ""
			for _, key := range live {
				if key >= from && (first == "" || key < first) {
					first = key
				}
			}
		}
		tell := func() {
			f.see(reported[told].key, reported[told].put)
			told++
		}
		begin := func(whole bool) {
			now = now.Add(time.Duration(r.IntN(300)) * time.Millisecond)
			from = f.begin(now, whole)
			if whole && from != "p/" {
				t.Fatalf("seed %d: a whole read begins at %s", seed, from)
			}
			for _, key := range live {
				if i := putAs[key]; (i < oldest || i < told) && key < from {
					t.Fatalf("seed %d: a read begins at %s, behind %s", seed, from, key)
				}
			}
		}
		second := func(time.Duration) time.Duration { return time.Second }
		for step := range 400 {
			switch k := r.IntN(12); {
			case k < 5: // each key is new, and most are behind those before
				n := 1
				if k == 0 {
					n = 1 + r.IntN(100)
				}
				for range n {
					key := fmt.Sprintf("p/%06d/%d", step*1000-min(r.IntN(40_000)*r.IntN(2), step*1000), len(reported))
					putAs[key] = len(reported)
					live, reported = append(live, key), append(reported, event{key, true})
				}
			case k < 9 && len(live) > 0:
				slices.Sort(live)
				for range 1 + r.IntN(len(live)) {
					i := r.IntN(1 + r.IntN(len(live)))
					reported = append(reported, event{live[i], false})
					live = slices.Delete(live, i, i+1)
				}
			case k == 9 && !reading:
				begin(r.IntN(10) == 0)
				reading = r.IntN(10) > 0 // else it fails
				read()
			case k == 9:
				if r.IntN(2) == 0 {
					read() // only now
				}
				for range r.IntN(1 + len(reported) - told) {
					tell()
				}
				f.end(first, now, second)
				reading = false
			case k == 10 && r.IntN(10) == 0:
				f.reset(r.IntN(2) == 0)
				f.reset(true)
				oldest, told = len(reported), len(reported)
			}
			for range r.IntN(1 + len(reported) - told) {
				tell()
			}
		}
		for told < len(reported) {
			tell()
		}
		for range 2 {
			from = f.begin(now, false)
			read()
			f.end(first, now, second)
		}
		if from = f.begin(now, false); now.Before(f.whole) && from != first && (first != "" || from != "p/\xff") {
			t.Fatalf("seed %d: a read begins at %s, and the first key is %s", seed, from, first)
		}
	}
}

// What the watch does not report is found by a read of the whole range.
func TestFloorIsForgotten(t *testing.T) {
	t.Parallel()
	const all, none = "p/", "p/\xff"
	minute := func(time.Duration) time.Duration { return time.Minute }
	now := time.Now()
	f := floor{prefix: all}
	want := func(after time.Duration, want string) {
		t.Helper()
		if got := f.begin(now.Add(after), false); got != want {
			t.Errorf("a read begins at %q, want %q", got, want)
		}
	}
	want(0, all)
	f.end("", now, minute)
	want(0, all) // not watched
	f.reset(true)
	f.end("", now, minute)
	want(0, all) // that read began before the watch
	f.end("", now, minute)
	want(time.Minute-1, none)
	want(time.Minute, all) // it is time to
	f.end("p/5", now, minute)
	want(2*time.Minute-1, "p/5") // from the begin of the last one
	f.end("p/6", now, minute)
	want(2*time.Minute-1, "p/6")
	want(2*time.Minute, all)
	f.end("p/7", now, minute)
	f.see("p/1", true)
	f.see("q/1", true)
	f.see("p/3", true)
	want(2*time.Minute, "p/1")
	f.see("p/1", false)
	want(2*time.Minute, "p/3")
	f.reset(false)
	want(2*time.Minute, all)
}

// A walk takes a hundredth of the time, within bounds.
func TestRest(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: time.Second, 10 * time.Millisecond: time.Second, 20 * time.Millisecond: 2 * time.Second,
		599 * time.Millisecond: 59_900 * time.Millisecond, time.Second: time.Minute,
	} {
		if got := rest(took, time.Second, time.Minute); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}
