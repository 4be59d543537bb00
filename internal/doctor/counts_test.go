package doctor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/durable"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/sched"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// counting is an etcd that doctor examines again and again.
type counting struct {
	*testing.T
	e      *Examination
	etcd   *clientv3.Client
	prefix string
}

func newCounting(t *testing.T) *counting {
	t.Helper()
	e, etcd := examine(t)
	e.Thorough = true
	return &counting{t, e, etcd, e.Claims.Prefix()}
}

func (w *counting) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *counting) put(key string) {
	w.Helper()
	_, err := w.etcd.Put(w.Context(), w.prefix+key, "{}")
	w.ok(err)
}

func (w *counting) deleteAll(prefix string) {
	w.Helper()
	_, err := w.etcd.Delete(w.Context(), w.prefix+prefix, clientv3.WithPrefix())
	w.ok(err)
}

// act is what an operator does to the group "g", and to its job "j".
func (w *counting) act(verb audit.Verb) *audit.Act {
	return audit.BeginOn(w.Context(), w.etcd, w.prefix, "anna", time.Now(), verb, audit.Target{Group: "g", Job: "j"}, "")
}

// commit sends a request of an action, which deletes a key or none.
func (w *counting) commit(act *audit.Act, key string) {
	w.Helper()
	ops := act.Ops()
	if key != "" {
		ops = append(ops, clientv3.OpDelete(w.prefix+key))
	}
	_, err := w.etcd.Txn(w.Context()).Then(ops...).Commit()
	w.ok(err)
}

// look wants one finding with the texts. Then an hour passes.
func (w *counting) look(level Level, texts ...string) {
	w.Helper()
	w.e.Findings = nil
	w.e.counts(w.Context())
	if len(w.e.Findings) != 1 || w.e.Findings[0].Level != level {
		w.Fatalf("%+v, want %s", w.e.Findings, level)
	}
	for _, text := range texts {
		if !strings.Contains(w.e.Findings[0].Detail+" "+strings.Join(w.e.Findings[0].Commands, " "), text) {
			w.Errorf("%+v does not have %q", w.e.Findings[0], text)
		}
	}
	w.earlier(time.Hour)
}

// earlier makes the last examination earlier. The revisions stay: those of the counting are before the record's.
func (w *counting) earlier(by time.Duration) {
	w.Helper()
	last, err := durable.ReadLast(w.Context(), w.etcd, w.prefix)
	w.ok(err)
	last.At = last.At.Add(-by)
	if last.Revision != 0 {
		_, err = w.etcd.Put(w.Context(), durable.LastKey(w.prefix), keyspace.Encode(last))
		w.ok(err)
	}
}

var (
	jobSpec   = "sched/" + keyspace.Digest("g") + "/spec/" + keyspace.Digest("j")
	groupSpec = "group/" + keyspace.Digest("g") + "/spec"
	queueRoot = "queue/" + keyspace.Digest("q") + "/"
)

// A deletion by hand is an error until somebody mends it, also if all keys below the prefix are gone. A removal by an
// operator, which is recorded, or by a program, which is not, is no error.
func TestCounts(t *testing.T) {
	t.Parallel()
	w := newCounting(t)
	ctx := t.Context()
	w.look(OK, "queues, jobs and groups: 0")
	q, err := queue.New(w.e.Claims, queue.Config{Name: "mails"})
	w.ok(err)
	bury := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			_, err := q.Enqueue(ctx, queue.NewItem(nil, queue.ID(id)))
			w.ok(err)
		}
		got, err := q.TryClaim(ctx, len(ids))
		w.ok(err)
		for _, d := range got.Deliveries {
			w.ok(d.Discard(ctx, "x"))
		}
	}
	letters := []string{"1", "2", "3", "4", "5"}
	bury(letters...)
	w.ok(q.Pause(ctx, "x"))
	s, err := sched.New(w.e.Claims, sched.Config{Group: "g"})
	w.ok(err)
	_, err = s.Define(ctx, sched.Definition{Name: "j", Schedule: "0 0 1 1 *", Kind: "k"})
	w.ok(err)
	w.look(OK, "queues, jobs and groups: 1; queue pauses: 1; dead letters: 5; job definitions: 1")
	w.look(OK)
	n, err := q.Purge(ctx, time.Now().Add(time.Hour))
	if err != nil || n != len(letters) {
		t.Fatal(n, err)
	}
	w.ok(q.Resume(ctx))
	w.ok(s.Undefine(ctx, "j", sched.AnyVersion))
	w.look(OK, "queues, jobs and groups: 1")
	bury(letters...)
	w.ok(q.Pause(ctx, "x"))
	w.look(OK)
	w.ok(q.Close(ctx)) // it would put its spec back
	for range 2 {      // it is still there a day later
		w.deleteAll("")
		w.look(Error, "queue/"+keyspace.Digest("mails")+"/spec", "queues, jobs and groups: 1; queue pauses: 1; dead letters: 5",
			"restore -f BACKUP", "del "+durable.LastKey(w.prefix))
		w.earlier(24 * time.Hour)
	}
	_, err = w.etcd.Delete(ctx, durable.LastKey(w.prefix))
	w.ok(err)
	w.look(OK, "queues, jobs and groups: 0")
}

// The deletion of one kind is found, whatever else operators and programs did.
func TestCountsOfKinds(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{
		"queue/": {queueRoot + "spec", queueRoot + "dead/1/2"}, "sched/": {jobSpec}, "group/": {groupSpec},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCounting(t)
			for _, key := range keys {
				w.put(key)
			}
			w.look(OK)
			w.deleteAll(name)
			w.put(queueRoot + "trimmed") // as each running queue does
			for _, verb := range []audit.Verb{audit.Purge, audit.UndefineJob, audit.ResumeQueue} {
				w.commit(w.act(verb), "")
			}
			w.look(Error, keys[0])
		})
	}
}

// An operator who removes something just before or during an examination has not deleted it by hand.
func TestCountsDuringActions(t *testing.T) {
	t.Parallel()
	for verb, key := range map[audit.Verb]string{audit.ForgetJob: jobSpec, audit.RemoveGroup: groupSpec} {
		t.Run(verb.Name, func(t *testing.T) {
			t.Parallel()
			w := newCounting(t)
			w.put(key)
			last, err := durable.ReadLast(t.Context(), w.etcd, w.prefix)
			w.ok(err)
			now, err := durable.Count(t.Context(), w.etcd, w.prefix)
			w.ok(err)
			w.commit(w.act(verb), key)
			w.ok(last.Replace(t.Context(), w.etcd, w.prefix, now, time.Now()))
			w.look(OK)

			w.put(key)
			act := w.act(verb)
			w.commit(act, "")
			w.earlier(time.Hour)
			w.look(OK)
			w.commit(act, key)
			w.look(OK)
		})
	}
}

// A record explains one removal, that of its target, and only if its action came later than the last examination.
func TestCountsOtherRecords(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(w *counting){
		"made again": func(w *counting) {
			w.commit(w.act(audit.ForgetJob), jobSpec)
			w.put(jobSpec)
			w.look(OK)
		},
		"put back": func(w *counting) {
			w.commit(w.act(audit.ForgetJob), "")
			w.look(OK)
			resp, err := w.etcd.Get(w.Context(), audit.Under(w.prefix), clientv3.WithPrefix())
			w.ok(err)
			w.deleteAll("audit/")
			for _, kv := range resp.Kvs {
				_, err := w.etcd.Put(w.Context(), string(kv.Key), audit.Portable(w.prefix, kv))
				w.ok(err)
			}
		},
		"another": func(w *counting) {
			on := audit.Target{Group: "g", Job: "other"}
			w.commit(audit.BeginOn(w.Context(), w.etcd, w.prefix, "anna", time.Now(), audit.ForgetJob, on, ""), "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCounting(t)
			w.put(jobSpec)
			w.look(OK)
			act(w)
			w.deleteAll("sched/")
			w.look(Error, jobSpec)
		})
	}
}

// Nothing is an error if the record of a removal may be gone, or cannot be read, or if the counts are of another etcd.
func TestCountsWithoutRecords(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(w *counting){
		"long ago": func(w *counting) { w.earlier(audit.MaxAge) },
		"newer": func(w *counting) {
			_, err := w.etcd.Put(w.Context(), audit.Under(w.prefix)+keyspace.Instant(time.Now())+"-x", `{"v":99}`)
			w.ok(err)
		},
		"copied": func(w *counting) {
			last, err := durable.ReadLast(w.Context(), w.etcd, w.prefix)
			w.ok(err)
			last.Began += 1000
			_, err = w.etcd.Put(w.Context(), durable.LastKey(w.prefix), keyspace.Encode(last))
			w.ok(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCounting(t)
			w.put(jobSpec)
			w.look(OK)
			w.deleteAll("sched/")
			act(w)
			w.look(OK)
		})
	}
}

// Who may not write the counts learns that nothing is kept.
func TestCountsDenied(t *testing.T) {
	t.Parallel()
	w := newCounting(t)
	w.put(jobSpec)
	w.etcd.KV = readOnly{w.etcd.KV}
	for range 2 {
		w.look(Note, `no readwrite permission on "`+durable.LastKey(w.prefix)+`"`)
	}
}

// readOnly is etcd for a user who may only read.
type readOnly struct{ clientv3.KV }

func (kv readOnly) Txn(ctx context.Context) clientv3.Txn { return &readOnlyTxn{Txn: kv.KV.Txn(ctx)} }

type readOnlyTxn struct {
	clientv3.Txn
	denied bool
}

func (t *readOnlyTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(cmps...)
	return t
}

func (t *readOnlyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn, t.denied = t.Txn.Then(ops...), slices.ContainsFunc(ops, clientv3.Op.IsPut)
	return t
}

func (t *readOnlyTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.denied {
		return nil, rpctypes.ErrPermissionDenied
	}
	return t.Txn.Commit()
}
