package sched

import (
	"time"

	"github.com/etcdclaims/claims/internal/pausing"
	"github.com/etcdclaims/claims/internal/tick"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Pause describes who paused a job, and why.
type Pause struct {
	By   string // the Config.Owner of the client, or "sched" for PauseOnFailure
	Note string
	At   time.Time // when Pause was called
	// Until is when the pause ends by itself: see For. It is zero if the job is paused until Resume.
	Until time.Time
	// Scope is "the group" or "tag " and a name if the job is paused together with others: see
	// PauseGroup. It is empty if the job is paused by itself.
	Scope string
}

func pauseOf(p pause, halt *tick.Halt) Pause {
	is := Pause{By: p.By, Note: p.Note, At: p.At, Until: p.Until}
	if halt != nil {
		is.Scope = halt.Scope()
	}
	return is
}

// Text describes the pause: by whom, since and until when, and why.
func (p Pause) Text() string {
	text := pausing.Text(p.By, p.At, p.Until, p.Note)
	if p.Scope != "" {
		text = "with " + p.Scope + " " + text
	}
	return text
}

// halts are the pauses of many jobs as they were read.
type halts struct {
	all        tick.Halts
	revs       map[string]int64 // by tag
	rev        int64            // of the read
	unreadable error            // about one that cannot be read
}

// haltsFrom decodes the pauses of many jobs. One that cannot be read counts as one of the group, as it does
// for an owner.
func haltsFrom(kvs []*mvccpb.KeyValue) (known halts) {
	known.revs = make(map[string]int64)
	for _, kv := range kvs {
		h, err := decode[tick.Halt](string(kv.Key), kv.Value)
		if err != nil {
			known.unreadable = err
			known.all = append(known.all, tick.Halt{Pause: pause{By: "(not readable)", Note: err.Error()}})
			continue
		}
		known.all, known.revs[h.Tag] = append(known.all, h), kv.ModRevision
	}
	return known
}

// of returns the halt of a tag, or nil. None is changed while one cannot be read: that may be the one, and
// all jobs stay paused because of it.
func (h halts) of(tag string) (*tick.Halt, error) {
	for i := range h.all {
		if h.all[i].Tag == tag {
			return &h.all[i], h.unreadable
		}
	}
	return nil, h.unreadable
}
