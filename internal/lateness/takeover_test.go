package lateness_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/go-co-op/gocron/v2"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// ttl is that of claims and of sessions.
const ttl = 5 * time.Second

// BenchmarkTakeOver measures the time from SIGKILL of the process that runs a job
// of ten ticks a second to the first tick that another one runs. The peer is
// gocron with an elector on a session of etcd's. One step is one death of each.
// The time of sched is bounded by the TTL and a second.
func BenchmarkTakeOver(b *testing.B) {
	server := testetcd.StartProcess(b)
	took := make(map[string][]time.Duration)
	for range b.N {
		for _, kind := range []string{"sched", "gocron"} {
			took[kind] = append(took[kind], takeOver(b, server, kind))
		}
	}
	b.ReportMetric(0, "ns/op")
	mean := func(kind string) (sum time.Duration) {
		for _, d := range took[kind] {
			sum += d
		}
		sum /= time.Duration(b.N)
		b.ReportMetric(sum.Seconds(), kind+"-s")
		b.ReportMetric(slices.Max(took[kind]).Seconds(), kind+"-max-s")
		return sum
	}
	b.ReportMetric(mean("sched").Seconds()/mean("gocron").Seconds(), "ratio")
	if most := slices.Max(took["sched"]); most > ttl+time.Second {
		b.Errorf("a take-over took %v, want %v at most", most, ttl+time.Second)
	}
}

func takeOver(b *testing.B, server *testetcd.Process, kind string) time.Duration {
	b.Helper()
	prefix := testetcd.Prefix(b)
	ticks := make(chan int, 1000) // by which process
	var children []*testetcd.Child
	for i := range 2 {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "LATENESS_RUN="+kind, "LATENESS_ENDPOINTS="+strings.Join(server.Endpoints(), ","), "LATENESS_PREFIX="+prefix)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		child, err := testetcd.StartChild(cmd)
		if err != nil {
			b.Fatal(err)
		}
		defer child.Kill()
		children = append(children, child)
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				ticks <- i
			}
		}()
	}
	var owner int
	for began := time.Now(); time.Since(began) < 3*time.Second; {
		owner = <-ticks
	}
	// The phase of the renewals at which death comes is part of what is measured.
	time.Sleep(rand.N(ttl / 2))
	killed := time.Now()
	children[owner].Kill()
	for {
		select {
		case i := <-ticks:
			if i != owner {
				return time.Since(killed)
			}
		case <-time.After(time.Minute):
			b.Fatal("nobody took over within a minute")
		}
	}
}

func init() {
	if kind := os.Getenv("LATENESS_RUN"); kind != "" {
		fmt.Fprintln(os.Stderr, runTicks(kind))
		os.Exit(1)
	}
}

// runTicks is one of the processes: it writes a line for each tick that it runs.
func runTicks(kind string) error {
	ctx, prefix := context.Background(), os.Getenv("LATENESS_PREFIX")
	etcd, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Getenv("LATENESS_ENDPOINTS"), ","), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	const period = 100 * time.Millisecond
	if kind == "sched" {
		claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, TTL: ttl})
		if err != nil {
			return err
		}
		s, err := sched.New(claims, sched.Config{Group: "default"})
		if err != nil {
			return err
		}
		if err := s.Add(sched.Job{
			Name: "job", Schedule: calendar.Must(calendar.Every(period, 0)),
			Handler: func(context.Context, sched.Tick) error { fmt.Println("tick"); return nil },
		}); err != nil {
			return err
		}
		return s.Run(ctx)
	}
	session, err := concurrency.NewSession(etcd, concurrency.WithTTL(int(ttl/time.Second)))
	if err != nil {
		return err
	}
	e := elector{elected: make(chan struct{}), session: session}
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(e))
	if err != nil {
		return err
	}
	if _, err := s.NewJob(gocron.DurationJob(period), gocron.NewTask(func() { fmt.Println("tick") })); err != nil {
		return err
	}
	s.Start()
	if err := concurrency.NewElection(session, prefix).Campaign(ctx, "me"); err != nil {
		return err
	}
	close(e.elected)
	<-session.Done()
	return fmt.Errorf("the session is over")
}

// elector is as simple as one can be.
type elector struct {
	elected chan struct{}
	session *concurrency.Session
}

func (e elector) IsLeader(context.Context) error {
	select {
	case <-e.session.Done():
		return fmt.Errorf("the session is over")
	case <-e.elected:
		return nil
	default:
		return fmt.Errorf("another leads")
	}
}
