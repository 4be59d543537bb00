package jobs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware/jobs"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Two processes start the same scheduled job. Each tick runs in one of them.
func Example() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	threeOClock := func() time.Time { return time.Date(2026, 11, 2, 3, 0, 0, 0, time.UTC) }

	for _, process := range []string{"report-1", "report-2"} {
		claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example/jobs/", Owner: process, Logger: zap.Must(zap.NewProduction())})
		if err != nil {
			log.Fatal(err)
		}
		defer claims.Close(ctx)
		nightly, err := jobs.NewTicks(claims, testwork.Of(claims), "report", calendar.Must(calendar.Every(time.Hour, 0)), jobs.TicksConfig{
			Now: threeOClock, // in production: the default, time.Now
			Report: func(tick jobs.Tick, err error) {
				if err != nil {
					fmt.Println(process, "reports:", err)
				} else {
					fmt.Println(process, "has run", tick.Key())
				}
			},
		})
		if err != nil {
			log.Fatal(err)
		}
		// A scheduler calls the task, such as gocron with gocron.NewTask(task).
		task := nightly.Task(func(ctx context.Context) error {
			tick, _ := jobs.TickOf(ctx)
			fmt.Println(process, "runs", tick.Key())
			return nil
		})
		if err := task(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// report-1 runs report/2026-11-02T03:00:00Z
	// report-1 has run report/2026-11-02T03:00:00Z
	// report-2 reports: jobs: tick report/2026-11-02T03:00:00Z: done before
}
