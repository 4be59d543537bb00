package sched_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
)

// oneLog lets a client and its scheduler share a logger, as in most programs.
func (f *fleet) oneLog() *observer.ObservedLogs {
	logs := f.logged()
	f.claimsLog = f.cfg.Logger
	return logs
}

// An outage of etcd is one line in the log of a process, another each minute, and one at its end.
func TestOutageInTheLog(t *testing.T) {
	t.Parallel()
	for _, owner := range []bool{true, false} {
		caseInFleet(t, fmt.Sprintf("owner %v", owner), func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(10*time.Second, 0))}, 0)
			if !owner {
				f.start(0)
				f.until("00:00:10")
			}
			logs := f.oneLog()
			n := f.start(0)
			f.until("00:01:00")
			n.host.Cut()
			f.until("00:01:15")
			if n := logs.FilterMessageSnippet("etcd unreachable").Len(); n != 1 {
				t.Errorf("%d lines after 15 s", n)
			}
			f.until("00:04:00")
			n.host.Heal()
			f.until("00:05:00")
			if n := logs.FilterMessage("etcd unreachable").Len(); n != 1 {
				t.Errorf("%d lines at its beginning", n)
			}
			if n := logs.FilterMessage("etcd still unreachable").Len(); n != 2 {
				t.Errorf("%d lines while it lasts", n)
			}
			if n := logs.FilterMessageSnippet("reachable again").Len(); n != 1 {
				t.Errorf("%d lines at its end", n)
			}
			if n := logs.FilterMessage("requests failed while etcd answered others; retrying").Len(); n != 0 {
				t.Errorf("%d lines say that etcd answers", n)
			}
		})
	}
}

// A connection that flaps for a while is logged at most once a minute.
func TestFlappingDoesNotFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		logs := f.oneLog()
		n := f.start(0)
		f.until("00:01:00")
		for began := time.Now(); time.Since(began) < 20*time.Minute; {
			n.host.Cut()
			time.Sleep(9 * time.Second)
			n.host.Heal()
			time.Sleep(5 * time.Second)
		}
		warned, back := logs.FilterMessage("etcd unreachable").Len(), logs.FilterMessageSnippet("reachable again").Len()
		t.Logf("%d warnings, %d lines on recovery, %d lines in all", warned, back, logs.Len())
		if warned < 10 || warned > 20 || back > warned {
			t.Errorf("%d warnings, %d lines on recovery", warned, back)
		}
		if n := logs.FilterMessage("requests failed while etcd answered others; retrying").Len(); n != 0 {
			t.Errorf("%d lines say that etcd answers", n)
		}
	})
}

// Requests of a scheduler that fail for a minute while etcd answers others are logged
// once, and so is their end.
func TestRequestsFailBesideOthers(t *testing.T) {
	t.Parallel()
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		logs := f.oneLog()
		n := f.start(0)
		f.until("00:01:10")
		n.host.Inject(claimtest.Fault{On: claimtest.Range, Times: -1, LoseRequest: true, Code: codes.Internal})
		f.until("00:11:00")
		n.host.RemoveFaults()
		f.until("00:12:00")
		for message, level := range map[string]zapcore.Level{
			"requests failed while etcd answered others; retrying": zapcore.WarnLevel,
			"requests succeeded again":                             zapcore.InfoLevel,
		} {
			lines := logs.FilterMessage(message).All()
			if len(lines) != 1 {
				t.Fatalf("%s: %d lines", message, len(lines))
			}
			m := lines[0].ContextMap()
			since, _ := m["since"].(time.Time)
			if lines[0].Level != level || m["group"] != "default" || m["operation"] != "read the live state" || since.Before(clock("00:01:10")) || since.After(clock("00:01:30")) {
				t.Errorf("%s: %v %v", message, lines[0].Level, m)
			}
		}
		if n := logs.FilterMessageSnippet("unreachable").Len(); n != 0 {
			t.Errorf("%d outages", n)
		}
	})
}
