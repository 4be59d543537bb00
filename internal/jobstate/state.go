package jobstate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// DefaultHistory is how many records of a job are kept by default.
const DefaultHistory = 20

// Spec is the value of spec/: the job as its owner registered it.
type Spec struct {
	Version  int    `json:"v"`
	Group    string `json:"group"`
	Job      string `json:"job"`
	Schedule string `json:"schedule"`
	tick.Following
	Revision  string        `json:"revision,omitempty"`
	Hash      string        `json:"hash"`
	Since     time.Time     `json:"since"` // of this revision
	Born      time.Time     `json:"born"`  // of the job
	CatchUp   string        `json:"catchUp"`
	Overlap   string        `json:"overlap"`
	Guarantee string        `json:"guarantee"`
	History   int           `json:"history,omitempty"` // 0 in values of an earlier version: the default
	Overdue   time.Duration `json:"overdue,omitempty"`
	// HistoryFor is how old a record can be when the next one is written, 0 for no limit.
	HistoryFor time.Duration  `json:"historyFor,omitempty"`
	Jitter     time.Duration  `json:"jitter,omitempty"`
	Started    []string       `json:"started,omitempty"`        // the revisions whose RunOnStart was due
	Kind       string         `json:"kind,omitempty"`           // empty for a job in code
	Defined    int64          `json:"defined,string,omitempty"` // the version of the definition that was taken up
	Tags       []string       `json:"tags,omitempty"`
	Limits     map[string]int `json:"limits,omitempty"`
	Priority   int            `json:"priority,omitempty"`
	RunsOn     []string       `json:"runsOn,omitempty"`
	Problem    string         `json:"problem,omitempty"` // why the owner cannot run that
}

// InCode reports whether an owner has registered the job from code, and not by its
// definition.
func (s Spec) InCode() bool { return s.Defined == 0 }

// Limit returns how many records of the job are kept.
func (s Spec) Limit() int {
	if s.History == 0 {
		return DefaultHistory
	}
	return s.History
}

// Resetting is the value of reset/: the mark was put back.
type Resetting struct {
	tick.Cancelling
	Decided Instants `json:"decided,omitempty"` // the ticks after the new mark that must not be admitted again
}

// State is the state of a job at one revision, except for its history and its definition.
type State struct {
	Rev       int64 // the revision
	Spec      Spec
	SpecRev   int64 // 0 if the job is unknown
	High      time.Time
	HighRev   int64
	Paused    *tick.Pause // nil if the job is not paused
	PausedRev int64
	Failures  tick.Failures
	Waiting   []tick.Waiting
	Running   []Running
	Last      *tick.Past
	Reset     Resetting  // the last time the mark was put back
	ResetRev  int64      // 0 if it never was
	ResetErr  error      // why that cannot be read
	Requests  int        // that wait for the owner
	Halts     tick.Halts // the pauses of many jobs that the job has, also of those that have ended
	Halted    *tick.Halt // the one that Paused is, as Lift has found; nil for none
	Places    []string   // what else a tick that waits needs, as it was read; texts for people
}

// Running is a run and the revision at which it began.
type Running struct {
	tick.Run
	Rev int64
}

// Reads are the reads of the state of a job.
type Reads struct {
	spec, high, paused, fail, last, withdraw, reset, requests txn.Op
	waiting, running                                          [2]txn.Op // the second of backfills
}

// Read adds the reads of the state of a job: twelve operations.
func Read(k tick.Keys, job string, to *txn.Branch) (r Reads) {
	get := func(key string) txn.Op { return to.Add(txn.Get([]byte(key))) }
	all := func(prefix string) txn.Op { return to.Add(txn.Range(prefix)) }
	r.spec, r.high, r.paused, r.fail = get(k.Spec(job)), get(k.High(job)), get(k.Paused(job)), get(k.Fail(job))
	r.waiting = [2]txn.Op{all(k.ReadyOf(job)), all(k.Backfills(job))}
	r.running = [2]txn.Op{all(k.RunOf(job)), all(k.Backfilling(job))}
	last, requests := txn.Range(k.Records(job)), txn.Range(k.AsksOf(job))
	newest := last.GetRequestRange()
	newest.SortTarget, newest.SortOrder, newest.Limit = pb.RangeRequest_CREATE, pb.RangeRequest_DESCEND, 1
	requests.GetRequestRange().CountOnly = true
	r.last, r.requests = to.Add(last), to.Add(requests)
	r.withdraw, r.reset = get(k.Withdraw(job)), get(k.Reset(job))
	return r
}

// decode sets a value to that of a key, and rev to its revision, if the key is there.
func decode[T any](kv *mvccpb.KeyValue, value *T, rev *int64) (err error) {
	if kv != nil {
		*rev = kv.ModRevision
		*value, err = tick.Decode[T](string(kv.Key), kv.Value)
	}
	return err
}

// State decodes the state of a job.
func (r Reads) State(reply txn.Reply) (st State, err error) {
	st.Rev = reply.Rev
	var paused tick.Pause
	var last tick.Past
	var none int64
	err = cmp.Or(
		decode(reply.First(r.spec), &st.Spec, &st.SpecRev),
		decode(reply.First(r.paused), &paused, &st.PausedRev),
		decode(reply.First(r.fail), &st.Failures, &none),
		decode(reply.First(r.last), &last, &none),
	)
	if kv := reply.First(r.high); kv != nil && err == nil {
		st.HighRev = kv.ModRevision
		if st.High, err = tick.Instant(kv.Value); err != nil {
			err = fmt.Errorf("the high-water mark %s is invalid: %w; correct the value", kv.Key, err)
		}
	}
	if err != nil {
		return State{}, err
	}
	if st.PausedRev != 0 {
		st.Paused = &paused
	}
	if reply.First(r.last) != nil {
		st.Last = &last
	}
	for _, kv := range slices.Concat(reply.Kvs(r.waiting[0]), reply.Kvs(r.waiting[1])) {
		if kv.ModRevision < reply.First(r.withdraw).GetModRevision() {
			continue // the owner will remove it
		}
		w := tick.Waiting{Key: string(kv.Key)}
		if err := decode(kv, &w.Ready, &w.Rev); err != nil {
			return State{}, err
		}
		st.Waiting = append(st.Waiting, w)
	}
	slices.SortFunc(st.Waiting, func(a, b tick.Waiting) int {
		return cmp.Or(a.Nominal.Compare(b.Nominal), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Key, b.Key))
	})
	for _, kv := range slices.Concat(reply.Kvs(r.running[0]), reply.Kvs(r.running[1])) {
		var run Running
		if err := decode(kv, &run.Run, &run.Rev); err != nil {
			return State{}, err
		}
		run.Run = *run.At(kv.ModRevision)
		st.Running = append(st.Running, run)
	}
	st.Requests = int(reply.Count(r.requests))
	st.ResetErr = decode(reply.First(r.reset), &st.Reset, &st.ResetRev)
	return st, nil
}
