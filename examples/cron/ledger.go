package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// account is what became of the ticks of one job. Each tick that was due ran, was
// cut short, was left out, or is lost.
type account struct {
	due     int
	ran     int // to their end
	again   int // attempts after the first, which AtLeastOnce makes
	cut     int // begun and not ended, which AtMostOnce allows if a process dies
	left    int // missed or skipped, which the job's policies allow
	doubled int // begun twice in the same attempt
	lost    int // none of these
}

// settle ends the run and prints the ledger. It returns an error if a tick was
// doubled or lost.
func (p *parent) settle(ctx context.Context) error {
	log.Printf("the jobs are paused; runs that have begun are waited for")
	stopped := time.Now()
	for _, w := range works() {
		if err := p.scheduler.Pause(ctx, w.job.Name, "the end of the run"); err != nil {
			return err
		}
	}
	idle := func() bool {
		return !slices.ContainsFunc(works(), func(w work) bool {
			info, err := p.scheduler.Inspect(ctx, w.job.Name)
			return err != nil || len(info.Waiting)+len(info.Running) > 0
		})
	}
	if err := p.workers.Until(ctx, "the last runs", idle); err != nil {
		return err
	}
	p.workers.CloseOrders()
	if err := p.workers.Until(ctx, "the workers to finish", p.workers.Finished); err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\njob\tdue\tran\tagain\tcut short\tleft out\tdoubled\tlost\t")
	wrong := 0
	for _, w := range works() {
		a, err := p.judge(ctx, w, stopped)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", w.job.Name, a.due, a.ran, a.again, a.cut, a.left, a.doubled, a.lost)
		wrong += a.doubled + a.lost
	}
	_ = table.Flush()
	if wrong > 0 {
		return fmt.Errorf("%d ticks were doubled or lost", wrong)
	}
	return nil
}

// judge compares what the handlers wrote with what was due. It asks the scheduler's
// own history only about ticks that no handler ran to its end: whether it is known why.
func (p *parent) judge(ctx context.Context, w work, stopped time.Time) (a account, err error) {
	info, err := p.scheduler.Inspect(ctx, w.job.Name)
	if err != nil {
		return a, err
	}
	until := stopped.Add(-10 * time.Second) // the clock of the owner may have been behind, or ahead
	if info.High.After(until) {
		until = info.High
	}
	due := w.due(info.Since, until)
	at := make(map[time.Time]int) // index, by nominal time
	for i, t := range due {
		at[t] = i
	}
	fates := make([]struct{ began, ended, excused bool }, len(due))

	resp, err := p.etcd.Get(ctx, p.records(w.job.Name), clientv3.WithPrefix())
	if err != nil {
		return a, err
	}
	begun := make(map[string]bool) // attempts
	for _, kv := range resp.Kvs {
		var r record
		if err := json.Unmarshal(kv.Value, &r); err != nil {
			return a, fmt.Errorf("%s: %w", kv.Key, err)
		}
		i, ok := at[r.Nominal]
		attempt := fmt.Sprint(r.Nominal, r.Attempt)
		if !ok || begun[attempt] {
			a.doubled++ // or it ran when nothing was due
			continue
		}
		begun[attempt] = true
		if r.Attempt > 1 {
			a.again++
		}
		fates[i].began, fates[i].ended = true, fates[i].ended || r.Ended
	}
	recorded := make(map[string]bool)
	for e, err := range p.scheduler.History(ctx, w.job.Name) {
		if err != nil {
			return a, err
		}
		i, ok := at[e.Nominal]
		if !ok || recorded[e.ID] {
			a.doubled++
			continue
		}
		recorded[e.ID] = true
		for ; i >= max(0, at[e.Nominal]-e.Missed); i-- { // it stands for the missed ticks before it, too
			fates[i].excused = !w.strict
		}
	}
	for _, f := range fates {
		a.due++
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
