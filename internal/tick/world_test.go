package tick_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/sched/calendar"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// start is when the mark of a new world is.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns the tick of a minute after the start.
func at(minute int) time.Time { return start.Add(time.Duration(minute) * time.Minute) }

// world is an etcd with one job that is due each minute.
type world struct {
	testing.TB
	tick.Keys
	etcd etcdmodel.State
	job  tick.Job
}

func newWorld(t *testing.T, change func(j *tick.Job)) *world {
	t.Helper()
	w := &world{TB: t, Keys: tick.NewKeys("/e/", "g"), etcd: etcdmodel.New(1)}
	w.job = tick.Job{Name: "a", Schedule: calendar.Must(calendar.Every(time.Minute, 0)), MaxStarts: 2, History: 20}
	if change != nil {
		change(&w.job)
	}
	w.put(w.High("a"), keyspace.Instant(start))
	return w
}

// do carries out a request.
func (w *world) do(in *pb.TxnRequest) txn.Reply {
	w.Helper()
	next, resp, err := w.etcd.Txn(in)
	if err != nil {
		w.Fatal(err)
	}
	w.etcd = next
	return txn.ReplyIn((*clientv3.TxnResponse)(resp))
}

func (w *world) put(key, value string) {
	w.do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Put([]byte(key), value, int64(0))}})
}

func (w *world) under(prefix string) (kvs []*mvccpb.KeyValue) {
	w.Helper()
	got, err := w.etcd.Range(txn.Range(prefix).GetRequestRange())
	if err != nil {
		w.Fatal(err)
	}
	return got.Kvs
}

func (w *world) mark() tick.Mark {
	w.Helper()
	kvs := w.under(w.High("a"))
	to, err := tick.Instant(kvs[0].Value)
	if err != nil {
		w.Fatal(err)
	}
	return tick.Mark{At: to, Rev: kvs[0].ModRevision}
}

// line are the waiting ticks.
type line []tick.Waiting

func (l line) Len() int              { return len(l) }
func (l line) At(i int) tick.Waiting { return l[i] }

func (w *world) waiting() (all line) {
	w.Helper()
	for _, kv := range w.under(w.ReadyOf("a")) {
		r, err := tick.Decode[tick.Ready](string(kv.Key), kv.Value)
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, tick.Waiting{Ready: r, Key: string(kv.Key), Rev: kv.ModRevision})
	}
	return all
}

func (w *world) standing(now time.Time) tick.Standing {
	return tick.Standing{Keys: w.Keys, Job: w.job, Waiting: w.waiting(), History: tick.History{Limit: w.job.History}, Now: now}
}

// admission is the decision of an owner that has just read everything.
func (w *world) admission(now time.Time) *tick.Admission {
	w.Helper()
	return &tick.Admission{Standing: w.standing(now), Mark: w.mark(), Plan: w.job.Plan(w.mark().At, now, time.Minute, 32)}
}

// admit carries such a decision out.
func (w *world) admit(now time.Time) tick.Admitted {
	w.Helper()
	s := w.admission(now)
	return s.Judge(w.do(s.Build()))
}

// begin begins the first waiting tick. The run has a claim at the revision of its record.
func (w *world) begin(ahead ...string) (run tick.Run, rev int64) {
	w.Helper()
	first := w.waiting()[0]
	run = tick.Run{Ready: first.Ready, Claim: tick.JobClaim("g", "a"), Run: "run" + first.ID, Owner: "me"}
	in := tick.Begin{Keys: w.Keys, Tick: first, Run: run, Value: tick.Encode(run), Ahead: ahead}.Build()
	in.Success = append(in.Success, txn.Put([]byte(keyspace.Own("/e/", run.Claim)), "claim", int64(0)))
	if r := w.do(in); r.Succeeded {
		return run, r.Rev
	}
	return run, 0
}

// has tells what there is of the job, one word for each key.
func (w *world) has() string {
	w.Helper()
	var words []string
	for _, kind := range []struct{ name, prefix string }{{"ready ", w.ReadyOf("a")}, {"run ", w.RunOf("a")}} {
		for _, kv := range w.under(kind.prefix) {
			id := strings.TrimPrefix(string(kv.Key), kind.prefix)
			words = append(words, kind.name+minute(w, id))
		}
	}
	for _, kv := range w.under(w.Records("a")) {
		p, err := tick.Decode[tick.Past](string(kv.Key), kv.Value)
		if err != nil {
			w.Fatal(err)
		}
		words = append(words, string(p.Outcome)+" "+minute(w, p.ID))
	}
	if len(w.under(w.Paused("a"))) > 0 {
		words = append(words, "paused")
	}
	return strings.Join(words, ", ")
}

func minute(w *world, id string) string {
	w.Helper()
	t, err := time.Parse(time.RFC3339Nano, id)
	if err != nil {
		w.Fatal(err)
	}
	return t.Format("4")
}
