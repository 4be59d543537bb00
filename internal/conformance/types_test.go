package conformance_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/etcdclaims/claims/etcdclaims"
	worked "github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/jobs"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/robfig/cron/v3"
)

// The client is what the adapters take, and its options are theirs.
var (
	_ middleware.Claims = (*etcdclaims.Client)(nil)
	_ middleware.Works  = (*worked.Runner)(nil)
)

var (
	someClient = must(etcdclaims.NewPassthrough(etcdclaims.Config{}))
	someTicks  = must(jobs.NewTicks(someClient, testwork.Of(someClient), "job", calendar.Must(calendar.Every(time.Hour, 0)), jobs.TicksConfig{}))
)

// What the adapters make has the libraries' types.
var (
	_ asynq.MiddlewareFunc = jobs.Asynq[asynq.Handler](someClient, func(*asynq.Task) string { return "" }, jobs.Config{})
	_                      = asynq.Config{IsFailure: jobs.IsFailure}

	_ rivertype.WorkerMiddleware = jobs.River(someClient, func(*rivertype.JobRow) string { return "" }, jobs.Config{})
	_ rivertype.Plugin           = (*jobs.RiverMiddleware[*rivertype.JobRow])(nil)
	_ river.PeriodicSchedule     = someTicks

	_ message.HandlerMiddleware                                       = jobs.Watermill[message.HandlerFunc](someClient, func(*message.Message) string { return "" }, jobs.Config{})
	_ func(message.NoPublishHandlerFunc) message.NoPublishHandlerFunc = jobs.WatermillNoPublish[message.NoPublishHandlerFunc](someClient, func(*message.Message) string { return "" }, jobs.Config{})

	_ cron.Schedule   = someTicks
	_ cron.Job        = someTicks.Job(nothing)
	_ cron.JobWrapper = jobs.CronWrapper[cron.Job](someTicks)
	_ jobs.Schedule   = cron.Schedule(nil)
	_ jobs.Schedule   = calendar.Schedule(nil)

	_ gocron.Elector = jobs.NewElector(someClient, "leader", middleware.SingletonConfig{})
	_ gocron.Locker  = jobs.NewLocker[gocron.Lock](someClient, etcdclaims.MinHold(time.Minute))
	_ gocron.Cron    = someTicks
	_                = gocron.NewTask(someTicks.Task(nothing))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What the adapters cannot make is found where they are made.
func TestWiring(t *testing.T) {
	panics := func(f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		f()
	}
	panics(func() {
		jobs.Asynq[asynq.HandlerFunc](someClient, func(*asynq.Task) string { return "" }, jobs.Config{})
	})
	panics(func() { jobs.CronWrapper[cron.FuncJob](someTicks) })
	for _, spec := range []string{"@every 1h", "@every 2s", "@every 90m"} {
		if _, err := jobs.NewTicks(someClient, testwork.Of(someClient), "job", must(parser.Parse(spec)), jobs.TicksConfig{}); err == nil {
			t.Errorf("%s was taken, of which no two replicas have the same ticks", spec)
		}
	}
}

// A schedule is judged by what it says around now, and no day of the year may be
// one on which a good one is refused.
func TestSchedulesAreTaken(t *testing.T) {
	t.Parallel()
	for _, zone := range zones {
		for _, expr := range fields {
			spec := "TZ=" + zone + " " + expr
			for _, s := range []jobs.Schedule{must(parser.Parse(spec)), calendar.Must(calendar.Cron(spec))} {
				for _, day := range []string{"2018-11-03T23:30:00Z", "2026-03-08T06:59:59.9Z", "2026-03-29T00:30:00Z", "2026-10-25T00:59:00Z", "2026-11-01T05:30:00.1Z"} {
					now := must(time.Parse(time.RFC3339Nano, day))
					if _, err := jobs.NewTicks(someClient, testwork.Of(someClient), "job", s, jobs.TicksConfig{Now: func() time.Time { return now }}); err != nil {
						t.Errorf("%s at %s: %v", spec, day, err)
					}
				}
			}
		}
	}
}
