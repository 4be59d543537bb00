package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/sched"
)

// An account says what became of the ticks of one job. Each tick that was due ran,
// was cut short, was left out, or is lost.
type account struct {
	job      string
	due      int
	admitted int // waited to be begun, or were
	ran      int // to their end
	again    int // attempts after the first, of AtLeastOnce
	cut      int // begun but not ended, which AtMostOnce allows if a process dies
	left     int // missed or skipped, which the job's policies allow
	doubled  int // begun twice in the same attempt
	lost     int // nothing of all that
}

// settle ends the run, and counts.
func (p *parent) settle(ctx context.Context) error {
	p.board.line("no tick is due any more; what was begun is waited for")
	ended := make(map[string]time.Time) // by the clocks of the groups
	for _, w := range p.works {
		ended[w.group] = clocks(p.Start)[w.group].now(0)
		if err := p.pause(ctx, w); err != nil {
			return err
		}
	}
	for _, w := range p.works {
		for idle := false; !idle; {
			if err := p.wait(ctx, 200*time.Millisecond); err != nil {
				return err
			}
			info, err := p.groups[w.group].Inspect(ctx, w.job.Name)
			if err != nil {
				return err
			}
			idle = len(info.Waiting)+len(info.Running) == 0
		}
	}
	for _, c := range p.children {
		if err := c.finish(); err != nil { // one after the other, and each next owner with it
			return err
		}
	}
	records, err := p.read(ctx)
	if err != nil {
		return err
	}
	p.board.line("the ledger:\n\n%-12s %6s %9s %6s %6s %10s %9s %8s %5s", "job", "due", "admitted", "ran", "again", "cut short", "left out", "doubled", "lost")
	var bad int
	for _, w := range p.works {
		a, err := p.judge(ctx, w, records, ended[w.group])
		if err != nil {
			return err
		}
		fmt.Fprintf(p.board.out, "%-12s %6d %9d %6d %6d %10d %9d %8d %5d\n", a.job, a.due, a.admitted, a.ran, a.again, a.cut, a.left, a.doubled, a.lost)
		bad += a.doubled + a.lost
	}
	if bad > 0 {
		return fmt.Errorf("%d ticks were doubled or lost", bad)
	}
	return nil
}

// pause pauses a job for good. Nothing else does, so a second try may find that
// the first one did.
func (p *parent) pause(ctx context.Context, w work) error {
	for {
		err := p.groups[w.group].Pause(ctx, w.job.Name, "the end of the run")
		switch {
		case err == nil, errors.Is(err, sched.ErrPaused):
			return nil
		case ctx.Err() != nil, errors.Is(err, sched.ErrUnknownJob):
			return err
		}
	}
}

// read returns what the handlers wrote.
func (p *parent) read(ctx context.Context) ([]record, error) {
	resp, err := p.etcd.Get(ctx, p.records(), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	all := make([]record, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		if err := json.Unmarshal(kv.Value, &all[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
	}
	return all, nil
}

// judge holds what the handlers wrote against what was due. Only of ticks that
// reached no handler, or whose handler did not come to its end, it asks the
// scheduler's own history, whether it knows why.
func (p *parent) judge(ctx context.Context, w work, records []record, ended time.Time) (account, error) {
	a := account{job: w.job.Name}
	info, err := p.groups[w.group].Inspect(ctx, w.job.Name)
	if err != nil {
		return a, err
	}
	// The owner may have been ahead of the time, or behind it for a moment.
	until := ended.Add(-10 * time.Second * clocks(p.Start)[w.group].speed)
	if info.High.After(until) {
		until = info.High
	}
	due := w.due(info.Since, until)
	at := make(map[time.Time]int) // their places
	for i, t := range due {
		at[t] = i
	}
	type fate struct{ admitted, began, ended, excused bool }
	fates := make([]fate, len(due))
	if w.job.RunOnStart {
		fates = append(fates, fate{}) // of the tick that the schedule does not have
	}
	a.due = len(fates)
	place := func(nominal time.Time, manual bool) *fate {
		if i, ok := at[nominal]; ok && !manual {
			return &fates[i]
		} else if manual && w.job.RunOnStart {
			return &fates[len(due)]
		}
		return nil
	}

	begun := make(map[string]bool) // attempts
	for _, r := range records {
		f := place(r.Nominal, r.Manual)
		if r.Job != w.job.Name {
			continue
		}
		attempt := fmt.Sprint(r.Tick, r.Attempt)
		if f == nil || begun[attempt] {
			a.doubled++ // or at a time when nothing was due
			continue
		}
		begun[attempt] = true
		if r.Attempt > 1 {
			a.again++
		}
		f.admitted, f.began, f.ended = true, true, f.ended || r.Ended
	}
	recorded := make(map[string]bool)
	for e, err := range p.groups[w.group].History(ctx, w.job.Name) {
		if err != nil {
			return a, err
		}
		_, scheduled := at[e.Nominal]
		f := place(e.Nominal, !scheduled)
		if f == nil || recorded[e.ID] {
			a.doubled++
			continue
		}
		recorded[e.ID] = true
		f.admitted = f.admitted || e.Admitted > 0
		f.excused = !w.strict
		for i := range e.Missed { // those before it
			if j := at[e.Nominal] - i - 1; scheduled && !w.strict && j >= 0 {
				fates[j].excused = true
			}
		}
	}
	for _, f := range fates {
		if f.admitted {
			a.admitted++
		}
		switch {
		case f.ended:
			a.ran++
		case f.began && f.excused:
			a.cut++
		case f.excused:
			a.left++
		default:
			a.lost++
		}
	}
	return a, nil
}
