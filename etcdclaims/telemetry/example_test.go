package telemetry_test

import (
	"context"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A program sets up the SDK of OpenTelemetry with its exporters, and then
// instruments what it creates.
func Example() {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()

	tel, err := telemetry.New(telemetry.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer tel.Close()

	cfg := etcdclaims.Config{Logger: zap.Must(zap.NewProduction())}
	tel.Instrument(&cfg)
	claims, err := etcdclaims.New(etcd, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(context.Background())

	jobs := sched.Config{Group: "billing"}
	tel.InstrumentScheduler(&jobs)
	scheduler, err := sched.New(claims, jobs)
	if err != nil {
		log.Fatal(err)
	}
	_ = scheduler

	gate := tel.Gate("invoices", &fencing.Memory{})
	_ = gate
}
