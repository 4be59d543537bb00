package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/jobs"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/robfig/cron/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// exampleClaims returns a client, as each process has one, and what closes it.
func exampleClaims(name string) (claims *etcdclaims.Client, done func()) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints()})
	if err != nil {
		panic(err)
	}
	claims, err = etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/examples/" + name + "/"})
	if err != nil {
		panic(err)
	}
	return claims, func() {
		_ = claims.Close(context.Background())
		_ = etcd.Close()
	}
}

// Two tasks of one key do not run at a time; the one that is refused is tried again
// by asynq and has used up no retry.
func Example_asynq() {
	claims, done := exampleClaims("asynq")
	defer done()

	mux := asynq.NewServeMux()
	mux.Use(jobs.Asynq[asynq.Handler](claims, func(t *asynq.Task) string { return "stock/" + string(t.Payload()) }, jobs.Config{
		// asynq would archive a task of which this is the last attempt.
		LastAttempt: func(ctx context.Context) bool {
			retried, _ := asynq.GetRetryCount(ctx)
			limit, _ := asynq.GetMaxRetry(ctx)
			return limit > 0 && retried >= limit
		},
	}))
	task := asynq.NewTask("count", []byte("bolts"))
	mux.HandleFunc("count", func(ctx context.Context, t *asynq.Task) error {
		token, _ := fencing.FromContext(ctx)
		fmt.Println("counting under", token.Key)
		// Another process is given such a task meanwhile.
		err := mux.ProcessTask(ctx, task)
		fmt.Println("held:", errors.Is(err, fencing.ErrHeld), "a failure:", jobs.IsFailure(err))
		return nil
	})
	// asynq.NewServer(redis, asynq.Config{IsFailure: jobs.IsFailure}).Run(mux) does so for each task:
	if err := mux.ProcessTask(context.Background(), task); err != nil {
		fmt.Println(err)
	}
	// Output:
	// counting under stock/bolts
	// held: true a failure: false
}

// A job whose key is held is snoozed, which uses up no attempt.
func Example_river() {
	claims, done := exampleClaims("river")
	defer done()

	exclusive := jobs.River(claims, func(job *rivertype.JobRow) string { return "account/" + string(job.EncodedArgs) }, jobs.Config{
		NotRun: func(error) error { return river.JobSnooze(30 * time.Second) },
	})
	_ = func(pool *pgxpool.Pool, workers *river.Workers) (*river.Client[clientTx], error) {
		return river.NewClient(riverpgxv5.New(pool), &river.Config{
			Middleware: []rivertype.Middleware{exclusive},
			Workers:    workers,
		})
	}

	// What River does with each job:
	job := &rivertype.JobRow{EncodedArgs: []byte("42")}
	err := exclusive.Work(context.Background(), job, func(ctx context.Context) error {
		token, _ := fencing.FromContext(ctx)
		fmt.Println("working under", token.Key)
		err := exclusive.Work(ctx, job, func(context.Context) error { return nil }) // in another process
		var snooze *rivertype.JobSnoozeError
		fmt.Println("snoozed:", errors.As(err, &snooze))
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// working under account/42
	// snoozed: true
}

// Messages of one order are handled one at a time, in all processes.
func Example_watermill() {
	claims, done := exampleClaims("watermill")
	defer done()

	pubSub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		fmt.Println(err)
		return
	}
	router.AddMiddleware(jobs.Watermill[message.HandlerFunc](claims,
		func(msg *message.Message) string { return "order/" + msg.Metadata.Get("order") },
		jobs.Config{Wait: -1},
	))
	handled := make(chan string)
	router.AddConsumerHandler("ship", "orders", pubSub, func(msg *message.Message) error {
		token, _ := fencing.FromContext(msg.Context())
		handled <- token.Key
		return fencing.Check(msg.Context())
	})
	msg := message.NewMessage(watermill.NewUUID(), nil)
	msg.Metadata.Set("order", "7")
	if err := pubSub.Publish("orders", msg); err != nil {
		fmt.Println(err)
	}
	go func() { _ = router.Run(context.Background()) }()
	fmt.Println(<-handled)
	_ = router.Close()
	_ = pubSub.Close()
	// Output: order/7
}

// Two replicas have the same job, and one of them runs each tick.
func Example_robfigCron() {
	schedule := at(time.Now().Add(2 * time.Second).Truncate(time.Second)) // calendar.Must(calendar.Cron("30 2 * * *", calendar.In("Europe/Berlin"))), say
	told := make(chan error)
	for range 2 {
		claims, done := exampleClaims("cron")
		defer done()
		ticks, err := jobs.NewTicks(claims, testwork.Of(claims), "report", schedule, jobs.TicksConfig{
			Report: func(_ jobs.Tick, err error) { told <- err },
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		c := cron.New()
		c.Schedule(ticks, ticks.Job(func(ctx context.Context) error {
			tick, _ := jobs.TickOf(ctx)
			fmt.Println("reporting")
			return send(ctx, tick.Key()) // which is a good idempotency key
		}))
		c.Start()
		defer c.Stop()
	}
	for range 2 {
		switch err := <-told; {
		case err == nil:
			fmt.Println("one has run it")
		case errors.Is(err, fencing.ErrHeld), errors.Is(err, middleware.ErrDone):
			fmt.Println("one leaves it to the other")
		default:
			fmt.Println(err)
		}
	}
	// Unordered output:
	// reporting
	// one has run it
	// one leaves it to the other
}

func send(ctx context.Context, _ string) error { return fencing.Check(ctx) }

// gocron takes the ticks in place of its own schedule, so that the job knows which
// one it is for.
func Example_gocron() {
	claims, done := exampleClaims("gocron")
	defer done()

	ticks, err := jobs.NewTicks(claims, testwork.Of(claims), "report", calendar.Must(calendar.Every(time.Second, 0)), jobs.TicksConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := gocron.NewScheduler()
	if err != nil {
		fmt.Println(err)
		return
	}
	ran := make(chan jobs.Tick, 10)
	_, err = s.NewJob(
		gocron.CronJob("every second", true), // not looked at
		gocron.NewTask(ticks.Task(func(ctx context.Context) error {
			tick, _ := jobs.TickOf(ctx)
			ran <- tick
			return nil
		})),
		gocron.WithCronImplementation(ticks), gocron.WithName("report"),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Start()
	tick := <-ran
	fmt.Println(tick.Job, tick.Nominal.Nanosecond())
	_ = s.Shutdown()
	// Output: report 0
}

// A locker holds the lock for longer than clocks differ, and has a task know its
// fence.
func Example_gocronLocker() {
	claims, done := exampleClaims("locker")
	defer done()

	locker := jobs.NewLocker[gocron.Lock](claims, etcdclaims.MinHold(30*time.Second))
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		fmt.Println(err)
		return
	}
	ran := make(chan string)
	_, err = s.NewJob(
		gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), // gocron.DurationJob(time.Minute), say
		gocron.NewTask(locker.Task("report", func(ctx context.Context) error {
			token, _ := fencing.FromContext(ctx)
			ran <- token.Key
			return nil
		})),
		gocron.WithName("report"),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Start()
	fmt.Println(<-ran)
	_ = s.Shutdown()
	// Output: report
}

// Of all schedulers the elected one runs the jobs.
func Example_gocronElector() {
	claims, done := exampleClaims("elector")
	defer done()

	elector := jobs.NewElector(claims, "scheduler", middleware.SingletonConfig{
		Failed: func(err error) { slog.Warn("the lead is contested again", "error", err) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- elector.Run(ctx) }()

	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		fmt.Println(err)
		return
	}
	ran := make(chan string, 10)
	_, err = s.NewJob(
		gocron.DurationJob(100*time.Millisecond),
		gocron.NewTask(elector.Task(func(ctx context.Context) error {
			token, _ := fencing.FromContext(ctx)
			ran <- token.Key
			return nil
		})),
		gocron.WithName("report"),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Start()
	fmt.Println(<-ran)
	_ = s.Shutdown()
	cancel() // the next leads as soon as the tasks have returned
	fmt.Println(errors.Is(<-ended, context.Canceled))
	// Output:
	// scheduler
	// true
}
