package scenarios_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// stage is a prefix with a program, and an operator whose requests can be lost.
type stage struct {
	testing.TB
	prefix            string
	etcd              *clientv3.Client // of the operator
	program, operator *etcdclaims.Client
	lost              atomic.Int64 // what of the next request with a record is lost
}

// What of a request is lost.
const (
	nothingLost = iota
	theRequest
	theReply
)

func newStage(t *testing.T, server *testetcd.Server) *stage {
	t.Helper()
	w := &stage{TB: t, prefix: testetcd.Prefix(t)}
	losing := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		what := int64(nothingLost)
		if in, is := req.(*pb.TxnRequest); is && strings.Contains(fmt.Sprint(in.Success), w.prefix+"audit/") {
			what = w.lost.Swap(nothingLost)
		}
		if what == theRequest {
			return status.Error(codes.Unavailable, "lost")
		}
		err := invoke(ctx, method, req, reply, cc, opts...)
		if what == theReply && err == nil {
			return status.Error(codes.Unavailable, "lost")
		}
		return err
	})
	w.etcd = server.ClientWith(t, clientv3.Config{DialOptions: []grpc.DialOption{losing}})
	w.program, w.operator = w.client(server.Client(t), "program"), w.client(w.etcd, "tool")
	return w
}

func (w *stage) client(etcd *clientv3.Client, owner string) *etcdclaims.Client {
	w.Helper()
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: w.prefix, Owner: owner})
	w.ok(err)
	w.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (w *stage) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// queue returns the operator's queue, which has dead letters and an item that waits.
func (w *stage) queue() *queue.Queue {
	w.Helper()
	of := func(c *etcdclaims.Client) *queue.Queue {
		q, err := queue.New(c, queue.Config{Name: "q"})
		w.ok(err)
		return q
	}
	q, ctx := of(w.program), w.Context()
	for _, id := range []string{"dead1", "dead2"} {
		_, err := q.Enqueue(ctx, queue.NewItem(nil, queue.ID(id)))
		w.ok(err)
	}
	got, err := q.TryClaim(ctx, 2)
	w.ok(err)
	for _, d := range got.Deliveries {
		w.ok(d.Discard(ctx, "x"))
	}
	_, err = q.Enqueue(ctx, queue.NewItem(nil, queue.ID("waits")))
	w.ok(err)
	w.ok(q.Close(ctx))
	return of(w.operator)
}

// scheduler returns the operator's scheduler. The job is registered, and its owner has ended.
func (w *stage) scheduler() *sched.Scheduler {
	w.Helper()
	s, err := sched.New(w.program, sched.Config{Group: "g"})
	w.ok(err)
	w.ok(s.Add(sched.Job{
		Name: "j", Schedule: calendar.Must(calendar.Cron("0 0 1 1 *")),
		Handler: func(context.Context, sched.Tick) error { return nil },
	}))
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for w.Context().Err() == nil {
		if _, err := s.Inspect(ctx, "j"); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	<-ended
	of, err := sched.New(w.operator, sched.Config{Group: "g"})
	w.ok(err)
	return of
}

// group returns the operator's view of a group with a member, which leaves if it is to.
func (w *stage) group(leaves bool) *group.View {
	w.Helper()
	cfg := group.Config{Group: "g", Partitions: 2, Name: "m", Cooldown: -1}
	m, err := group.Join(w.Context(), w.program, cfg, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
		<-ctx.Done()
		return nil
	})
	w.ok(err)
	if leaves {
		w.ok(m.Leave(w.Context()))
	}
	v, err := group.Open(w.Context(), w.operator, "g")
	w.ok(err)
	w.Cleanup(v.Close)
	return v
}

// deadWork leaves a record of dead work.
func (w *stage) deadWork() {
	w.Helper()
	job, err := testwork.Of(w.program).TryBegin(w.Context(), "k")
	w.ok(err)
	_, err = job.Fail(w.Context(), etcdclaims.Permanent(errors.New("x")))
	w.ok(err)
}

// deed is one call of an operator.
type deed struct {
	verb audit.Verb
	on   audit.Target
	// stage prepares the call and returns it.
	stage func(w *stage) func(ctx context.Context) error
}

var (
	theKey   = audit.Target{Key: "k"}
	theJob   = audit.Target{Group: "g", Job: "j"}
	theGroup = audit.Target{Group: "g"}
	theQueue = audit.Target{Queue: "q"}
)

func aboutJob(verb audit.Verb, call func(ctx context.Context, s *sched.Scheduler) error) deed {
	return deed{verb, theJob, func(w *stage) func(context.Context) error {
		s := w.scheduler()
		return func(ctx context.Context) error { return call(ctx, s) }
	}}
}

func aboutJobs(pause func(ctx context.Context, s *sched.Scheduler) error) deed {
	of := aboutJob(audit.PauseJob, pause)
	of.on = theGroup
	return of
}

func aboutQueue(verb audit.Verb, id string, call func(ctx context.Context, q *queue.Queue) error) deed {
	return deed{verb, audit.Target{Queue: "q", Item: id}, func(w *stage) func(context.Context) error {
		q := w.queue()
		return func(ctx context.Context) error { return call(ctx, q) }
	}}
}

// deeds are the calls of operators, by package, type and method.
var deeds = map[string]deed{
	"admin.ForceRelease": {audit.Release, theKey, func(w *stage) func(context.Context) error {
		for range 3 { // each holder is freed by a request of its own
			_, err := w.program.TryAcquire(w.Context(), "k", etcdclaims.Shared())
			w.ok(err)
		}
		return func(ctx context.Context) error { return admin.ForceRelease(ctx, w.operator, "k", "of the call") }
	}},
	"admin.ForceReleaseTerm": {audit.Release, theKey, func(w *stage) func(context.Context) error {
		claim, err := w.program.TryAcquire(w.Context(), "k")
		w.ok(err)
		return func(ctx context.Context) error {
			return admin.ForceReleaseTerm(ctx, w.operator, claim.Token(), "of the call")
		}
	}},
	"admin.Resize": {audit.Resize, theKey, func(w *stage) func(context.Context) error {
		return func(ctx context.Context) error { return admin.Resize(ctx, w.operator, "k", 2) }
	}},
	"admin.RaiseEpoch": {audit.RaiseEpoch, audit.Target{}, func(w *stage) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := admin.RaiseEpoch(ctx, w.etcd, w.prefix, 0)
			return err
		}
	}},
	"work.Runner.Retry": {audit.RetryWork, theKey, func(w *stage) func(context.Context) error {
		w.deadWork()
		return func(ctx context.Context) error {
			_, err := testwork.Of(w.operator).Retry(ctx, "k")
			return err
		}
	}},
	"work.Runner.Forget": {audit.ForgetWork, theKey, func(w *stage) func(context.Context) error {
		w.deadWork()
		return func(ctx context.Context) error { return testwork.Of(w.operator).Forget(ctx, "k") }
	}},
	"sched.Scheduler.Pause": aboutJob(audit.PauseJob, func(ctx context.Context, s *sched.Scheduler) error {
		return s.Pause(ctx, "j", "of the call")
	}),
	"sched.Scheduler.Resume": {audit.ResumeJob, theJob, func(w *stage) func(context.Context) error {
		s := w.scheduler()
		w.ok(s.Pause(audit.Part(w.Context()), "j", ""))
		return func(ctx context.Context) error { return s.Resume(ctx, "j") }
	}},
	"sched.Scheduler.PauseGroup": aboutJobs(func(ctx context.Context, s *sched.Scheduler) error {
		return s.PauseGroup(ctx, "of the call")
	}),
	"sched.Scheduler.PauseTag": aboutJobs(func(ctx context.Context, s *sched.Scheduler) error {
		return s.PauseTag(ctx, "t", "of the call")
	}),
	"sched.Scheduler.ResumeGroup": {audit.ResumeJob, theGroup, func(w *stage) func(context.Context) error {
		s := w.scheduler()
		w.ok(s.PauseGroup(audit.Part(w.Context()), ""))
		return s.ResumeGroup
	}},
	"sched.Scheduler.ResumeTag": {audit.ResumeJob, theGroup, func(w *stage) func(context.Context) error {
		s := w.scheduler()
		w.ok(s.PauseTag(audit.Part(w.Context()), "t", ""))
		return func(ctx context.Context) error { return s.ResumeTag(ctx, "t") }
	}},
	"sched.Scheduler.Cancel": aboutJob(audit.CancelJob, func(ctx context.Context, s *sched.Scheduler) error {
		return s.Cancel(ctx, "j", "of the call")
	}),
	"sched.Scheduler.Forget": aboutJob(audit.ForgetJob, func(ctx context.Context, s *sched.Scheduler) error { return s.Forget(ctx, "j") }),
	"sched.Scheduler.ResetMark": {audit.ResetJob, theJob, func(w *stage) func(context.Context) error {
		s := w.scheduler()
		ahead := keyspace.Instant(time.Now().Add(10 * 365 * 24 * time.Hour))
		_, err := w.etcd.Put(w.Context(), tick.NewKeys(w.prefix, "g").High("j"), ahead)
		w.ok(err)
		return func(ctx context.Context) error {
			_, err := s.ResetMark(ctx, "j", "of the call", true)
			return err
		}
	}},
	"sched.Scheduler.RunNow": aboutJob(audit.RunJob, func(ctx context.Context, s *sched.Scheduler) error {
		_, err := s.RunNow(ctx, "j")
		return err
	}),
	"sched.Scheduler.Backfill": aboutJob(audit.BackfillJob, func(ctx context.Context, s *sched.Scheduler) error {
		_, err := s.Backfill(ctx, "j", time.Unix(0, 0), time.Unix(1, 0), nil)
		return err
	}),
	"sched.Scheduler.Define": {audit.DefineJob, audit.Target{Group: "g", Job: "data"}, func(w *stage) func(context.Context) error {
		s, err := sched.New(w.operator, sched.Config{Group: "g"})
		w.ok(err)
		return func(ctx context.Context) error { return defineData(ctx, s) }
	}},
	"sched.Scheduler.Undefine": {audit.UndefineJob, audit.Target{Group: "g", Job: "data"}, func(w *stage) func(context.Context) error {
		s, err := sched.New(w.operator, sched.Config{Group: "g"})
		w.ok(err)
		w.ok(defineData(w.Context(), s))
		return func(ctx context.Context) error { return s.Undefine(ctx, "data", sched.AnyVersion) }
	}},
	"queue.Queue.Pause": aboutQueue(audit.PauseQueue, "", func(ctx context.Context, q *queue.Queue) error {
		return q.Pause(ctx, "of the call")
	}),
	"queue.Queue.Resume": {audit.ResumeQueue, theQueue, func(w *stage) func(context.Context) error {
		q := w.queue()
		w.ok(q.Pause(audit.Part(w.Context()), ""))
		return q.Resume
	}},
	"queue.Queue.Reconfigure": {audit.Reconfigure, theQueue, func(w *stage) func(context.Context) error {
		w.queue()
		q, err := queue.New(w.operator, queue.Config{Name: "q", MaxTaken: 3})
		w.ok(err)
		return q.Reconfigure
	}},
	"queue.Queue.Redrive": aboutQueue(audit.Redrive, "dead1", func(ctx context.Context, q *queue.Queue) error {
		return q.Redrive(ctx, "dead1")
	}),
	"queue.Queue.RedriveAll": aboutQueue(audit.RedriveAll, "", func(ctx context.Context, q *queue.Queue) error {
		_, err := q.RedriveAll(ctx)
		return err
	}),
	"queue.Queue.Purge": aboutQueue(audit.Purge, "", func(ctx context.Context, q *queue.Queue) error {
		_, err := q.Purge(ctx, time.Now().Add(time.Hour))
		return err
	}),
	"queue.Queue.Cancel": aboutQueue(audit.CancelItem, "waits", func(ctx context.Context, q *queue.Queue) error {
		return q.Cancel(ctx, "waits")
	}),
	"queue.Queue.SetPriority": aboutQueue(audit.SetPriority, "waits", func(ctx context.Context, q *queue.Queue) error {
		return q.SetPriority(ctx, "waits", 3)
	}),
	"group.View.Evict": {audit.EvictMember, audit.Target{Group: "g", Member: "m"}, func(w *stage) func(context.Context) error {
		v := w.group(false)
		return func(ctx context.Context) error { return v.Evict(ctx, "m", "of the call", time.Minute) }
	}},
	"group.View.Readmit": {audit.ReadmitMember, audit.Target{Group: "g", Member: "other"}, func(w *stage) func(context.Context) error {
		v := w.group(false)
		w.ok(v.Evict(audit.Part(w.Context()), "other", "", time.Minute))
		return func(ctx context.Context) error { return v.Readmit(ctx, "other") }
	}},
	"group.Remove": {audit.RemoveGroup, audit.Target{Group: "g"}, func(w *stage) func(context.Context) error {
		w.group(true)
		return func(ctx context.Context) error { return group.Remove(ctx, w.operator, "g") }
	}},
}

func defineData(ctx context.Context, s *sched.Scheduler) error {
	_, err := s.Define(ctx, sched.Definition{Name: "data", Schedule: "0 0 1 1 *", Kind: "k", Payload: json.RawMessage(`{}`)})
	return err
}

// Each call of an operator leaves one record, whatever is lost, and none if it is not carried out.
func TestEachCallIsRecordedOnce(t *testing.T) {
	t.Parallel()
	server := testetcd.Shared(t)
	losses := map[string]int64{"": nothingLost, "request lost": theRequest, "reply lost": theReply}
	if testing.Short() {
		losses = map[string]int64{"": nothingLost}
	}
	for name, is := range deeds {
		for loss, what := range losses {
			t.Run(strings.Trim(name+" "+loss, " "), func(t *testing.T) {
				t.Parallel()
				w := newStage(t, server)
				call := is.stage(w)
				w.lost.Store(what)
				err := call(admin.As(t.Context(), "anna", "INC-1"))
				if err != nil && (what == nothingLost || !errors.Is(err, etcdclaims.ErrUnknown)) {
					t.Fatal(err)
				}
				if w.lost.Load() != nothingLost {
					t.Error("no request has the record")
				}
				all, listErr := admin.Actions(t.Context(), w.operator, 100, time.Time{})
				w.ok(listErr)
				if what == theRequest && err != nil && len(all) == 0 {
					return // not carried out, and so not recorded
				}
				if len(all) != 1 {
					t.Fatalf("%v leaves %+v", err, all)
				}
				got := all[0]
				on := audit.Target{Key: got.Key, Group: got.Group, Job: got.Job, Member: got.Member, Queue: got.Queue, Item: got.Item}
				if got.Verb != is.verb.Name || on != is.on || got.Who != "anna" || got.Why != "INC-1" || got.Revision == 0 || got.Err != nil {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

// Without a person the calls of operators are recorded under the client, and those that programs make, too, are not.
func TestCallsOfPrograms(t *testing.T) {
	t.Parallel()
	server := testetcd.Shared(t)
	for name, is := range deeds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStage(t, server)
			w.ok(is.stage(w)(t.Context()))
			all, err := admin.Actions(t.Context(), w.operator, 100, time.Time{})
			w.ok(err)
			if is.verb.Programs {
				if len(all) > 0 {
					t.Errorf("%+v", all)
				}
				return
			}
			who := "tool"
			if name == "admin.RaiseEpoch" { // which has no client of claims
				who = "unknown"
			}
			if len(all) != 1 || all[0].Who != who || all[0].Why != "" && all[0].Why != "of the call" {
				t.Errorf("%+v", all)
			}
		})
	}
}

// readers are the exported functions with a context that are no calls of operators: they read, or do what programs are for.
var readers = map[string]string{
	"admin": "As Actions History Line Lines Sessions",
	"work": "Runner.TryRun Runner.Run Work.Run Runner.TryBegin Runner.Begin Work.Complete Work.CompleteWith Work.Fail Work.Release " +
		"Work.ReleaseWith Runner.Record Runner.Orphans Runner.Records Runner.Once Runner.TryOnce",
	"sched": "FromContext Groups Scheduler.Definition Scheduler.Definitions Scheduler.Explain Scheduler.Jobs Scheduler.Inspect " +
		"Scheduler.History Scheduler.Run Scheduler.PausedJobs",
	"queue": "Queue.Waiting Typed.Enqueue Typed.EnqueueAll Queue.Stats Active Queue.Work Queue.TryClaim Queue.Claim Batch.CompleteAll " +
		"WorkMany Queue.DeadLetters Queue.Taken Delivery.Heartbeat Queue.Look Names Queue.Enqueue Queue.EnqueueAll Queue.Close Open " +
		"FromContext Queue.Watch Queue.Wait Queue.Sweep Queue.Adopt Delivery.Complete Delivery.Fail Delivery.Snooze " +
		"Delivery.Release Delivery.Discard",
	"group": "View.Watch Open View.Call Join Member.Leave Member.Admit Names Read",
}

// A new call is one of an operator, with a record, or is named as none.
func TestEachCallIsKnown(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{
		"admin": "etcdclaims/admin", "work": "etcdclaims/work", "sched": "sched", "queue": "etcdclaims/queue", "group": "etcdclaims/group",
	} {
		calls := callsOf(t, filepath.Join("../..", dir))
		if len(calls) < 5 {
			t.Errorf("%s has the calls %q", name, calls)
		}
		for _, call := range calls {
			_, recorded := deeds[name+"."+call]
			if reads := slices.Contains(strings.Fields(readers[name]), call); recorded == reads {
				t.Errorf("%s.%s: recorded %v, a reader %v", name, call, recorded, reads)
			}
		}
	}
}

// callsOf returns the exported functions of a package whose first argument is a context.
func callsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, is := decl.(*ast.FuncDecl)
			if !is || !f.Name.IsExported() || len(f.Type.Params.List) == 0 {
				continue
			}
			first, is := f.Type.Params.List[0].Type.(*ast.SelectorExpr)
			if receiver := receiverOf(f); is && first.Sel.Name == "Context" && (receiver == "" || ast.IsExported(receiver)) {
				names = append(names, strings.TrimPrefix(receiver+"."+f.Name.Name, "."))
			}
		}
	}
	return names
}

// receiverOf returns the name of the type of a method, without its parameters; "" of a function.
func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	is := f.Recv.List[0].Type
	for {
		switch of := is.(type) {
		case *ast.StarExpr:
			is = of.X
		case *ast.IndexExpr:
			is = of.X
		case *ast.Ident:
			return of.Name
		default:
			return ""
		}
	}
}
