package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/sched"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// However many keys and jobs there are, and however their calls end, a process has no more
// time series than this.
func TestSeriesAreBounded(t *testing.T) {
	const (
		names      = 200 + 1 // templates, and those of jobs: the first 200, and other
		modes      = 2
		answers    = 6 // acquired, contended, done, dead, waiting, refused
		errorTypes = 13
		reasons    = 4 + 10 // released and the states of work; why claims are lost, and _OTHER
		outcomes   = 11
	)
	errs := []error{
		nil, etcdclaims.ErrHeld, work.ErrDone, work.ErrDead, work.ErrBackoff, etcdclaims.ErrRefused, // answers
		etcdclaims.ErrPermissionDenied, etcdclaims.ErrUnknown, etcdclaims.ErrRewound, etcdclaims.ErrClosed, etcdclaims.ErrTooLarge,
		context.DeadlineExceeded, etcdclaims.ErrLost, context.Canceled, fencing.ErrStale, rpctypes.ErrNoSpace,
		rpctypes.ErrLeaseNotFound, rpctypes.ErrNoLeader, errors.New("one"), errors.New("another"),
	}
	ends := []etcdclaims.TermInfo{{}, {Outcome: string(work.StateDone)}, {Outcome: string(work.StateFailed)}, {Outcome: string(work.StateDead)}}
	for _, r := range []etcdclaims.Reason{
		etcdclaims.ReasonExpired, etcdclaims.ReasonDeleted, etcdclaims.ReasonSuperseded, etcdclaims.ReasonRevoked, etcdclaims.ReasonSessionDead,
		etcdclaims.ReasonMaxHold, etcdclaims.ReasonShutdown, etcdclaims.ReasonOutlived, etcdclaims.ReasonNoProgress, etcdclaims.Reason(99), etcdclaims.Reason(98),
	} {
		ends = append(ends, etcdclaims.TermInfo{Err: &etcdclaims.LostError{Reason: r}})
	}

	reader := sdkmetric.NewManualReader()
	tel, err := telemetry.New(telemetry.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(0))})
	if err != nil {
		t.Fatal(err)
	}
	defer tel.Close()
	var cfg etcdclaims.Config
	tel.Instrument(&cfg)
	jobs := sched.Config{Group: "g"}
	tel.InstrumentScheduler(&jobs)
	for i := range 2 * names {
		name := strings.Map(func(r rune) rune { return r - '0' + 'a' }, string([]byte{byte('0' + i/26), byte('0' + i%26)}))
		for _, wait := range []bool{false, true} {
			for _, err := range errs {
				ctx := cfg.Hooks.CallBegan(t.Context(), etcdclaims.Call{Key: name, Wait: wait})
				cfg.Hooks.CallEnded(ctx, etcdclaims.Call{Key: name, Wait: wait, Waited: 1, Err: err})
			}
		}
		ctx := cfg.Hooks.CallBegan(t.Context(), etcdclaims.Call{Key: name})
		for _, end := range ends {
			cfg.Hooks.TermBegan(ctx, end)
			cfg.Hooks.TermEnded(ctx, end)
		}
		cfg.Hooks.Zombie(ctx, etcdclaims.TermInfo{Token: fencing.Token{Key: name}}, 0)
		for _, o := range []sched.Outcome{
			sched.OutcomeOK, sched.OutcomeFailed, sched.OutcomeTimeout, sched.OutcomeCancelled, sched.OutcomeLost, sched.OutcomeSkipped,
			sched.OutcomeLate, sched.OutcomeMissed, sched.OutcomeInterrupted, sched.OutcomePaused, sched.OutcomeAbandoned,
		} {
			jobs.Hooks.Finished(sched.Entry{Job: name, Outcome: o})
		}
	}
	sets := map[string]int{}
	for s := range (&world{T: t, reader: reader}).metrics() {
		metric, _, _ := strings.Cut(s, "{")
		sets[metric]++
	}
	for metric, want := range map[string]int{
		"etcdclaims.acquire.duration": names * modes * (answers + errorTypes),
		"etcdclaims.wait.duration":    names * (answers + 1),
		"etcdclaims.hold.duration":    names,
		"etcdclaims.claim.ends":       names * reasons,
		"etcdclaims.zombie.count":     names,
		"etcdclaims.run.duration":     names * outcomes,
		"etcdclaims.tick.count":       names * outcomes,
	} {
		if sets[metric] != want {
			t.Errorf("%s has %d time series, want %d", metric, sets[metric], want)
		}
	}
}
