package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/jobs"
	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/robfig/cron/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What a worker is told by its environment.
const (
	workerLibrary = "CONFORMANCE_WORKER"
	workerEtcd    = "CONFORMANCE_ETCD"
	workerPrefix  = "CONFORMANCE_PREFIX"
	workerServer  = "CONFORMANCE_SERVER" // of Redis or Postgres
)

// said is what a worker says of its job, on its standard output.
type said struct {
	What  string // "begun", "check", "write", "told"
	Key   string // of the token
	Fence int64
	Err   string
	Lost  bool // the error matches fencing.ErrLost
	Stale bool // or fencing.ErrStale
}

// worker is a process with one job of one library. It runs until its standard input
// ends; the first line there lets the first run of the job go on.
type worker struct {
	etcd   *clientv3.Client
	claims *etcdclaims.Client
	prefix string
	server string
	goOn   chan struct{}
	end    chan struct{}

	mu   sync.Mutex
	out  *json.Encoder
	runs int
}

// libraries has how each library runs the job, until the worker ends.
var libraries = map[string]func(w *worker) error{
	"asynq": asynqWorker, "River": riverWorker, "watermill": watermillWorker, "robfig/cron": cronWorker,
	"gocron, Ticks": gocronWorker, "gocron, Locker": lockerWorker, "gocron, Elector": electorWorker,
}

func work(library string) {
	w := &worker{
		etcd:   must(clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv(workerEtcd)}, DialTimeout: 10 * time.Second})),
		prefix: os.Getenv(workerPrefix),
		server: os.Getenv(workerServer),
		goOn:   make(chan struct{}),
		end:    make(chan struct{}),
		out:    json.NewEncoder(os.Stdout),
	}
	w.claims = must(etcdclaims.New(w.etcd, etcdclaims.Config{Prefix: w.prefix, Owner: "frozen", TTL: 2 * time.Second, AllowShortTTL: true}))
	go func() {
		in := bufio.NewScanner(os.Stdin)
		in.Scan()
		close(w.goOn)
		in.Scan()
		close(w.end)
	}()
	if err := libraries[library](w); err != nil {
		w.say("told", fencing.Token{}, err)
		os.Exit(1)
	}
	_ = w.claims.Close(context.Background())
	_ = w.etcd.Close()
}

func (w *worker) say(what string, token fencing.Token, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := said{What: what, Key: token.Key, Fence: token.Fence, Lost: errors.Is(err, fencing.ErrLost), Stale: errors.Is(err, fencing.ErrStale)}
	if err != nil {
		s.Err = err.Error()
	}
	_ = w.out.Encode(s)
}

func (w *worker) told(err error) { w.say("told", fencing.Token{}, err) }

// job is stopped in its midst when it is run first. It goes on as if it were still
// owner of its key, and says that all went well: the worst that a job can do.
func (w *worker) job(ctx context.Context) error {
	token, _ := fencing.FromContext(ctx)
	w.mu.Lock()
	w.runs++
	first := w.runs == 1
	w.mu.Unlock()
	w.say("begun", token, nil)
	if first {
		<-w.goOn
	}
	w.say("check", token, fencing.Check(ctx))
	_, err := etcdguard.NewKV(w.etcd, etcdguard.Bearer(w.prefix, token)).Put(context.Background(), w.data(), token.String())
	w.say("write", token, err)
	return nil
}

// data is what the job writes.
func (w *worker) data() string { return dataOf(w.prefix) }

func dataOf(prefix string) string { return "/data" + prefix }

func asynqWorker(w *worker) error {
	redis := asynq.RedisClientOpt{Network: "unix", Addr: w.server}
	server := asynq.NewServer(redis, asynq.Config{
		IsFailure: jobs.IsFailure, LogLevel: asynq.FatalLevel,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		DelayedTaskCheckInterval: 100 * time.Millisecond, TaskCheckInterval: 100 * time.Millisecond,
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { w.told(err) }),
	})
	mux := asynq.NewServeMux()
	mux.Use(jobs.Asynq[asynq.Handler](w.claims, func(t *asynq.Task) string { return string(t.Payload()) }, jobs.Config{}))
	mux.HandleFunc("job", func(ctx context.Context, _ *asynq.Task) error { return w.job(ctx) })
	if err := server.Start(mux); err != nil {
		return err
	}
	defer server.Shutdown()
	c := asynq.NewClient(redis)
	defer c.Close()
	if _, err := c.Enqueue(asynq.NewTask("job", []byte("key"))); err != nil {
		return err
	}
	<-w.end
	return nil
}

// jobArgs are those of a job of River.
type jobArgs struct{ Key string }

func (jobArgs) Kind() string { return "job" }

// riverFunc works jobs of River, and tries again at once.
type riverFunc struct {
	river.WorkerDefaults[jobArgs]
	work func(ctx context.Context, job *river.Job[jobArgs]) error
}

func (f *riverFunc) Work(ctx context.Context, job *river.Job[jobArgs]) error { return f.work(ctx, job) }
func (f *riverFunc) NextRetry(*river.Job[jobArgs]) time.Time                 { return time.Now() }

// riverErrors is an ErrorHandler.
type riverErrors func(err error)

func (f riverErrors) HandleError(_ context.Context, _ *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	f(err)
	return nil
}

func (f riverErrors) HandlePanic(context.Context, *rivertype.JobRow, any, string) *river.ErrorHandlerResult {
	return nil
}

func argsKey(job *rivertype.JobRow) string {
	var args jobArgs
	if err := json.Unmarshal(job.EncodedArgs, &args); err != nil {
		return ""
	}
	return args.Key
}

func newRiver(pool *pgxpool.Pool, m rivertype.Middleware, told func(error), work func(ctx context.Context, job *river.Job[jobArgs]) error, change ...func(*river.Config)) (*river.Client[clientTx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverFunc{work: work})
	cfg := &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: workers, Middleware: []rivertype.Middleware{m}, ErrorHandler: riverErrors(told),
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}}, FetchCooldown: 50 * time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
	}
	for _, f := range change {
		f(cfg)
	}
	return river.NewClient(riverpgxv5.New(pool), cfg)
}

func riverWorker(w *worker) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, w.server)
	if err != nil {
		return err
	}
	defer pool.Close()
	c, err := newRiver(pool, jobs.River(w.claims, argsKey, jobs.Config{}), w.told, func(ctx context.Context, _ *river.Job[jobArgs]) error { return w.job(ctx) })
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	if _, err := c.Insert(ctx, jobArgs{"key"}, nil); err != nil {
		return err
	}
	<-w.end
	return c.Stop(ctx)
}

func watermillWorker(w *worker) error {
	pubSub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(
		func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				out, err := h(msg)
				if err != nil {
					w.told(err)
				}
				return out, err
			}
		},
		jobs.Watermill[message.HandlerFunc](w.claims, func(*message.Message) string { return "key" }, jobs.Config{Wait: -1}),
	)
	router.AddConsumerHandler("job", "topic", pubSub, func(msg *message.Message) error { return w.job(msg.Context()) })
	if err := pubSub.Publish("topic", message.NewMessage("1", nil)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-w.end; cancel() }()
	return router.Run(ctx)
}

// at is a schedule of one instant.
type at time.Time

func (a at) Next(t time.Time) time.Time {
	if t.Before(time.Time(a)) {
		return time.Time(a)
	}
	return time.Time{}
}

// ticks are those of a job that is due once, in a moment.
func (w *worker) ticks() (*jobs.Ticks, error) {
	return jobs.NewTicks(w.claims, testwork.Of(w.claims), "key", at(time.Now().Add(time.Second).Truncate(time.Millisecond)), jobs.TicksConfig{
		Report: func(_ jobs.Tick, err error) { w.told(err) },
	})
}

func cronWorker(w *worker) error {
	ticks, err := w.ticks()
	if err != nil {
		return err
	}
	c := cron.New()
	c.Schedule(ticks, ticks.Job(w.job))
	c.Start()
	<-w.end
	<-c.Stop().Done()
	return nil
}

// runGocron runs one job until the worker ends.
func (w *worker) runGocron(def gocron.JobDefinition, task func(ctx context.Context) error, s []gocron.SchedulerOption, opts ...gocron.JobOption) error {
	g, err := gocron.NewScheduler(s...)
	if err != nil {
		return err
	}
	opts = append(opts, gocron.WithName("key"), gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid, _ string, err error) { w.told(err) })))
	if _, err := g.NewJob(def, gocron.NewTask(task), opts...); err != nil {
		return err
	}
	g.Start()
	<-w.end
	return g.Shutdown()
}

func gocronWorker(w *worker) error {
	ticks, err := w.ticks()
	if err != nil {
		return err
	}
	return w.runGocron(gocron.CronJob("", false), ticks.Task(w.job), nil, gocron.WithCronImplementation(ticks))
}

func lockerWorker(w *worker) error {
	locker := jobs.NewLocker[gocron.Lock](w.claims, etcdclaims.MinHold(0))
	return w.runGocron(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), locker.Task("key", w.job), []gocron.SchedulerOption{gocron.WithDistributedLocker(locker)})
}

func electorWorker(w *worker) error {
	leads := make(chan struct{}, 9)
	elector := jobs.NewElector(w.claims, "key", middleware.SingletonConfig{Started: func(fencing.Token) { leads <- struct{}{} }})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = elector.Run(ctx) }()
	<-leads
	time.Sleep(100 * time.Millisecond) // Started is told before
	return w.runGocron(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), elector.Task(w.job), []gocron.SchedulerOption{gocron.WithDistributedElector(elector)})
}
